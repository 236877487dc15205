"""Iterations on the driver: what each loop reads next. The tasks' half is [`feedback.py`](../operators/feedback.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from millstream.checkpoint.manifest import Feedback, FeedbackFile
from millstream.graph.operators import FeedbackOp
from millstream.graph.stream_graph import StreamGraph
from millstream.runtime.wire.ranges import SourceSpec, SplitRange, SubtaskRanges
from millstream.runtime.wire.reports import SplitProgress

__all__ = ["Loops", "fed_back_to"]


class Loops:
    """The driver's half: what each loop reads in the next epoch. One thread uses it at a time."""

    def __init__(self, specs: Sequence[SourceSpec]) -> None:
        self._specs = specs
        self._files: Feedback = {}

    def __bool__(self) -> bool:
        return bool(self._specs)

    @property
    def pending(self) -> Feedback:
        """What has been fed back and not been read."""
        return self._files

    def take(self, feedback: Feedback) -> None:
        """A checkpoint is complete, or the job goes on from one: this is what it feeds back."""
        # Of loops that the program no longer has, the user has allowed to leave everything behind.
        own = {spec.uid for spec in self._specs}
        self._files = {uid: files for uid, files in feedback.items() if files and uid in own}

    def ranges(self, *, ended: bool) -> list[SubtaskRanges]:
        """All that was fed back, spread over the subtasks of the loops' sources."""
        result: list[SubtaskRanges] = []
        for spec in self._specs:
            by_subtask: dict[int, list[SplitRange]] = {}
            for channel, file in enumerate(self._files.get(spec.uid, ())):
                # Never said to have ended, never announced: nobody waits for the watermarks of a loop.
                progress = SplitProgress(spec.uid, file.name, 0, file.records, False, 0)
                part = SplitRange(channel, progress)
                by_subtask.setdefault(channel % spec.parallelism, []).append(part)
            subtasks: Iterable[int] = range(spec.parallelism) if ended else sorted(by_subtask)
            result.extend(
                SubtaskRanges(spec.vertex, subtask, tuple(by_subtask.get(subtask, ())), ended)
                for subtask in subtasks
            )
        return result

    def empty_ranges(self, *, ended: bool) -> list[SubtaskRanges]:
        """The reading of an epoch that reads nothing."""
        return [
            SubtaskRanges(spec.vertex, subtask, (), ended)
            for spec in self._specs
            for subtask in range(spec.parallelism)
        ]


def fed_back_to(
    graph: StreamGraph,
) -> Callable[[Mapping[str, list[bytes]]], tuple[dict[str, list[bytes]], Feedback]]:
    """Tells what tasks have to commit from what they have fed back."""
    heads = {
        node.uid: graph.nodes[node.operator.head].uid
        for node in graph.nodes.values()
        if isinstance(node.operator, FeedbackOp)
    }
    read = msgspec.msgpack.Decoder(FeedbackFile)

    def apart(made: Mapping[str, list[bytes]]) -> tuple[dict[str, list[bytes]], Feedback]:
        feedback = {
            heads[u]: [read.decode(file) for file in m] for u, m in made.items() if u in heads
        }
        return {
            uid: committables for uid, committables in made.items() if uid not in heads
        }, feedback

    return apart
