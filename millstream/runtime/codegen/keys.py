"""The key of a record in generated code: taken out of it, made canonical, made the current one."""

from __future__ import annotations

import dis
from types import FunctionType

from millstream.graph.operators import Key
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.base.recognize import subscript_of
from millstream.runtime.codegen.emitter import Emitter
from millstream.runtime.codegen.fields import field_getter
from millstream.runtime.wire.keys import canonical

__all__ = ["emit_canonical", "emit_current_key", "emit_key", "is_repeatable", "make_canonical"]


def emit_key(builder: Emitter, node: StreamNode, key: Key, variable: str) -> str:
    """Write the lines that take the key out of `variable`; the name of its variable."""
    code = builder.code
    brought = builder.brought_key(key)
    if brought is not None:
        return brought
    role = "key" if key.field is None else f"key {key.field!r}"
    builder.at(node, variable, role, key.declared_at)
    name = code.fresh("key")
    subscript = key.field if isinstance(key.field, int) else subscript_of(key.selector)
    if subscript is not None:
        code.line(f"{name} = {variable}[{subscript!r}]")
    elif isinstance(key.field, str):
        code.line(f"{name} = {code.bind(field_getter(key.field), 'field')}({variable})")
    else:
        code.line(
            f"{name} = {builder.bind_function(node, key.selector, 'get_key', 'key')}({variable})"
        )
    if key.key_type is not None:
        check = key.key_type.check_expression(name)
        if check is not None:
            convert = code.bind(key.key_type.convert, "convert")
            if check == "False":
                code.line(f"{name} = {convert}({name})")
            else:
                with code.block(f"if not ({check}):"):
                    code.line(f"{name} = {convert}({name})")
    return name


def emit_canonical(builder: Emitter, node: StreamNode, key: Key, variable: str) -> str:
    """As `emit_key`, then its canonical form: strings and ints are their own."""
    name = emit_key(builder, node, key, variable)
    make_canonical(builder, name)
    return name


def make_canonical(builder: Emitter, name: str) -> None:
    """Lines that put the canonical form of a key in its place."""
    code = builder.code
    with code.block(f"if type({name}) is not str and type({name}) is not int:"):
        code.line(f"{name} = {code.bind(canonical, 'canonical')}({name})")


# Builtins that give the same for the same, in every process; `hash` does not.
_SAME = frozenset(
    "abs bool bytes complex divmod float frozenset int isinstance len list max min ord repr round set "
    "sorted str sum tuple".split()
)
# What reads anything but the record, or changes something.
_OUTSIDE = ("DEREF", "CLOSURE", "CLASSDEREF", "STORE_", "DELETE_", "IMPORT", "YIELD", "NAME")


def is_repeatable(key: Key) -> bool:
    """True if a key can be taken out of a record a second time, and is the same: the selector looks at nothing but the
    record, constants and builtins. Any other may be random, or depend on what it has seen; its key travels with the
    record, which costs some 150 ns.

    >>> import random
    >>> is_repeatable(Key(lambda v: v[0].lower())), is_repeatable(Key(lambda v: random.random()))
    (True, False)
    """
    if key.field is not None or key.selector in (str, int, len):
        return True
    function = key.selector
    if type(function) is not FunctionType or function.__closure__ or function.__defaults__:
        return False
    for step in dis.get_instructions(function):
        name = step.opname
        if name == "LOAD_GLOBAL":
            if step.argval not in _SAME or step.argval in function.__globals__:
                return False
        elif name != "STORE_FAST" and any(part in name for part in _OUTSIDE):
            return False
    return True


def emit_current_key(
    builder: Emitter, node: StreamNode, key: Key, variable: str, context: str
) -> str:
    """Lines that take the key out of `variable` and make it the current one of `context`; the variable that has its
    canonical form."""
    name = emit_key(builder, node, key, variable)
    code = builder.code
    code.line(f"{context}.key = {name}")
    make_canonical(builder, name)
    code.line(f"{context}.canon = {name}")
    builder.at(node, variable)
    return name
