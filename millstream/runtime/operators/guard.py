"""Poison records in generated code: the operator's own work in a `try`, its results handed on outside of it.

```
results = []
journal_4.begin()
try:
    results.append((None, map_2(v1)))
except Exception as error:
    journal_4.undo()
    bad_3(error, v1)
else:
    journal_4.end()
    for tag, v4 in results:
        ...
```

So what fails further down the chain is never taken for this operator's failure, and an operator that fails half-way
through its results has given none. What it has done to its state and timers is undone
([`journal.py`](../state/journal.py)): nothing of a bad record remains, but what a function object keeps in itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.api.error_policy import ErrorPolicy
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.codegen.bad_records import (
    BadRecords,
)

if TYPE_CHECKING:
    from millstream.runtime.codegen.builder import ChainBuilder

__all__ = ["compile_guarded"]


def compile_guarded(
    b: ChainBuilder, node: StreamNode, policy: ErrorPolicy, v: str, compile_own: Callable[[], None]
) -> None:
    """Write the lines of an operator that has an error policy."""
    code = b.code
    journal = code.bind(b.journals[node.id], "journal")
    handler = b.bad_records.setdefault(node.id, BadRecords(node, b.cursor))
    bad = code.bind(handler, "bad")
    results, error, tag, out = code.fresh("r"), code.fresh("e"), code.fresh("tag"), code.fresh()
    code.line(f"{bad}.seen += 1")
    code.line(f"{results} = []")
    # The letter has the record as it came, whatever the function has done to it.
    came = v if policy.tag is None else b.copied(node, v)
    code.line(f"{journal}.begin()")
    with code.block("try:"), b.capturing(node, results):
        compile_own()
        code.line("pass")
    with code.block(f"except Exception as {error}:"):
        code.line(f"{journal}.undo()")
        letter = code.fresh()
        code.line(f"{letter} = {bad}.take({error}, {came})")
        if policy.tag is not None:
            b.emit(node, letter, policy.tag.tag_id, own=True)
    with code.block("else:"):
        b.at(node, v)
        code.line(f"{journal}.end()")
        with b.each(f"for {tag}, {out} in {results}:"):
            with code.block(f"if {tag} is None:"):
                b.emit(node, out, own=True, fits=True)
            for name in b.tags_of(node):
                with code.block(f"elif {tag} == {name!r}:"):
                    b.emit(node, out, name, own=True, fits=True)
