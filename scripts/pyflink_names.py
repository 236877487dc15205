"""Writes down the public names of an installed PyFlink: what `millstream/pyflink/api.txt` holds.

Names and parameters only, read from the syntax tree, so nothing of PyFlink is imported. Run it when a
new PyFlink comes out: python scripts/pyflink_names.py .../site-packages/pyflink > millstream/pyflink/api.txt
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

# Parts of the API; the rest (table, fn_execution, ...) is not the DataStream API or not public.
PACKAGES = ("common", "datastream", "metrics")
# Classes that PyFlink's own operators are made of, and leftovers.
INTERNAL = {
    "long_to_int_with_bit_mixing",
    "mod_inverse",
    "AccumulateType",
    "FunctionWrapper",
    "Min",
    "NullByteKeySelector",
    "PassThroughAllWindowFunction",
    "PassThroughWindowFunction",
    "ReduceFunctionWrapper",
    "WindowOperationDescriptor",
}


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The parameters by name; `*` marks the variable ones, `=` those with a default."""
    found = function.args
    plain = [argument.arg for argument in (*found.posonlyargs, *found.args)]
    optional = len(found.defaults)
    names = [
        name + ("=" if at >= len(plain) - optional else "")
        for at, name in enumerate(plain)
        if name not in ("self", "cls")
    ]
    if found.vararg:
        names.append("*" + found.vararg.arg)
    names += [argument.arg + "=" for argument in found.kwonlyargs]
    if found.kwarg:
        names.append("**" + found.kwarg.arg)
    return ", ".join(names)


def of_class(definition: ast.ClassDef, outer: str = "") -> Iterator[str]:
    """The lines of a class and of the classes inside it."""
    name = f"{outer}{definition.name}"
    yield f"class {name}"
    inner = []
    for item in definition.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            if item.name == "__init__":
                given = parameters(item)
                # What is made from Java's objects is made by PyFlink alone.
                if "j_" not in given:
                    yield f"  __init__({given})"
            elif not item.name.startswith("_") and "java" not in item.name:
                yield f"  {item.name}({parameters(item)})"
        elif isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
            if not item.targets[0].id.startswith("_"):
                yield f"  {item.targets[0].id}"
        elif isinstance(item, ast.ClassDef) and not item.name.startswith("_"):
            inner.append(item)
    for one in inner:
        if one.name not in INTERNAL:
            yield from of_class(one, f"{name}.")


def of_module(tree: ast.Module, package: bool) -> Iterator[str]:
    """The lines of a module; of a package, the names it passes on."""
    if package:
        exported = {
            item.value
            for node in ast.walk(tree)
            if isinstance(node, ast.List | ast.Call)
            for item in (node.elts if isinstance(node, ast.List) else node.args)
            if isinstance(item, ast.Constant) and isinstance(item.value, str)
        }
        yield from sorted(f"from {name}" for name in exported if name.isidentifier())
        return
    for node in tree.body:
        public = getattr(node, "name", "_")
        if public.startswith(("_", "Internal")) or public in INTERNAL:
            continue
        if isinstance(node, ast.ClassDef):
            yield from of_class(node)
        elif isinstance(node, ast.FunctionDef):
            yield f"def {public}({parameters(node)})"


def main(root: Path) -> None:
    """Print everything."""
    print("# Written by scripts/pyflink_names.py: the public names of PyFlink 2.3.")
    for path in sorted(file for part in PACKAGES for file in (root / part).rglob("*.py")):
        module = ".".join(path.relative_to(root.parent).with_suffix("").parts)
        if ".tests" in module:
            continue
        package = module.endswith(".__init__")
        lines = list(of_module(ast.parse(path.read_text(encoding="utf-8")), package))
        print(f"\n[{module.removesuffix('.__init__')}]", *lines, sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
