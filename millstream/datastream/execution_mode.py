"""`RuntimeExecutionMode`, under PyFlink's module name."""

from millstream.common.execution_mode import RuntimeExecutionMode

__all__ = ["RuntimeExecutionMode"]
