"""What the time checker reads, and what its operators do: known to the job and to its oracle, and free of Millstream.

Ids are 0, 1, 2 and so on, in one split. Everything else follows from the id: the key; the time, which goes on by 10 ms
with every id, now and then by much more, and from which most records are a little behind, some so far that windows have
to fire again, a few so far that it is too late; and whether the record is followed by a watermark.
"""

from __future__ import annotations

from zlib import crc32

from tests.properties.time_reference import Window

KEYS = 13
GROUPS = 4
STEP = 10
BOUND = 120  # how far watermarks are behind the largest time
PER_EPOCH = 120

WINDOWS = {
    # Tumbling and sliding windows and sessions with their own trigger have ways of their own.
    "tumbling": Window(("tumbling", 400, 0), lateness=250, function="reduce"),
    "sliding": Window(("sliding", 600, 200, 50), lateness=150, function="aggregate"),
    "session": Window(("session", 150), function="aggregate"),
    # These take the general one: all records, a trigger with state, state per window, windows that merge.
    "firings": Window(("tumbling", 500, 30), lateness=300, counts_firings=True),
    "grown": Window(("session", 90), ("continuous", 200), lateness=200),
}
SECOND = Window(("tumbling", 1000, 0), function="reduce")
"""Over the results of `session`, which are never late."""

TIMER_AHEAD = 260
TIMER_DELETED = 280
"""Every third record deletes the timer that another one, two steps later, may have set."""


def chance(number: int, what: str) -> int:
    """0 to 999, always the same."""
    return crc32(f"{what} {number}".encode()) % 1000


def time_of(number: int) -> int:
    now = number * STEP + number // 97 * 1500
    kind, much = chance(number, "kind"), chance(number, "much")
    if kind < 500:
        return now
    behind = 100 if kind < 800 else 500 if kind < 950 else 2000
    return now - behind * much // 1000 // STEP * STEP


def event_of(number: int) -> tuple:
    """A record as the operators see it: key, number, time, nothing."""
    return f"k{chance(number, 'key') % KEYS}", number, time_of(number), None


def marked(number: int) -> bool:
    """If a watermark follows the record."""
    return chance(number, "mark") < 200


def regrouped(value: tuple) -> tuple:
    """A result with another key, for the second window."""
    return f"g{int(value[0][1:]) % GROUPS}", value[1], value[2], None


def timer_again(time: int) -> int | None:
    """The timer that a timer sets, at most one after the other: it may be behind the watermark already."""
    return time + 5 if time % STEP == 0 else None


def line(name: str, value: object, timestamp: object) -> str:
    return f"{name} {value} {timestamp}"
