"""Poison records in generated code: the operator's own work in a `try`, its results handed on outside of it.

```
bad_1.seen += 1
results = []
journal_1.begin()
try:
    mapped = map_1(record)
    results.append((None, mapped))
except Exception as error:
    journal_1.undo()
    bad_1.take(error, record)
else:
    journal_1.end()
    for tag, result in results:
        ...
```

So what fails further down the chain is never taken for this operator's failure, and an operator that fails half-way
through its results has given none. What it has done to its state and timers is undone
([`journal.py`](../state/journal.py)): nothing of a bad record remains, but what a function object keeps in itself.
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.api.error_policy import ErrorPolicy
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.codegen.bad_records import BadRecords
from millstream.runtime.codegen.builder import ChainBuilder
from millstream.runtime.state.journal import Journal

__all__ = ["write_guarded"]


def write_guarded(
    b: ChainBuilder,
    node: StreamNode,
    policy: ErrorPolicy,
    bad_records: BadRecords,
    undoing: Journal,
    record: str,
    write_own: Callable[[], None],
    write_after: Callable[[], None],
) -> None:
    """Write the lines of an operator that has an error policy; `write_own` writes what may fail, `write_after` what
    follows once the results have been handed on."""
    code = b.code
    journal, bad = code.bind(undoing, "journal"), code.bind(bad_records, "bad")
    results, error, tag, result = (
        code.fresh("results"),
        code.fresh("error"),
        code.fresh("tag"),
        code.fresh("result"),
    )
    code.line(f"{bad}.seen += 1")
    code.line(f"{results} = []")
    # The letter has the record as it came, whatever the function has done to it.
    came = record if policy.tag is None else b.copied(node, record)
    code.line(f"{journal}.begin()")
    with code.block("try:"), b.capturing(node, results) as captured:
        write_own()
    with code.block(f"except Exception as {error}:"):
        code.line(f"{journal}.undo()")
        if policy.tag is None:
            code.line(f"{bad}.take({error}, {came})")
        else:
            letter = code.fresh("letter")
            code.line(f"{letter} = {bad}.take({error}, {came})")
            b.emit(node, letter, policy.tag.tag_id, own=True)
    with code.block("else:"):
        b.at(node, record)
        code.line(f"{journal}.end()")
        with (
            b.stamped_by(captured.stamp),
            b.each(f"for {tag}, {result} in {results}:"),
        ):
            with code.block(f"if {tag} is None:"):
                b.emit(node, result, own=True, fits=True)
            for name in b.tree.tags_of(node):
                with code.block(f"elif {tag} == {name!r}:"):
                    b.emit(node, result, name, own=True, fits=True)
        write_after()
