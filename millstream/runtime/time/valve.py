"""How far event time has come at a vertex (Flink's `StatusWatermarkValve`).

Each input has one channel per sender: a split of a source, or a subtask. An input's watermark is the minimum over its
active channels and never goes back; idle channels are left out, and one that wakes up behind is left out until it has
caught up (rule 6). The vertex's watermark is the minimum over its inputs that are not idle.

A source of whose splits none comes to a subtask counts as idle there, from the start (rule 66): there may be fewer of
them than subtasks, or they have ended. So does an input that brings no watermarks at all, such as a loop's beginning.

```
          channel 0 ── 50 ──┐
input 0   channel 1 ── idle ┼─▶ 50 ─┐
          channel 2 ── 70 ──┘       ├─▶ 40
input 1   channel 0 ── 40 ─────▶ 40 ┘
```
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.common.constants import MAX_TIME, NO_TIME
from millstream.runtime.wire.rows import sender_of

__all__ = ["NOBODY", "InputEdge", "Valve"]

# Stands for a source while none of its splits comes to the subtask.
NOBODY = -1

Name = tuple[int, int]


@dataclass(frozen=True)
class InputEdge:
    """An edge that brings watermarks. `name` is the same in every run of the program; `senders` are, for each subtask
    of the vertex, the subtasks that send to it, of `source_parallelism` that there are."""

    id: int
    index: int
    name: str
    splits: bool
    frame: bool
    senders: tuple[tuple[int, ...], ...]
    source_parallelism: int

    def channels_of(self, subtask: int) -> tuple[int, ...]:
        """The channels that a subtask can know of from the start: splits come and go."""
        return (NOBODY,) if self.splits else self.senders[subtask]

    def brings(self, channel: int, subtask: int) -> bool:
        """True if a channel comes to a subtask."""
        if channel == NOBODY or self.frame:
            return True
        if not self.splits:
            return channel in self.senders[subtask]
        # Splits go round the subtasks; the end of a source comes from the subtasks themselves.
        return sender_of(channel, self.source_parallelism) in self.senders[subtask]


class _Channel:
    __slots__ = ("active", "aligned", "watermark")

    def __init__(self, watermark: int = NO_TIME, active: bool = True) -> None:
        self.watermark = watermark
        self.active = active
        self.aligned = active


class _Input:
    """One input of a vertex; its channels by edge and number."""

    __slots__ = ("channels", "idle", "watermark")

    def __init__(self) -> None:
        self.channels: dict[Name, _Channel] = {}
        self.watermark = NO_TIME
        self.idle = True

    def advance(self, name: Name, watermark: int) -> None:
        channel = self._channel(name)
        if not channel.active or watermark <= channel.watermark:
            return
        channel.watermark = watermark
        if watermark >= self.watermark:
            channel.aligned = True
        self._find_minimum()

    def _find_minimum(self) -> None:
        aligned = [channel.watermark for channel in self.channels.values() if channel.aligned]
        if aligned:
            self.watermark = max(self.watermark, min(aligned))

    def sleep(self, name: Name) -> None:
        channel = self._channel(name)
        if not channel.active:
            return
        channel.active = channel.aligned = False
        if any(channel.active for channel in self.channels.values()):
            self._find_minimum()
            return
        # Nobody is left to wait for: everything that was promised holds (rule 6).
        self.watermark = max(
            self.watermark, *(channel.watermark for channel in self.channels.values())
        )
        self.idle = True

    def wake(self, name: Name) -> None:
        channel = self._channel(name)
        if channel.active:
            return
        channel.active = True
        channel.aligned = channel.watermark >= self.watermark
        self.idle = False

    def announce(self, name: Name) -> None:
        self._channel(name)

    def _channel(self, name: Name) -> _Channel:
        """A channel, which may be new: then it holds back what has not been promised yet."""
        channel = self.channels.get(name)
        if channel is None:
            self.channels.pop((name[0], NOBODY), None)
            channel = self.channels[name] = _Channel()
            self.idle = False
        return channel

    def remove(self, name: Name) -> None:
        """A split has ended, but not its source."""
        if name not in self.channels:
            return
        self.sleep(name)
        channel = self.channels.pop(name)
        if not any(edge == name[0] for edge, _ in self.channels):
            self.channels[name[0], NOBODY] = channel

    def replace_splits(self, edge: InputEdge, channels: dict[int, _Channel], subtask: int) -> None:
        """The splits of a source as they were saved, of which another layout may bring others to the subtask."""
        del self.channels[edge.id, NOBODY]
        for number, channel in channels.items():
            if number != NOBODY and edge.brings(number, subtask):
                self.channels[edge.id, number] = channel
        if not any(known == edge.id for known, _ in self.channels):
            promised = channels.get(NOBODY, _Channel())
            self.channels[edge.id, NOBODY] = _Channel(promised.watermark, active=edge.frame)

    def settle(self) -> None:
        """The channels have been put there by others."""
        self.idle = not any(channel.active for channel in self.channels.values())


class Valve:
    """All inputs of one vertex's subtask."""

    def __init__(self, inputs: int) -> None:
        self._inputs = [_Input() for _ in range(inputs)]
        self.watermark = NO_TIME
        self.idle = False

    def expect(self, edge: InputEdge, subtask: int) -> None:
        """The channels of an edge that are known from the start; none of a source, whose splits are announced."""
        of_input = self._inputs[edge.index]
        for channel in edge.channels_of(subtask):
            # A frame has no splits that could be missing: until it brings something it may still do so.
            of_input.channels[edge.id, channel] = _Channel(active=edge.frame or not edge.splits)
        of_input.settle()
        self.idle = all(each.idle for each in self._inputs)

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
        of_input = self._inputs[index]
        of_input.announce((edge, channel))
        of_input.wake((edge, channel))
        of_input.advance((edge, channel), MAX_TIME)
        self._combine()

    def _combine(self) -> None:
        active = [each.watermark for each in self._inputs if not each.idle]
        self.idle = not active
        lowest = min(active) if active else max(each.watermark for each in self._inputs)
        if lowest > self.watermark:
            self.watermark = lowest

    def waits_for_rows(self, edge: InputEdge) -> bool:
        """True if nothing has come of a frame yet that says how far it is."""
        return (edge.id, NOBODY) in self._inputs[edge.index].channels

    # -- state ----------------------------------------------------------------------------------------------

    def save(self, names: dict[int, str]) -> list[Any]:
        """As plain values; edges under the names that they have in every run."""
        return [
            self.watermark,
            [
                [
                    each.watermark,
                    [
                        [names[edge], channel, c.watermark, c.active, c.aligned]
                        for (edge, channel), c in each.channels.items()
                    ],
                ]
                for each in self._inputs
            ],
        ]

    def load(self, saved: list[Any], edges: dict[str, InputEdge], subtask: int) -> None:
        """What `save` gave, in a subtask of the same layout; the senders may have another one now."""
        self.watermark = saved[0]
        for of_input, (watermark, channels) in zip(self._inputs, saved[1], strict=True):
            of_input.watermark = watermark
            by_edge: dict[str, dict[int, _Channel]] = {}
            for name, number, at, active, aligned in channels:
                channel = _Channel(at, active)
                channel.aligned = aligned
                by_edge.setdefault(name, {})[number] = channel
            for name, former in by_edge.items():
                if name not in edges:
                    continue
                edge = edges[name]
                if edge.splits:
                    of_input.replace_splits(edge, former, subtask)
                elif former.keys() == set(edge.channels_of(subtask)):
                    of_input.channels.update({(edge.id, number): c for number, c in former.items()})
                else:
                    least = min(channel.watermark for channel in former.values())
                    for number in edge.channels_of(subtask):
                        of_input.channels[edge.id, number] = _Channel(least)
            of_input.settle()
        self.idle = all(each.idle for each in self._inputs)

    def merge(self, saved: list[list[Any]], edges: dict[str, InputEdge], subtask: int) -> None:
        """What `save` gave in all subtasks of another layout. No subtask goes on further than the last one had come.
        A split has the same number in every layout; of senders that are subtasks nobody knows which is which now, so
        each begins with the least."""
        self.watermark = min(part[0] for part in saved)
        for index, of_input in enumerate(self._inputs):
            parts = [s[1][index] for s in saved]
            of_input.watermark = min(part[0] for part in parts)
            by_edge: dict[str, dict[int, _Channel]] = {}
            for _, channels in parts:
                for name, number, at, active, _ in channels:
                    former = by_edge.setdefault(name, {})
                    channel = former.setdefault(number, _Channel(at, active))
                    channel.watermark = min(channel.watermark, at)
                    channel.active = channel.aligned = channel.active and active
            for name, former in by_edge.items():
                if name not in edges:
                    continue
                edge = edges[name]
                if edge.splits:
                    of_input.replace_splits(edge, former, subtask)
                else:
                    least = min(channel.watermark for channel in former.values())
                    for number in edge.channels_of(subtask):
                        of_input.channels[edge.id, number] = _Channel(least)
            of_input.settle()
        self.idle = all(each.idle for each in self._inputs)
