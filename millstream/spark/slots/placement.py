"""Which process runs a task. Knows processes by numbers only, and no clock: the daemon says what is busy and who has
waited for long.

A subtask has a home among the processes of its query. If that is busy, which is rare, its task waits for a moment, and
then runs elsewhere rather than nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping

from millstream.spark.slots.head import Head

__all__ = ["Placement"]


class Placement:
    """The homes of all subtasks, at most so many processes for each query.

    >>> placement = Placement(most=2)
    >>> [placement.home(Head("q", split, 0)) for split in (0, 1, 2, 0)]
    [0, 1, 0, 0]
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._homes: dict[str, dict[int, int]] = {}

    def home(self, task: Head) -> int:
        """The number of the process in which a subtask is at home."""
        homes = self._homes.setdefault(task.query, {})
        if task.split not in homes:
            load = dict.fromkeys(range(self._most), 0)
            for number in homes.values():
                load[number] += 1
            homes[task.split] = min(load, key=lambda number: (load[number], number))
        return homes[task.split]

    def choose(self, task: Head, running: Mapping[int, Head | None], *, waited: bool) -> int | None:
        """The number of the process that is to run a task, one that need not be there yet; None to wait. `running` has
        the processes of the task's query, and what each is doing."""
        if task.query:
            home = self.home(task)
            busy_with = running.get(home)
            if busy_with is None:
                return home
            # Of two functions in one Spark task each waits for the other: they never share a process.
            if busy_with.attempt != task.attempt and not waited:
                return None
        idle = [number for number, doing in running.items() if doing is None]
        if idle:
            return min(idle)
        first = self._most if task.query else 0
        return next(
            number for number in range(first, first + len(running) + 1) if number not in running
        )

    def forget(self, query: str) -> None:
        """A query has no process left."""
        self._homes.pop(query, None)
