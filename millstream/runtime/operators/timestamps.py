"""Where timestamps and watermarks begin: sources, and `assign_timestamps_and_watermarks`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from millstream.common.constants import MAX_TIME, NO_TIME
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.graph import operators as ops
from millstream.graph.stream_graph import StreamNode
from millstream.graph.transformations import line_of
from millstream.runtime.base.recognize import timestamp_subscript_of
from millstream.runtime.codegen.builder import ChainBuilder
from millstream.runtime.codegen.unit import OperatorUnit
from millstream.runtime.columns.batch import ColumnBatch
from millstream.runtime.operators.time_columns import reads_field, times_of
from millstream.runtime.time.timers import checked_time
from millstream.runtime.time.watermarks import WatermarkStage

__all__ = ["AssignUnit", "SourceUnit"]

Op = TypeVar("Op", bound=ops.Operator)


class _StageUnit(OperatorUnit[Op]):
    """Takes each record's timestamp, and keeps what its watermarks are made from."""

    one_for_one = True

    def __init__(
        self, builder: ChainBuilder, node: StreamNode, strategy: WatermarkStrategy | None
    ) -> None:
        super().__init__(builder, node)
        if strategy is not None and builder.settings.batch:
            # Rule 60: timestamps, but no watermarks.
            strategy = replace(
                strategy, kind="none", generator_supplier=None, idle_timeout_ms=None, alignment=None
            )
        self._strategy = strategy
        # The variable with the timestamp of the record at hand.
        self._timestamp = ""
        if strategy is not None:
            self.stage = WatermarkStage(strategy, node.name)

    def lines(self, record: str, index: int) -> None:
        """The record's timestamp, and the largest so far."""
        strategy, stage = self._strategy, self.stage
        if strategy is None or stage is None:
            self.emit(record)
            return
        code, builder = self.code, self.builder
        name, timestamp = code.bind(stage, "stage"), code.fresh("timestamp")
        self._timestamp = timestamp
        follows = strategy.kind in ("monotonous", "bounded")
        if strategy.timestamp_assigner is not None:
            self._assign(strategy.timestamp_assigner.extract_timestamp, record, timestamp)
            self._check(timestamp, name, follows=follows)
            self.at(record)
        else:
            code.line(f"{timestamp} = {builder.stamp()}")
            if follows:
                with code.block(f"if {timestamp} > {name}.max:"):
                    code.line(f"{name}.max = {timestamp}")
        if strategy.idle_timeout_ms is not None or strategy.kind == "generator":
            with code.block(f"if {name}.quiet:"):
                code.line(f"{name}.heard()")
        with builder.stamped_by(timestamp if strategy.stamps or builder.stamped else ""):
            self.emit(record)

    def lines_after(self, record: str) -> None:
        """The user's generator, which emits at the record's exact place (rule 1). No letter can be made of a record
        that has been handed on: what the generator raises is the job's failure."""
        if self.stage is not None and self.stage.generator is not None:
            stage = self.code.bind(self.stage, "stage")
            self.at(record, "watermark")
            self.code.line(f"{stage}.generator.on_event({record}, {self._timestamp}, {stage})")

    # -- columns --------------------------------------------------------------------------------------------

    def takes_columns(self) -> bool:
        """True if timestamps are a column, and what is behind takes columns."""
        return self.columns is not None

    def gives_columns(self) -> bool:
        """True if each record's timestamp can be told without calling anything for it."""
        strategy = self._strategy
        if self.bad is not None or (strategy is not None and strategy.kind == "generator"):
            return False
        assigner = None if strategy is None else strategy.timestamp_assigner
        return assigner is None or reads_field(assigner) is not None

    def take_columns(self, batch: ColumnBatch) -> bool:
        """The rows' timestamps, and the largest so far. Nothing here counts twice if the rows come again as records."""
        strategy, stage, outlet = self._strategy, self.stage, self.columns
        assert outlet is not None
        if strategy is None or stage is None:
            return outlet.send(batch)
        stamps = batch.stamps
        if strategy.timestamp_assigner is not None:
            stamps = times_of(batch, strategy.timestamp_assigner)
            if stamps is None:
                return False
        if stamps is not None and strategy.kind in ("monotonous", "bounded"):
            stage.max = max(stage.max, int(stamps.max()))
        if strategy.idle_timeout_ms is not None and stage.quiet:
            stage.heard()
        return outlet.send(batch.stamped(stamps))

    def _assign(self, method: Any, record: str, timestamp: str) -> None:
        code = self.code
        field = timestamp_subscript_of(method)
        # What is inlined has no frame of its own that an error could show.
        self.at(record, "timestamp", None if field is None else line_of(method))
        if field is None:
            extract = code.bind(method, "extract_timestamp")
            code.line(f"{timestamp} = {extract}({record}, {self.builder.stamp()})")
        else:
            code.line(f"{timestamp} = {record}[{field!r}]")

    def _check(self, timestamp: str, stage: str, *, follows: bool) -> None:
        code = self.code
        check = f"{timestamp} = {code.bind(_checked, 'checked')}({timestamp})"
        with code.block(f"if type({timestamp}) is not int:"):
            code.line(check)
        if not follows:
            with code.block(f"if not {NO_TIME} <= {timestamp} <= {MAX_TIME}:"):
                code.line(check)
            return
        # A timestamp that is not the largest is compared with the least there can be, any other with the largest.
        with code.block(f"if {timestamp} > {stage}.max:"):
            with code.block(f"if {timestamp} > {MAX_TIME}:"):
                code.line(check)
            code.line(f"{stage}.max = {timestamp}")
        with code.block(f"elif {timestamp} < {NO_TIME}:"):
            code.line(check)


class AssignUnit(_StageUnit[ops.AssignOp]):
    """Timestamps and watermarks in the middle of a stream."""

    def __init__(self, builder: ChainBuilder, node: StreamNode) -> None:
        op: Any = node.operator
        super().__init__(builder, node, op.strategy)


class SourceUnit(_StageUnit[ops.SourceOp | ops.FrameSourceOp | ops.FeedbackSourceOp]):
    """A record that a source has read."""

    def __init__(self, builder: ChainBuilder, node: StreamNode) -> None:
        strategy = getattr(node.operator, "strategy", None)
        if strategy is None and builder.settings.stamped:
            # The source's own timestamps and watermarks.
            strategy = WatermarkStrategy.no_watermarks()
        super().__init__(builder, node, strategy)

    def gives_columns(self) -> bool:
        """True if the source has columns, and nothing but."""
        op = self.op
        if isinstance(op, ops.FrameSourceOp):
            return super().gives_columns()
        return (
            type(op) is ops.SourceOp
            and op.source.gives_columns()
            and not op.source.stamped()
            and super().gives_columns()
        )

    def write(self, record: str, index: int) -> None:
        """Reading has failed before there is a record; what policies are about comes after it."""
        self.lines(record, index)
        self.lines_after(record)


def _checked(value: Any) -> int:
    return checked_time(value, "extract_timestamp")
