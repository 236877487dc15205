"""Where records leave the job: sinks, sink functions, printed and collected records."""

from __future__ import annotations

from typing import Any, TypeVar

from millstream.api.functions import SinkFunction
from millstream.api.sink import SinkWriter, WriterContext
from millstream.common.constants import NO_TIME
from millstream.common.types import Row, format_row, format_value
from millstream.errors import MillstreamError, SinkError, told
from millstream.graph import operators as ops
from millstream.graph.stream_graph import StreamNode
from millstream.redaction import get_logger
from millstream.runtime.base.failpoints import reached
from millstream.runtime.base.user_lines import user_line
from millstream.runtime.codegen.builder import ChainBuilder
from millstream.runtime.codegen.unit import OperatorUnit
from millstream.runtime.columns.batch import ColumnBatch
from millstream.runtime.wire.column_output import ColumnWriter

__all__ = ["CollectUnit", "PreCommits", "PrintUnit", "SinkFunctionUnit", "SinkUnit"]

_log = get_logger(__name__)

Op = TypeVar("Op", bound=ops.Operator)


class PreCommits(OperatorUnit[Op]):
    """An operator whose output of an epoch must be safe before the checkpoint is."""

    def prepare_commit(self) -> bytes | None:
        """What the driver has to commit."""
        reached("before pre-commit")
        committable = self.pre_commit()
        reached("after pre-commit")
        return committable

    def pre_commit(self) -> bytes | None:
        """Make the epoch's output safe; what the driver has to commit, or None."""
        raise NotImplementedError


class SinkUnit(PreCommits[ops.SinkOp]):
    """A `Sink`, with a writer for each epoch."""

    def __init__(self, builder: ChainBuilder, node: StreamNode) -> None:
        super().__init__(builder, node)
        self._writing = _Writing()

    def lines(self, record: str, index: int) -> None:
        """One call of the epoch's writer."""
        self.code.line(f"{self.code.bind(self._writing, 'sink')}.write({record})")

    def takes_columns(self) -> bool:
        """True if the sink's writers do; but a record that cannot be written may be no failure."""
        return self.bad is None and self.op.sink.takes_columns()

    def take_columns(self, batch: ColumnBatch) -> bool:
        """One call of the epoch's writer for all rows."""
        writer = self._writing.writer
        assert writer is not None
        try:
            return writer.write_columns(batch.data, named=batch.shape.has_names)
        except MillstreamError:
            raise
        except Exception as error:
            name = self.node.name
            raise SinkError(
                f"the sink '{name}' raised {told(error)}",
                operator=name,
                line=user_line(error.__traceback__),
                declared_at=self.node.declared_at,
            ) from error

    def begin_epoch(self, context: WriterContext) -> None:
        """A new epoch: a new writer."""
        writer = self._writing.writer = self.op.sink.create_writer(context)
        self._writing.write = writer.write

    def pre_commit(self) -> bytes | None:
        """The writer says what there is to commit."""
        assert self._writing.writer is not None
        committable = self._writing.writer.prepare_commit()
        self._writing.writer = None
        return committable

    def abort(self) -> None:
        """The writer takes back what it can."""
        writer, self._writing.writer = self._writing.writer, None
        if writer is not None:
            try:
                writer.abort()
            except Exception:
                # What made the attempt fail must not be hidden by this.
                _log.warning("a sink's writer could not be aborted", exc_info=True)


class _Writing:
    """What generated code writes with: the method of the epoch's writer."""

    __slots__ = ("write", "writer")

    def __init__(self) -> None:
        self.writer: SinkWriter | None = None
        self.write: Any = None


class SinkFunctionUnit(PreCommits[ops.SinkFunctionOp]):
    """A `SinkFunction`, or a callable: what it has written cannot be taken back."""

    def __init__(self, builder: ChainBuilder, node: StreamNode) -> None:
        super().__init__(builder, node)
        # For records with a timestamp, and for those without: what a timer gives has one, whatever elements have.
        self._contexts = SinkFunction.Context(), SinkFunction.Context()

    def lines(self, record: str, index: int) -> None:
        """One call of the user's function."""
        invoke = self.bind_function(self.op.function, "invoke", "invoke")
        context = self.code.bind(self._contexts[self.builder.stamped], "context")
        if self.builder.stamped:
            stamp = self.builder.stamp()
            self.code.line(f"{context}._timestamp = None if {stamp} == {NO_TIME} else {stamp}")
        self.code.line(f"{invoke}({record}, {context})")

    def prepare_commit(self) -> bytes | None:
        """A callable has nothing to flush."""
        return super().prepare_commit() if isinstance(self.op.function, SinkFunction) else None

    def pre_commit(self) -> bytes | None:
        """Flush; nothing to commit."""
        assert isinstance(self.op.function, SinkFunction)
        self.op.function.flush()
        return None


class PrintUnit(OperatorUnit[ops.PrintOp]):
    """Records become lines of the driver's output."""

    def __init__(self, builder: ChainBuilder, node: StreamNode) -> None:
        super().__init__(builder, node)
        number = f"{builder.subtask + 1}" if node.parallelism > 1 else ""
        prefix = ":".join(part for part in (self.op.identifier or "", number) if part)
        self._start = f"{prefix}> " if prefix else ""

    def lines(self, record: str, index: int) -> None:
        """The line goes to the driver."""
        line = self.code.bind(self._line, "text")
        self.builder.append(self.builder.client_writer(self.node), 0, f"{line}({record})")

    def _line(self, value: Any) -> str:
        return self._start + (format_row(value) if isinstance(value, Row) else format_value(value))


class CollectUnit(OperatorUnit[ops.CollectOp]):
    """Records that the driver gives to the user, or to Spark."""

    def takes_columns(self) -> bool:
        """True if a frame is made of the records."""
        return self.op.schema is not None

    def take_columns(self, batch: ColumnBatch) -> bool:
        """The rows go to the driver."""
        writer = self.builder.client_writer(self.node)
        return isinstance(writer, ColumnWriter) and writer.take_columns(batch)

    def lines(self, record: str, index: int) -> None:
        """The record goes to the driver."""
        self.builder.append(self.builder.client_writer(self.node), 0, record)
