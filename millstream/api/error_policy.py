"""What an operator does with a record that its function cannot process: a *poison record*.

By default the job fails, and names the record. `skip` leaves it out and counts it; `dead_letter` sends it to a side
output with everything one needs to find, repair and replay it. Either may have a cap: when the share of bad records
grows beyond it, something else is wrong, and the job fails. The share is that of all records, or of 100 if there are
fewer; with a cap of 0 the first bad record is one too many.

Nothing of a bad record remains: no result that it gave before it failed, no change of keyed, operator or broadcast
state, no timer. What a function keeps in its own attributes is its own affair. A policy is about records: when a
timer or a window that has become due fails, the job does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from millstream.api.output_tag import OutputTag
from millstream.errors import InvalidArgument
from millstream.v import keep, kept

__all__ = ["DeadLetter", "ErrorPolicy"]

_KINDS = ("fail", "skip", "dead_letter")


class DeadLetter(NamedTuple):
    """A record that could not be processed.

    `source` and `position` say where it came from: the split and the place in it if the operator reads a source
    directly, else the channel and the place in its buffer; where batch mode has sorted the records by their keys, the
    position is -1. `data` is the record as it came, pickled; empty if it cannot be pickled.
    """

    operator: str
    source: str
    position: int
    record: str
    data: bytes
    error: str
    traceback: str


@kept
def _letter(*parts: Any) -> DeadLetter:
    return DeadLetter(*parts)


keep(DeadLetter, tuple, _letter)


@dataclass(frozen=True)
class ErrorPolicy:
    """For `DataStream.on_error`.

    >>> ErrorPolicy.skip(max_share=0.01)
    ErrorPolicy(kind='skip', tag=None, max_share=0.01)
    """

    kind: str
    tag: OutputTag | None = None
    max_share: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in _KINDS or (self.kind == "dead_letter") != (self.tag is not None):
            msg = "there is no such error policy"
            hint = "ErrorPolicy.fail(), .skip() or .dead_letter(tag)"
            raise InvalidArgument(msg, got=f"{self.kind!r}, tag {self.tag!r}", hint=hint)
        share = self.max_share
        if share is None:
            return
        if isinstance(share, bool) or not (isinstance(share, (int, float)) and 0 <= share <= 1):
            msg = "max_share is the share of bad records that is borne, from 0 to 1"
            raise InvalidArgument(msg, got=repr(share))

    @staticmethod
    def fail() -> ErrorPolicy:
        """The job fails at the first bad record; the default."""
        return ErrorPolicy("fail")

    @staticmethod
    def skip(max_share: float | None = None) -> ErrorPolicy:
        """Bad records are left out and counted."""
        return ErrorPolicy("skip", None, max_share)

    @staticmethod
    def dead_letter(tag: OutputTag, max_share: float | None = None) -> ErrorPolicy:
        """Bad records go to a side output, each as a `DeadLetter`.

        >>> ErrorPolicy.dead_letter(OutputTag("bad")).kind
        'dead_letter'
        """
        if not isinstance(tag, OutputTag):
            msg = "dead_letter needs the OutputTag of a side output"
            raise InvalidArgument(msg, got=type(tag).__name__, hint='OutputTag("dead-letters")')
        return ErrorPolicy("dead_letter", tag, max_share)


def as_policy(policy: Any) -> ErrorPolicy:
    """A policy, also given as "fail" or "skip"."""
    if isinstance(policy, ErrorPolicy):
        return policy
    if policy in ("fail", "skip"):
        return ErrorPolicy(policy)
    msg = "on_error needs an ErrorPolicy"
    raise InvalidArgument(
        msg, got=repr(policy), hint="ErrorPolicy.fail(), .skip() or .dead_letter(tag)"
    )
