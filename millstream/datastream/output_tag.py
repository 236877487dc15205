"""`OutputTag`, under PyFlink's module name."""

from millstream.common.output_tag import OutputTag

__all__ = ["OutputTag"]
