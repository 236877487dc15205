"""A stream that is shown while it runs, on a screen that only remembers what is drawn."""

from __future__ import annotations

import builtins
import sys
import threading

import IPython
import pytest

from millstream.common import Row
from millstream.common.job_status import JobStatus
from millstream.datastream import KeyedProcessFunction
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.state import ValueStateDescriptor
from millstream.errors import InvalidArgument, RuntimeUnusable, UserFunctionError
from millstream.notebook import LiveView
from tests.support import environment
from tests.waiting import until


class Remembered:
    """A screen; with `button` as if there were one."""

    def __init__(self, button=None):
        self.button, self.drawn, self.ended = button, [], False

    def draw(self, content):
        self.drawn.append((threading.current_thread().name, content))

    def end(self):
        self.ended = True

    @property
    def last(self):
        return self.drawn[-1][1]


@pytest.fixture
def screen(monkeypatch):
    """What the next view is drawn on."""
    made = Remembered()

    def opened(self):
        made.stop = self._cancel
        self._screen = made

    monkeypatch.setattr(LiveView, "open", opened)
    return made


def endless():
    env = environment(millstream__epoch__interval="20 ms")
    source = DataGeneratorSource(lambda n: Row(n=n, even=n % 2 == 0), rate_per_second=500)
    return env.from_source(source, None, "numbers")


def test_a_stream_that_ends(screen):
    rows = [Row(word=word, n=len(word)) for word in ("mill", "stream", "<b>")]
    view = environment().from_collection(rows).show(2, y="n", x="word", job_execution_name="words")
    assert view.wait() is view
    assert "words: FINISHED, 3 records" in screen.last
    assert "<td" in screen.last
    assert "&lt;b&gt;" in screen.last
    assert "<b>" not in screen.last
    assert screen.last.count("<tr>") == 3  # the head and two rows
    assert screen.last.count("<rect") == 3  # a bar for each word
    assert screen.ended
    assert view.records() == rows
    assert list(view.frame().columns) == ["word", "n"]
    assert repr(view) == "<LiveView of 'words': FINISHED, 3 records>"


def test_the_call_returns_while_the_stream_runs_and_the_view_follows(screen):
    view = endless().show(every="20 ms", keep=50)
    try:
        until(lambda: len(screen.drawn) >= 3)
        assert not screen.ended
        names, contents = zip(*screen.drawn, strict=True)
        assert set(names) == {"millstream-show"}
        assert len(set(contents)) == len(contents)
        assert "RUNNING" in contents[-1]
        assert "records a second" in contents[-1]
        assert "stop() ends it" in contents[-1]
    finally:
        view.stop()
    assert view.client.get_job_status().result() is JobStatus.CANCELED
    assert "CANCELED" in screen.last
    assert screen.ended
    assert view.count > 50
    assert len(view.records()) == 50


def test_who_waits_draws(screen):
    view = endless().show(every="20 ms")
    view.wait(0.3)
    assert not screen.ended
    assert threading.current_thread().name in {name for name, _ in screen.drawn}
    view.stop()
    assert screen.drawn[-1][0] == threading.current_thread().name


def test_the_button_stops(screen):
    screen.button = object()
    view = endless().show(every="20 ms")
    until(lambda: len(screen.drawn) >= 1)
    assert "stop() ends it" not in screen.last
    screen.stop()
    until(lambda: screen.ended)
    assert "CANCELED" in screen.last
    screen.stop()  # once more does no harm
    assert repr(view).startswith("<LiveView of 'Millstream Streaming Job': CANCELED")


def test_a_job_that_fails_says_why(screen):
    view = environment().from_collection([1, 0]).map(lambda n: 1 // n).show()
    with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
        view.wait()
    assert "FAILED" in screen.last
    assert "ZeroDivisionError" in screen.last


def test_a_field_that_is_not_there_is_said_in_place_of_the_chart(screen):
    view = environment().from_collection([("mill", 1)]).show(y="n")
    view.wait()
    assert "there is no field &#x27;n&#x27; to draw" in screen.last
    assert "f0, f1" in screen.last
    assert "mill" in screen.last


class Silent:
    """Nobody can say what it is."""

    def __repr__(self):
        raise ValueError("no words")


@pytest.mark.parametrize("odd", [Silent(), "\ud800\0", "x" * 100_000], ids=["repr", "half", "long"])
def test_records_that_are_hard_to_show_do_not_end_the_view(screen, odd):
    view = environment().from_collection([("mill", 1), (odd, 2)]).show(y="f1", x="f0", by="f0")
    view.wait()
    assert "FINISHED, 2 records" in screen.last
    assert "mill" in screen.last
    assert len(screen.last.encode()) < 20_000


def test_a_chart_that_fails_does_not_end_the_view(screen, monkeypatch):
    def fails(*_):
        raise ZeroDivisionError("no chart for you")

    monkeypatch.setattr("millstream.notebook.view.chart", fails)
    view = endless().show(y="n", every="20 ms")
    until(lambda: len(screen.drawn) >= 2)
    view.stop()
    assert "no chart for you" in screen.last


def test_records_are_shown_before_a_checkpoint_is_due(screen):
    stream = endless()
    stream.get_execution_environment().enable_checkpointing(3_600_000)
    view = stream.show(every="20 ms")
    until(lambda: view.count > 10)
    view.stop()


class Count(KeyedProcessFunction):
    def open(self, ctx):
        self.seen = ctx.get_state(ValueStateDescriptor("seen"))

    def process_element(self, value, ctx):
        self.seen.update((self.seen.value() or 0) + 1)
        yield value.even, self.seen.value()


def test_a_view_has_the_job_for_savepoints(screen, tmp_path):
    view = endless().key_by(lambda row: row.even).process(Count()).uid("count").show(every="20 ms")
    until(lambda: view.count > 10)
    path = view.client.stop_with_savepoint(False, str(tmp_path)).result(30)
    assert str(tmp_path) in path
    view.wait()
    assert "FINISHED" in screen.last


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": 0},
        {"keep": True},
        {"x": "n"},
        {"by": "n"},
        {"every": "soon"},
        {"every": "0 ms"},
        {"every": -5},
    ],
)
def test_what_cannot_be_shown_is_refused_before_anything_runs(screen, wrong):
    with pytest.raises((InvalidArgument, ValueError)):
        environment().from_collection([1]).show(**wrong)
    assert screen.drawn == []


def test_outside_of_a_notebook_it_is_said(monkeypatch):
    class Shell:
        kernel = None

    monkeypatch.setattr(IPython, "get_ipython", Shell)
    with pytest.raises(RuntimeUnusable, match="does not run in one") as error:
        environment().from_collection([1]).show()
    assert "execute_and_collect" in str(error.value)


def test_without_ipython_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "IPython"]:
        monkeypatch.delitem(sys.modules, name)
    imported = builtins.__import__

    def without(name, *args, **options):
        if name.split(".")[0] == "IPython":
            raise ImportError("No module named 'IPython'", name="IPython")
        return imported(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(RuntimeUnusable, match=r"pip install 'millstream\[notebook\]'"):
        environment().from_collection([1]).show()
