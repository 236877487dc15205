"""What came of a change of a running job's parallelism."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RescaleResult"]


@dataclass(frozen=True)
class RescaleResult:
    """From which default parallelism to which a job was rescaled, and what that took.

    >>> print(RescaleResult(2, 4, 17, 1.25))
    from 2 to 4, from checkpoint 17, 1.2 s without an epoch
    >>> print(RescaleResult(2, 4, unchanged=("Source: Socket Stream",)))
    nothing has changed: Source: Socket Stream keep the parallelism that they have
    """

    before: int
    after: int
    checkpoint: int | None = None
    """The checkpoint that the job went on from; None if it had none yet, or if nothing had to change."""
    seconds: float = 0.0
    """From the end of the last epoch with the former parallelism to the end of the first with the new one."""
    savepoint: str | None = None
    """The savepoint that was taken before, if one was asked for."""
    unchanged: tuple[str, ...] = ()
    """If no operator was changed: those that the job has, by name. The program has set their parallelism, or they
    have it already."""

    def __str__(self) -> str:
        if self.unchanged:
            names = ", ".join(self.unchanged)
            return f"nothing has changed: {names} keep the parallelism that they have"
        start = "the beginning" if self.checkpoint is None else f"checkpoint {self.checkpoint}"
        return f"from {self.before} to {self.after}, from {start}, {self.seconds:.1f} s without an epoch"
