"""Changes the modules that decide, one small thing at a time, and counts the changes that no test notices.

    python scripts/mutants.py                       all modules, 20 changes of each
    python scripts/mutants.py --each 50 valve       50 changes of the modules with `valve` in their name

The tests are collected once. A first run notes which test calls which function; then for every change a process is
forked, the changed function gets its new code, and the tests that call it run until one fails, the quickest first. So
a change costs what its tests cost and nothing is imported again. Code outside of functions is left alone.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import json
import mmap
import os
import random
import signal
import struct
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = """
    runtime.windows.operator runtime.windows.aligned runtime.windows.sessions runtime.windows.merging
    runtime.windows.simple runtime.time.valve runtime.time.timers runtime.time.watermarks runtime.task.failure
    runtime.driver.outputs runtime.driver.job_folder checkpoint.coordinator checkpoint.restore
    connectors.file.commit
""".split()
TESTS = "tests/unit tests/conformance tests/inprocess tests/simulation tests/properties tests/compat".split()
LONGEST = 60.0  # seconds after which a test that does not end counts as one that fails

_TIME = struct.Struct("d")
_SWAPPED: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


class Mutant:
    """One change of one function."""

    def __init__(self, module: str, function: str, line: int, what: str, tree: ast.Module) -> None:
        self.module = module
        self.function = function
        self.line = line
        self.what = what
        self.tree = tree

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.function}: {self.what}"

    def apply(self) -> None:
        """The function has its new code from now on, wherever it is bound."""
        made = importlib.import_module(f"millstream.{self.module}")
        new = _codes(compile(self.tree, made.__file__ or "", "exec"))[self.function]
        _functions(made)[self.function].__code__ = new


def _codes(code: CodeType) -> dict[str, CodeType]:
    found: dict[str, CodeType] = {}
    for one in code.co_consts:
        if isinstance(one, CodeType):
            found.setdefault(one.co_qualname, one)
            if (
                not one.co_flags & 0x2
            ):  # a class body, whose functions are found by name; nested ones are constants
                found |= _codes(one)
    return found


def _functions(module: Any) -> dict[str, FunctionType]:
    found: dict[str, FunctionType] = {}

    def look(space: Mapping[str, Any]) -> None:
        for value in space.values():
            one = getattr(value, "__func__", getattr(value, "fget", value))
            if isinstance(one, FunctionType) and one.__module__ == module.__name__:
                found.setdefault(one.__qualname__, one)
            elif isinstance(value, type) and value.__module__ == module.__name__:
                look(vars(value))

    look(vars(module))
    return found


def mutants(module: str) -> Iterator[Mutant]:
    """Every change of a module that is known here."""
    source = (ROOT / "millstream" / (module.replace(".", "/") + ".py")).read_text()
    tree = ast.parse(source)
    for path, function in _places(tree, ""):
        for steps, node in _walk(function):
            for what, new in _changes(node):
                changed = copy.deepcopy(tree)
                _replace(_follow(changed, path), steps, new)
                ast.fix_missing_locations(changed)
                yield Mutant(module, _name(tree, path), node.lineno, what, changed)


def _places(
    node: Any, prefix: str, path: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    for index, child in enumerate(node.body):
        if isinstance(child, ast.FunctionDef):
            yield (*path, index), child
        elif isinstance(child, ast.ClassDef):
            yield from _places(child, prefix + child.name + ".", (*path, index))


def _follow(tree: Any, path: tuple[int, ...]) -> Any:
    for index in path:
        tree = tree.body[index]
    return tree


def _name(tree: Any, path: tuple[int, ...]) -> str:
    names = []
    for index in path:
        tree = tree.body[index]
        names.append(tree.name)
    return ".".join(names)


def _walk(
    node: ast.AST, steps: tuple[tuple[str, int | None], ...] = ()
) -> Iterator[tuple[Any, Any]]:
    """The statements and expressions of a function's body, with the way to each."""
    for field, value in ast.iter_fields(node):
        if field in ("decorator_list", "returns", "args", "annotation"):
            continue
        for index, child in (
            [(None, value)] if isinstance(value, ast.AST) else list(_numbered(value))
        ):
            way = (*steps, (field, index))
            if hasattr(child, "lineno") and not isinstance(child, ast.Assert | ast.Raise):
                yield way, child
            if isinstance(child, ast.AST) and not isinstance(
                child, ast.Assert | ast.Raise | ast.JoinedStr
            ):
                yield from _walk(child, way)


def _numbered(value: Any) -> Iterator[tuple[int, ast.AST]]:
    if isinstance(value, list):
        yield from ((i, one) for i, one in enumerate(value) if isinstance(one, ast.AST))


def _replace(node: Any, steps: Any, new: ast.AST) -> None:
    for field, index in steps[:-1]:
        node = getattr(node, field) if index is None else getattr(node, field)[index]
    field, index = steps[-1]
    if index is None:
        setattr(node, field, new)
    else:
        getattr(node, field)[index] = new


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPPED:
        new: Any = copy.deepcopy(node)
        new.ops[0] = _SWAPPED[type(node.ops[0])]()
        yield f"{ast.unparse(node)} -> {ast.unparse(new)}", new
    elif isinstance(node, ast.BoolOp | ast.BinOp) and type(node.op) in _SWAPPED:
        new = copy.deepcopy(node)
        new.op = _SWAPPED[type(node.op)]()
        yield f"{ast.unparse(node)} -> {ast.unparse(new)}", new
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"{ast.unparse(node)} -> {ast.unparse(node.operand)}", node.operand
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield (
            f"{node.value} -> {not node.value}",
            ast.copy_location(ast.Constant(not node.value), node),
        )
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield (
            f"{node.value} -> {node.value + 1}",
            ast.copy_location(ast.Constant(node.value + 1), node),
        )
    elif isinstance(node, ast.If | ast.While):
        for value in (True, False) if isinstance(node, ast.If) else (False,):
            new = copy.deepcopy(node)
            new.test = ast.Constant(value)
            yield f"if {ast.unparse(node.test)} -> {value}", new
    elif _has_effect(node):
        yield f"without {ast.unparse(node)[:100]}", ast.copy_location(ast.Pass(), node)
    elif isinstance(node, ast.Continue):
        yield "continue -> break", ast.copy_location(ast.Break(), node)
    elif isinstance(node, ast.Break):
        yield "break -> continue", ast.copy_location(ast.Continue(), node)


def _has_effect(node: ast.AST) -> bool:
    """True for a statement that can be left out: a call, a change of something that others see."""
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Attribute | ast.Subscript)
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    return isinstance(node, ast.AugAssign | ast.Delete)


class Plugin:
    """Runs in pytest's place of running the tests."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.results: list[dict[str, Any]] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """The first run, then the changes."""
        modules = [m for m in MODULES if any(word in m for word in self.options.modules or [""])]
        modules = [m for m in modules if (ROOT / f"millstream/{m.replace('.', '/')}.py").exists()]
        calls, seconds = self._calls(session, modules)
        waiting = []
        for module in modules:
            known = [m for m in mutants(module) if m.function in _functions(_module(module))]
            random.Random(f"{self.options.seed} {module}").shuffle(known)
            waiting += known[: self.options.each]
        print(f"{len(session.items)} tests; {len(waiting)} changes in {len(modules)} modules")
        running: dict[int, tuple[Mutant, mmap.mmap]] = {}
        while waiting or running:
            while waiting and len(running) < self.options.jobs:
                mutant = waiting.pop()
                tests = sorted(
                    calls[mutant.module, mutant.function], key=lambda i: seconds.get(i, 0)
                )
                if not tests:
                    self._end(mutant, "no test")
                    continue
                last = mmap.mmap(-1, _TIME.size)
                _TIME.pack_into(last, 0, time.monotonic())
                running[_fork(session, tests, mutant, last, self.options.most)] = mutant, last
            time.sleep(0.05)
            for child, (mutant, last) in list(running.items()):
                done, status = os.waitpid(child, os.WNOHANG)
                if done:
                    self._end(mutant, "caught" if status else "survived")
                elif (
                    time.monotonic() - _TIME.unpack_from(last)[0] > LONGEST * self.options.patience
                ):
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    self._end(mutant, "caught")
                else:
                    continue
                del running[child]
        self._report(modules)
        return True

    def _calls(self, session: pytest.Session, modules: list[str]) -> tuple[Any, dict[int, float]]:
        """Which tests call which function, and how long each takes: found out in a process of its own."""
        files = {_module(m).__file__: m for m in modules}
        read, write = os.pipe()
        child = os.fork()
        if not child:
            _quiet()
            with os.fdopen(write, "w") as out:
                for number, item in enumerate(session.items):
                    seen: set[tuple[str, str]] = set()

                    def note(frame: Any, event: str, _: Any, seen: Any = seen) -> None:
                        if event == "call" and frame.f_code.co_filename in files:
                            seen.add((files[frame.f_code.co_filename], frame.f_code.co_qualname))

                    began = time.monotonic()
                    threading.setprofile(note)  # a job runs in a thread of its own
                    sys.setprofile(note)
                    _run(session, item)
                    sys.setprofile(None)
                    if not session.testsfailed:
                        out.write(json.dumps([number, time.monotonic() - began, list(seen)]) + "\n")
                    session.testsfailed = 0
            os._exit(0)
        os.close(write)
        calls, seconds = defaultdict(set), {}
        with os.fdopen(read) as lines:
            for line in lines:
                number, took, seen = json.loads(line)
                seconds[number] = took
                for module, function in seen:
                    calls[module, function.partition(".<locals>")[0]].add(number)
        os.waitpid(child, 0)
        return calls, seconds

    def _end(self, mutant: Mutant, how: str) -> None:
        self.results.append(
            {"module": mutant.module, "line": mutant.line, "what": str(mutant), "how": how}
        )
        if how != "caught":
            print(f"{how}: {mutant}", flush=True)

    def _report(self, modules: list[str]) -> None:
        print("\n| module | changes | caught | share |\n|---|---|---|---|")
        total = 0
        for module in modules:
            of = [r["how"] for r in self.results if r["module"] == module]
            caught = of.count("caught")
            total += caught
            print(f"| {module} | {len(of)} | {caught} | {100 * caught // max(1, len(of))}% |")
        print(
            f"| all | {len(self.results)} | {total} | {100 * total // max(1, len(self.results))}% |"
        )
        if self.options.json:
            Path(self.options.json).write_text(json.dumps(self.results, indent=1))


def _module(name: str) -> Any:
    return importlib.import_module(f"millstream.{name}")


def _fork(
    session: pytest.Session, tests: list[int], mutant: Mutant, last: mmap.mmap, most: float
) -> int:
    child = os.fork()
    if child:
        return child
    _quiet()
    status = 1
    until = time.monotonic() + most
    try:
        mutant.apply()
        for number in tests:
            _run(session, session.items[number])
            if session.testsfailed:
                break
            _TIME.pack_into(last, 0, time.monotonic())
            if time.monotonic() > until:
                status = 0
                break
        else:
            status = 0
    finally:
        os._exit(status)


def _run(session: pytest.Session, item: pytest.Item) -> None:
    # No next item: fixtures of modules are set up again for every test, so that any order will do.
    session.config.hook.pytest_runtest_protocol(item=item, nextitem=None)


def _quiet() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("modules", nargs="*", help="parts of names of modules")
    parser.add_argument("--each", type=int, default=20, help="changes of each module")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--patience", type=float, default=1.0, help="for a slow machine")
    parser.add_argument("--most", type=float, default=120, help="seconds for the tests of a change")
    parser.add_argument("--json", help="where to write every change and what became of it")
    parser.add_argument("--tests", nargs="*", default=TESTS)
    options = parser.parse_args()
    os.chdir(ROOT)
    os.environ.setdefault("MILLSTREAM_SEEDS", "60")
    return int(
        pytest.main(
            [
                "-q",
                "-m",
                "not spark",
                "-p",
                "no:cacheprovider",
                "-k",
                "not mutant and not is_caught",
                *options.tests,
            ],
            [Plugin(options)],
        )
    )


if __name__ == "__main__":
    raise SystemExit(main())
