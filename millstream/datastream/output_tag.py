"""`OutputTag`, under PyFlink's module name."""

from millstream.api.output_tag import OutputTag

__all__ = ["OutputTag"]
