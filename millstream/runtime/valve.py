"""How far event time has come at a vertex (Flink's `StatusWatermarkValve`).

Each input has one channel per sender: a split of a source, or a subtask. An input's watermark is the minimum over its
active channels and never goes back; idle channels are left out, and one that wakes up behind is left out until it has
caught up (rule 6). The vertex's watermark is the minimum over its inputs that are not idle.

```
          channel 0 ── 50 ──┐
input 0   channel 1 ── idle ┼─▶ 50 ─┐
          channel 2 ── 70 ──┘       ├─▶ 40
input 1   channel 0 ── 40 ─────▶ 40 ┘
```
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millstream.runtime.clock import MAX_TIME, NO_TIME

__all__ = ["InputEdge", "Valve"]

# Stands for a source's splits while there is none: nothing known of it may be overtaken.
NOBODY = -1

Name = tuple[int, int]


@dataclass(frozen=True)
class InputEdge:
    """An edge that brings watermarks. `name` is the same in every run of the program; `senders` are, for each subtask
    of the vertex, the channels that send to it, none if they are splits, which come and go."""

    id: int
    index: int
    name: str
    splits: bool
    frame: bool
    senders: tuple[tuple[int, ...], ...]

    def channels_of(self, subtask: int) -> tuple[int, ...]:
        """The channels that a subtask can know of from the start."""
        return self.senders[subtask] if self.senders else ()


class _Channel:
    __slots__ = ("active", "aligned", "watermark")

    def __init__(self, watermark: int = NO_TIME) -> None:
        self.watermark = watermark
        self.active = True
        self.aligned = True


class _Input:
    """One input of a vertex; its channels by edge and number."""

    __slots__ = ("channels", "idle", "watermark")

    def __init__(self) -> None:
        self.channels: dict[Name, _Channel] = {}
        self.watermark = NO_TIME
        self.idle = False

    def advance(self, name: Name, watermark: int) -> None:
        channel = self.channels.setdefault(name, _Channel())
        if not channel.active or watermark <= channel.watermark:
            return
        channel.watermark = watermark
        if watermark >= self.watermark:
            channel.aligned = True
        self._find_minimum()

    def _find_minimum(self) -> None:
        aligned = [one.watermark for one in self.channels.values() if one.aligned]
        if aligned:
            self.watermark = max(self.watermark, min(aligned))

    def sleep(self, name: Name) -> None:
        channel = self.channels.setdefault(name, _Channel())
        if not channel.active:
            return
        channel.active = channel.aligned = False
        if any(one.active for one in self.channels.values()):
            self._find_minimum()
            return
        # Nobody is left to wait for: everything that was promised holds (rule 6).
        self.watermark = max(self.watermark, *(one.watermark for one in self.channels.values()))
        self.idle = True

    def wake(self, name: Name) -> None:
        channel = self.channels.setdefault(name, _Channel())
        if channel.active:
            return
        channel.active = True
        channel.aligned = channel.watermark >= self.watermark
        self.idle = False

    def announce(self, name: Name) -> None:
        self.channels.pop((name[0], NOBODY), None)
        if name not in self.channels:
            self.channels[name] = _Channel()
            self.idle = False

    def remove(self, name: Name) -> None:
        """A split has ended, but not its source: what the last one has promised stays."""
        channel = self.channels.pop(name, None)
        if channel is None:
            return
        if not any(edge == name[0] for edge, _ in self.channels):
            self.channels[name[0], NOBODY] = channel
        if all(not one.active for one in self.channels.values()):
            self.idle = True
        self._find_minimum()


class Valve:
    """All inputs of one vertex's subtask."""

    def __init__(self, inputs: int) -> None:
        self._inputs = [_Input() for _ in range(inputs)]
        self.watermark = NO_TIME
        self.idle = False

    def expect(self, index: int, edge: int, channels: Sequence[int]) -> None:
        """The channels of an edge that are known from the start; none of a source, whose splits are announced."""
        known = self._inputs[index].channels
        for channel in channels or [NOBODY]:
            known[edge, channel] = _Channel()

    def advance(self, index: int, edge: int, channel: int, watermark: int) -> None:
        """A channel's watermark has moved on."""
        self._inputs[index].advance((edge, channel), watermark)
        self._combine()

    def sleep(self, index: int, edge: int, channel: int) -> None:
        """A channel is idle."""
        self._inputs[index].sleep((edge, channel))
        self._combine()

    def wake(self, index: int, edge: int, channel: int) -> None:
        """A channel is active again."""
        self._inputs[index].wake((edge, channel))
        self._combine()

    def announce(self, index: int, edge: int, channel: int) -> None:
        """A source has a new split, which has promised nothing yet."""
        self._inputs[index].announce((edge, channel))
        self._combine()

    def remove(self, index: int, edge: int, channel: int) -> None:
        """A split has ended."""
        self._inputs[index].remove((edge, channel))
        self._combine()

    def end(self, index: int, edge: int, channel: int) -> None:
        """A channel has ended together with its source."""
        one = self._inputs[index]
        one.announce((edge, channel))
        one.wake((edge, channel))
        one.advance((edge, channel), MAX_TIME)
        self._combine()

    def _combine(self) -> None:
        active = [one.watermark for one in self._inputs if not one.idle]
        self.idle = not active
        lowest = min(active) if active else max(one.watermark for one in self._inputs)
        if lowest > self.watermark:
            self.watermark = lowest

    # -- state ----------------------------------------------------------------------------------------------

    def save(self, names: dict[int, str]) -> list[Any]:
        """As plain values; edges under the names that they have in every run."""
        return [
            self.watermark,
            [
                [
                    one.watermark,
                    [
                        [names[edge], channel, c.watermark, c.active, c.aligned]
                        for (edge, channel), c in one.channels.items()
                    ],
                ]
                for one in self._inputs
            ],
        ]

    def load(self, saved: list[Any], edges: dict[str, int]) -> None:
        """What `save` gave, in a subtask of the same layout; the senders may have another one now."""
        self.watermark = saved[0]
        for one, (watermark, channels) in zip(self._inputs, saved[1], strict=True):
            one.watermark = watermark
            by_edge: dict[int, dict[int, _Channel]] = {}
            for name, number, at, active, aligned in channels:
                if name in edges:
                    channel = _Channel(at)
                    channel.active, channel.aligned = active, aligned
                    by_edge.setdefault(edges[name], {})[number] = channel
            for edge, found in by_edge.items():
                expected = {number for e, number in one.channels if e == edge}
                if expected in ({NOBODY}, found.keys()):
                    del one.channels[edge, expected.pop()]
                    one.channels.update({(edge, number): c for number, c in found.items()})
                else:
                    least = min(channel.watermark for channel in found.values())
                    one.channels.update({(edge, number): _Channel(least) for number in expected})
            one.idle = bool(one.channels) and not any(c.active for c in one.channels.values())
        self.idle = all(one.idle for one in self._inputs)

    def merge(self, saved: list[list[Any]], edges: dict[str, int], of_splits: set[int]) -> None:
        """What `save` gave in all subtasks of another layout. No subtask goes on further than the last one had come.
        A split has the same number in every layout; of senders that are subtasks nobody knows which is which now, so
        each begins with the least."""
        self.watermark = min(one[0] for one in saved)
        for index, one in enumerate(self._inputs):
            parts = [s[1][index] for s in saved]
            one.watermark = min(part[0] for part in parts)
            least: dict[int, int] = {}
            found: dict[Name, _Channel] = {}
            for _, channels in parts:
                for name, number, at, active, _ in channels:
                    edge = edges.get(name)
                    if edge is None:
                        continue
                    least[edge] = min(at, least.get(edge, MAX_TIME))
                    if edge in of_splits and number != NOBODY:
                        channel = found.setdefault((edge, number), _Channel(at))
                        channel.watermark = min(channel.watermark, at)
                        channel.active = channel.active and active
            for edge in of_splits & {e for e, _ in found}:
                one.channels.pop((edge, NOBODY), None)
            one.channels.update(found)
            for (edge, number), channel in one.channels.items():
                if (edge, number) not in found:
                    channel.watermark = least.get(edge, NO_TIME)
                channel.aligned = channel.active
            one.idle = bool(one.channels) and not any(c.active for c in one.channels.values())
        self.idle = all(one.idle for one in self._inputs)
