"""What a name that is not there was meant to be: one of Flink's Java names, one of Spark's, or a slip.

The classes that programs call most inherit from `Guesses`. An error is an `AttributeError` too, so that `hasattr` and
`getattr` do what they always do.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

from millstream.errors import NameNotFound

__all__ = ["Guesses"]

# What calls of Spark and of older Flinks are here; names in another spelling are found without a list.
_ELSEWHERE = {
    "agg": "key_by(...).reduce(...), or key_by(...).window(...).aggregate(...)",
    "collect": "execute_and_collect()",
    "drop_duplicates": "key_by(...) and a function that remembers in state what it has seen",
    "execute": "execute() of the environment",
    "for_each": "add_sink(...)",
    "foreach": "add_sink(...)",
    "foreach_batch": "sink_to(SparkSink(...))",
    "from_elements": "from_collection([...])",
    "group_by": "key_by(...)",
    "group_by_key": "key_by(...)",
    "read_text_file": "from_source(FileSource.for_record_stream_format(...).build(), ...)",
    "select": "map(...), or project(...)",
    "set_checkpoint_storage_dir": "the option execution.checkpointing.dir of the configuration",
    "show": "print()",
    "start": "execute() of the environment",
    "take": "execute_and_collect(limit=...)",
    "time_window": 'key_by(...).window(TumblingEventTimeWindows.of("5 s"))',
    "where": "filter(...)",
    "with_column": "map(...)",
    "with_watermark": "assign_timestamps_and_watermarks(...)",
    "write": "sink_to(...)",
    "write_as_text": "sink_to(FileSink.for_row_format(...).build())",
    "write_stream": "sink_to(...)",
}


def snake_case(name: str) -> str:
    """A name as Python spells it.

    >>> snake_case("keyBy"), snake_case("setRuntimeMode"), snake_case("key_by")
    ('key_by', 'set_runtime_mode', 'key_by')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class Guesses:
    """Has an answer for names that it does not have.

    >>> class Stream(Guesses):
    ...     def key_by(self): ...
    >>> Stream().keyBy
    Traceback (most recent call last):
    millstream.errors.NameNotFound: [NAME_NOT_FOUND] Stream has no 'keyBy'; did you mean 'key_by'?
    """

    def _instead_of(self, name: str) -> tuple[str, str] | None:
        """Why the class has no call of this name, and what to do, if it knows."""
        return None

    if not TYPE_CHECKING:
        # Type checkers would take every name for a good one.
        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                # Whoever asks for these tries out what an object can do.
                msg = f"{type(self).__name__!r} object has no attribute {name!r}"
                raise AttributeError(msg, name=name, obj=self)
            raise _not_found(self, name)


def _not_found(asked: Guesses, name: str) -> NameNotFound:
    kind = type(asked)
    subject, spelled = f"{kind.__name__} has no {name!r}", snake_case(name)
    if hasattr(kind, spelled):
        return NameNotFound(f"{subject}; did you mean {spelled!r}?")
    known = asked._instead_of(spelled)
    if known is not None:
        return NameNotFound(f"{subject}: {known[0]}", hint=known[1])
    if spelled in _ELSEWHERE:
        return NameNotFound(subject, hint=f"here it is {_ELSEWHERE[spelled]}")
    names = [name for name in dir(kind) if not name.startswith("_")]
    near = difflib.get_close_matches(spelled, names, n=1)
    return NameNotFound(f"{subject}; did you mean {near[0]!r}?" if near else subject)
