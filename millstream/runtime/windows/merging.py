"""The live windows of a key whose windows merge, as sessions do (Flink's `MergingWindowSet`).

What is in a window stays where it was put first: each window has a *state namespace*, at first its own, and a window
that others have been merged into goes on with that of one of them. So only the contents of the others have to be moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from millstream.api.window_assigner import MergingWindowAssigner
from millstream.runtime.windows.contents import Namespaces, SingleValue

__all__ = ["MergingWindows", "OnMerge"]

OnMerge = Callable[[Any, Any, Sequence[tuple[Any, Any]], Any, Sequence[Any]], None]
"""Called with the new window, its namespace, the windows that are part of it now as (namespace, window), the namespace
of its contents and those of the others' contents."""


class _Merges(MergingWindowAssigner.MergeCallback):
    """Notes what an assigner wants to merge."""

    def __init__(self) -> None:
        self.groups: list[tuple[list[Any], Any]] = []

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        self.groups.append((list(to_be_merged), merge_result))


class MergingWindows:
    """The windows of the current key, once `load` has been called, by namespace."""

    def __init__(self, assigner: Any, namespaces: Namespaces, kept: SingleValue) -> None:
        self._merge_windows = assigner.merge_windows
        self._namespaces = namespaces
        self._kept = kept
        self._canon: Any = None
        self._before: Any = ()
        self._live: dict[Any, Any] = {}

    def load(self, canon: Any) -> None:
        """Go to a key."""
        self._canon = canon
        self._before = self._kept.get(canon) or ()
        self._live = dict(self._before)

    def save(self) -> None:
        """Keep what has changed."""
        now = tuple(self._live.items())
        if now != self._before:
            self._before = now
            if now:
                self._kept.put(self._canon, now)
            else:
                self._kept.drop(self._canon)

    def restore(self, canon: Any, namespace: Any) -> None:
        """A window of a former program."""
        self.load(canon)
        self._live[namespace] = namespace
        self.save()

    def state_of(self, namespace: Any) -> Any:
        """Where the contents of a window are; None if there is no such window."""
        return self._live.get(namespace)

    def retire(self, namespace: Any) -> None:
        """The window is over."""
        self._live.pop(namespace, None)

    def add(self, window: Any, on_merge: OnMerge) -> tuple[Any, Any]:
        """The window that a new one has become part of, perhaps itself, and its namespace."""
        of, live = self._namespaces.of, self._live
        namespace = of(window)
        result, result_namespace = window, namespace
        by_namespace = {other: self._namespaces.window(other) for other in live}
        by_namespace.setdefault(namespace, window)
        merges = _Merges()
        self._merge_windows(list(by_namespace.values()), merges)
        for group, merged in merges.groups:
            merged_namespace = of(merged)
            members = list(dict.fromkeys(of(part) for part in group))
            if namespace in members:
                result, result_namespace = merged, merged_namespace
            # The new window is in none of this: nothing is kept of it yet.
            known = [member for member in members if member in live]
            if not known or known == [merged_namespace]:
                continue
            states = [live.pop(member) for member in known]
            live[merged_namespace] = states[0]
            parts = [(part, by_namespace[part]) for part in known if part != merged_namespace]
            on_merge(merged, merged_namespace, parts, states[0], states[1:])
        live.setdefault(result_namespace, result_namespace)
        return result, result_namespace
