"""Where watermarks are made: `assign_timestamps_and_watermarks`, and a source's own strategy.

Generated code notes the largest timestamp, or calls the user's generator with every record. After every run of at most
1024 records and at the end of an epoch the stage is asked for its watermark (rule 1). At level 0 each split has a
generator of its own: its state travels with the split's position, through the driver. Further down a subtask has one,
kept with its state.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from millstream.checkpoint.manifest import GeneratorState
from millstream.common.constants import MAX_TIME, NO_TIME
from millstream.common.watermark_strategy import (
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)
from millstream.errors import InvalidArgument, UserFunctionError, told
from millstream.redaction import get_logger
from millstream.runtime.base import clock
from millstream.runtime.time.timers import checked_time
from millstream.runtime.wire.codec import dumps

__all__ = ["WatermarkStage"]

_log = get_logger("millstream.job")


class WatermarkStage(WatermarkOutput):
    """The generator at work: of the split at hand, or of the subtask."""

    __slots__ = (
        "_name",
        "_said",
        "_strategy",
        "emitted",
        "forward",
        "forward_idle",
        "generator",
        "idle",
        "max",
        "quiet",
        "quiet_since",
    )

    def __init__(self, strategy: WatermarkStrategy, name: str) -> None:
        self._strategy = strategy
        self._name = name
        self._said = False
        self.max = NO_TIME
        self.emitted = NO_TIME
        self.idle = False
        # True until the first record since the stage was last asked: what makes idleness visible.
        self.quiet = True
        self.quiet_since: int | None = None
        self.generator: WatermarkGenerator | None = None
        if strategy.generator_supplier is not None:
            self.generator = self._supply()
        # Set once the chain is built: what a watermark, and a change of status, goes through.
        self.forward: Callable[[int], None] = _nowhere
        self.forward_idle: Callable[[bool], None] = _nowhere

    def _supply(self) -> WatermarkGenerator:
        supplier = self._strategy.generator_supplier
        assert supplier is not None
        try:
            made = supplier()
        except Exception as error:
            msg = f"the watermark strategy of '{self._name}' could not make its generator: {told(error)}"
            hint = "for_generator takes a function or class that is called without arguments"
            raise UserFunctionError(msg, operator=self._name, hint=hint) from error
        if not isinstance(made, WatermarkGenerator):
            msg = f"the watermark strategy of '{self._name}' made something that is not a generator"
            hint = "for_generator takes a function or class that gives a WatermarkGenerator"
            raise InvalidArgument(msg, got=type(made).__name__, hint=hint)
        return made

    @property
    def makes_watermarks(self) -> bool:
        """False if only the source's own go through it."""
        return self._strategy.kind != "none"

    # -- WatermarkOutput ---------------------------------------------------------------------------------------

    def emit_watermark(self, watermark: int) -> None:
        """Rule 3: one that is not larger than the last changes nothing."""
        if type(watermark) is not int:
            watermark = checked_time(watermark, "emit_watermark")
        if watermark > self.emitted:
            if watermark > MAX_TIME:
                checked_time(watermark, "emit_watermark")
            self.mark_active()
            self.emitted = watermark
            self.forward(watermark)
        elif watermark < self.emitted and self.generator is not None and not self._said:
            self._said = True
            _log.warning(
                "the watermark generator of '%s' went back from %d to %d; watermarks only grow, so this one and "
                "others like it have no effect",
                self._name,
                self.emitted,
                watermark,
            )

    def mark_idle(self) -> None:
        if not self.idle:
            self.idle = True
            self.forward_idle(True)

    def mark_active(self) -> None:
        if self.idle:
            self.idle = False
            self.forward_idle(False)

    # -- called by generated code and by tasks ------------------------------------------------------------------

    def heard(self) -> None:
        """The first record since the stage was last asked."""
        self.quiet = False
        self.quiet_since = None
        self.mark_active()

    def periodic(self) -> None:
        """Ask for a watermark."""
        if self.generator is not None:
            self.generator.on_periodic_emit(self)
        elif self.max != NO_TIME:
            watermark = self.max - self._strategy.delay_ms - 1
            if watermark > self.emitted:
                self.emit_watermark(max(watermark, NO_TIME))

    def upstream(self, watermark: int) -> None:
        """Watermarks from further up end here, except the last (rule 5)."""
        if watermark == MAX_TIME:
            self.periodic()
            self.emit_watermark(MAX_TIME)

    def fallen_silent(self, quiet_ms: int) -> None:
        """The split has had no record for so long."""
        timeout = self._strategy.idle_timeout_ms
        if timeout is not None and quiet_ms >= timeout:
            self.mark_idle()

    def probe(self) -> int | None:
        """Look whether the subtask is idle; the time at which to look again, if there is one (rule 8)."""
        timeout = self._strategy.idle_timeout_ms
        if timeout is None or self.idle:
            return None
        now = clock.now()
        if not self.quiet:
            self.quiet = True
            return now + timeout
        if self.quiet_since is None:
            self.quiet_since = now
        if now - self.quiet_since >= timeout:
            self.mark_idle()
            return None
        return self.quiet_since + timeout

    # -- state --------------------------------------------------------------------------------------------------

    def save(self) -> GeneratorState:
        """For a checkpoint."""
        generator = b""
        if self.generator is not None:
            try:
                generator = dumps(self.generator)
            except Exception as error:
                msg = f"the watermark generator of '{self._name}' cannot be saved"
                raise UserFunctionError(
                    msg,
                    operator=self._name,
                    cause=told(error),
                    hint="keep plain values in the generator: it is part of every checkpoint",
                ) from error
        return GeneratorState(self.max, self.emitted, self.idle, generator)

    def load(self, state: GeneratorState | None) -> None:
        """Go on as `save` found it; None is the beginning."""
        if state is None:
            state = GeneratorState()
        self.max, self.emitted, self.idle = state.max_timestamp, state.watermark, state.idle
        self.quiet = True
        if self._strategy.generator_supplier is not None:
            self.generator = pickle.loads(state.generator) if state.generator else self._supply()


def _nowhere(value: Any) -> None:
    return
