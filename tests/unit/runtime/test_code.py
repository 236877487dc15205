"""Generated source, and the note on each line of whose it is."""

import linecache
import traceback

import pytest

from millstream.runtime.codegen.code import MAX_DEPTH, Code, Location


def build(code, *exports):
    module = code.finish(list(exports))
    return module, module.build()


def test_bound_values_are_parameters_of_the_factory():
    code = Code("<test bound>")
    add = code.bind(lambda a, b: a + b, "add")
    with code.function("run", "x"):
        code.line(f"return {add}(x, {code.bind(40, 'n')})")
    module, (run,) = build(code, "run")
    assert module.source == (
        "# <test bound>\ndef make(add_1, n_1):\n    def run(x):\n        return add_1(x, n_1)\n    return (run,)\n"
    )
    assert run(2) == 42


def test_names_are_never_given_twice():
    code = Code("<test names>")
    names = [code.fresh(), code.fresh("key"), code.bind([], "key"), code.bind([], "key")]
    names += [code.fresh("key"), code.fresh(), code.name("key"), code.fresh("key")]
    assert names == ["record", "key", "key_1", "key_2", "key2", "record2", "key_3", "key3"]


def test_a_value_is_bound_once_and_so_is_a_method():
    class Counter:
        def up(self):
            pass

    code = Code("<test once>")
    one, other, counts = Counter(), Counter(), {}
    values = [one, one.up, one.up, other.up, counts, counts.get, counts.get, {}.get, counts, len]
    names = [code.bind(value, "bound").removeprefix("bound_") for value in values]
    assert "".join(names) == "1223455647"


def test_each_line_has_the_location_of_its_time():
    code = Code("<test lines>")
    one, two = Location(1, "run", "a"), Location(2, "key", "b")
    with code.function("run", "x"):
        code.location = one
        code.line("a = x")
        with code.block("if a:"):
            code.location = two
            code.line("b = 1")
        code.line("return a")
    module = code.finish(["run"])
    lines = module.source.splitlines()
    by_text = {lines[number - 1].strip(): place for number, place in module.locations.items()}
    assert by_text == {"a = x": one, "if a:": one, "b = 1": two, "return a": two}


def test_a_function_inside_a_function_comes_after_it_and_keeps_its_locations():
    code = Code("<test nested>")
    with code.function("outer", "x"):
        code.location = Location(1, "run", "x")
        code.line("inner(x)")
        with code.function("inner", "y"):
            code.location = Location(2, "run", "y")
            code.line("seen.append(y)".replace("seen", code.bind(seen := [], "seen")))
        code.location = Location(3, "run", "x")
        code.line("return 7")
    module, (outer,) = build(code, "outer")
    assert outer(5) == 7
    assert seen == [5]
    lines = module.source.splitlines()
    found = {lines[n - 1].strip(): place.node for n, place in module.locations.items()}
    assert found == {"inner(x)": 1, "seen_1.append(y)": 2, "return 7": 3}


def test_an_empty_function_is_valid():
    code = Code("<test empty>")
    with code.function("run", "x"):
        pass
    _, (run,) = build(code, "run")
    assert run(1) is None


def test_deep_says_when_to_go_on_elsewhere():
    code = Code("<test deep>")
    seen = []

    def nest(level):
        if code.deep:
            code.line("return x")
            return
        seen.append(level)
        with code.block("if x:"):
            nest(level + 1)

    with code.function("run", "x"):
        nest(0)
    _, (run,) = build(code, "run")
    assert run(1) == 1
    assert len(seen) == MAX_DEPTH - 2
    # A process function adds three levels and a keyed exchange one: far from CPython's 20 loops.
    assert MAX_DEPTH + 4 < 20


def test_tracebacks_show_the_generated_lines():
    code = Code("<test traceback>")
    with code.function("run", "x"):
        code.line("return 1 // x")
    _, (run,) = build(code, "run")
    with pytest.raises(ZeroDivisionError) as caught:
        run(0)
    assert "return 1 // x" in "".join(traceback.format_exception(caught.value))
    assert linecache.getline("<test traceback>", 4).strip() == "return 1 // x"


def test_each_build_is_on_its_own():
    code = Code("<test builds>")
    with code.function("run", "x"):
        code.line("return x")
    module = code.finish(["run"])
    assert module.build()[0] is not module.build()[0]


def test_names_that_a_user_has_given_stay_in_their_comment():
    code = Code("<test title>", "a\nname\0 with \udc80 in it")
    with code.function("run", "x"):
        code.line("return x")
    module, (run,) = build(code, "run")
    assert run(1) == 1
    assert module.source.startswith("# a name  with   in it\ndef make")
