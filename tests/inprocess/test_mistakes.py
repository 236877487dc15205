"""Mistakes of the first week, as those who come from Flink, PyFlink and Spark make them, and what they see.

Each of `mistakes.txt` is a small program, run as `python job.py` would run it, and what it writes to standard error is
looked at: how many lines the message has, the first of them and the last, and that there are few around it. Most run in
this process, and a few in one of their own, to see that it is the same.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import runpy
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.waiting import until

HEAD = """\
from millstream.common import *
from millstream.datastream import *
from millstream.datastream.connectors.file_system import *
from millstream.datastream.state import *
from millstream.datastream.window import *

env = StreamExecutionEnvironment.get_execution_environment("in-process")
words = env.from_collection([("a", 1), ("b", 2), ("a", 3)])
"""

# Around a message: the line of Python's, the program's line, and the steps from there to where the error was raised.
MOST_AROUND = 12


class Mistake(NamedTuple):
    """What is wrong, the program, and what is said of it."""

    name: str
    program: str
    lines: int
    first: str
    last: str


def mistakes() -> Iterator[Mistake]:
    """After `== NAME` the program, after `-- N lines` the first line of the message and, if it has more, the last."""
    text = Path(__file__).with_name("mistakes.txt").read_text()
    for part in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        name, body = part.split("\n", 1)
        found = re.fullmatch(r"(.*)^-- (\d+) lines?\n(.*)", body, re.DOTALL | re.MULTILINE)
        assert found is not None, name
        said = found[3].rstrip("\n").split("\n")
        yield Mistake(name, found[1], int(found[2]), said[0], said[-1])


MISTAKES = list(mistakes())


def as_shown(error: BaseException, file: str) -> str:
    """What `python` prints of an exception that leaves a program: the steps from the program's own on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    return "".join(traceback.format_exception(error.with_traceback(trace)))


def as_python_does(
    message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))


@contextlib.contextmanager
def as_a_user() -> Iterator[io.StringIO]:
    """Standard error, with warnings and the log as they come to it in a program that sets up neither."""
    written, root = io.StringIO(), logging.getLogger()
    handlers, root.handlers = root.handlers, []
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stderr(written),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            warnings.simplefilter("default")
            warnings.showwarning = as_python_does
            yield written
    finally:
        root.handlers = handlers


def seen_in_this_process(script: Path) -> list[str]:
    with as_a_user() as written:
        try:
            runpy.run_path(str(script), run_name="__main__")
        except Exception as error:
            written.write(as_shown(error, str(script)))
    return without_marks(written.getvalue())


def message_in(lines: list[str]) -> list[str]:
    """The lines from the first on that is neither Python's nor a step."""
    steps = re.compile(r"Traceback |  File |    ")
    begin = next(n for n, line in enumerate(lines) if not steps.match(line))
    return lines[begin:]


def without_marks(text: str) -> list[str]:
    """The lines of a text but those with nothing but marks below the line before, which not every Python draws."""
    return [line for line in text.splitlines() if not re.fullmatch(r"[\s~^]+", line)]


def written(tmp_path: Path, program: str) -> Path:
    script = tmp_path / "job.py"
    script.write_text(HEAD + program.replace("FOLDER", str(tmp_path)))
    return script


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_what_is_seen(mistake: Mistake, tmp_path: Path) -> None:
    lines = seen_in_this_process(written(tmp_path, mistake.program))
    message = message_in(lines)
    message = [line.removeprefix("millstream.errors.") for line in message]
    message = [line.replace(str(tmp_path), "FOLDER") for line in message]
    assert (message[0], message[-1], len(message)) == (mistake.first, mistake.last, mistake.lines)
    assert len(lines) - len(message) <= MOST_AROUND
    assert not re.search(r"py4j|\tat org\.|millstream-error:", "\n".join(lines))


def test_there_are_forty() -> None:
    names = [mistake.name for mistake in MISTAKES]
    assert len(set(names)) == len(names) >= 40


# -- as python itself shows it -------------------------------------------------------------------------------


def python(script: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments, str(script)],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        check=False,
        timeout=120,
    )


DIVIDES = "words.map(lambda pair: 1 // (pair[1] - 2)).print()\nenv.execute()\n"


def test_python_shows_the_same(tmp_path: Path) -> None:
    script = written(tmp_path, DIVIDES)
    done = python(script)
    assert done.returncode == 1
    assert without_marks(done.stderr) == seen_in_this_process(script)
    assert len(done.stderr.splitlines()) <= 20


def test_all_of_it_if_it_is_asked_for(tmp_path: Path) -> None:
    done = python(written(tmp_path, DIVIDES), MILLSTREAM_TRACEBACK="1")
    lines = done.stderr.splitlines()
    assert len(lines) > 40
    assert "The above exception was the direct cause of the following exception:" in lines
    assert sum(line.startswith("ZeroDivisionError") for line in lines) == 1


def test_execute_forgotten(tmp_path: Path) -> None:
    done = python(written(tmp_path, "words.print()\n"))
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "warning: the program ended without execute(): nothing came to its sink, declared at "
        f"{tmp_path}/job.py:{HEAD.count(chr(10)) + 1}: words.print()",
        "  what to do: call env.execute() at its end",
    ]


def test_execute_forgotten_is_said_once(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "millstream", "run", str(written(tmp_path, "words.print()\n"))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    assert done.stderr.count("without execute()") == 1


@pytest.mark.parametrize(
    "program",
    [
        "words.print()\nenv.execute()\n",
        "words.print()\nenv.get_execution_plan()\n",
        "words.map(str)\n",
        "list(words.execute_and_collect())\n",
        "words.print()\nraise ValueError('another thing')\n",
    ],
    ids=["executed", "plan", "no sink", "collected", "failed"],
)
def test_execute_not_forgotten(program: str, tmp_path: Path) -> None:
    assert "without execute()" not in python(written(tmp_path, program)).stderr


def test_nothing_is_forgotten_at_a_prompt(tmp_path: Path) -> None:
    script = written(tmp_path, "words.print()\n")
    done = subprocess.run(
        [sys.executable, "-i", str(script)],
        input="words\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout == "<DataStream 'Source: Collection Source'>\n"
    assert "execute()" not in done.stderr


ENDLESS = """
import time
class Clock(SourceFunction):
    def run(self, ctx):
        for number in range(1_000_000):
            ctx.collect(number)
            time.sleep(0.001)
    def cancel(self):
        pass
env.get_configuration().set_string("millstream.epoch.interval", "20 ms")
numbers = env.add_source(Clock()).key_by(lambda n: n % 2).reduce(lambda a, b: b)
numbers.filter(lambda n: n == 50).print()
"""
KEEPS = """
env.enable_checkpointing("20 ms")
env.get_configuration().set_string("execution.checkpointing.dir", "FOLDER/checkpoints")
"""


def _waits(pid: int) -> bool:
    return Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def interrupted(script: Path) -> tuple[list[str], int]:
    """What a program writes that gets Ctrl-C once it has printed a line."""
    with subprocess.Popen(
        [sys.executable, "-u", str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs the tests in the background may have it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline()
        # Its main thread goes on from there to where it waits.
        until(lambda: all(_waits(program.pid) for _ in range(200)))
        program.send_signal(signal.SIGINT)
        lines = program.stderr.read().splitlines()
    return lines, program.returncode


def test_ctrl_c_says_what_stays_and_the_next_run_where_it_goes_on(tmp_path: Path) -> None:
    script = written(tmp_path, KEEPS + ENDLESS + 'env.execute("clock")\n')
    lines, code = interrupted(script)
    assert code == -signal.SIGINT
    found = re.fullmatch(
        r"KeyboardInterrupt: the job 'clock' is cancelled; checkpoint (\d+) stays in "
        rf"{tmp_path}/checkpoints, and `python {script}` goes on from it",
        lines[-1],
    )
    assert found is not None, lines
    assert len(lines) <= 6
    again, _ = interrupted(script)
    assert again[0] == f"clock: going on from checkpoint {found[1]}"


def test_ctrl_c_says_that_nothing_stays(tmp_path: Path) -> None:
    lines, _ = interrupted(written(tmp_path, ENDLESS + 'env.execute("clock")\n'))
    assert lines[-1].startswith(
        "KeyboardInterrupt: the job 'clock' is cancelled, and nothing of its state stays: "
    )
    assert len(lines) <= 6


def test_ctrl_c_while_results_are_read(tmp_path: Path) -> None:
    # One record, and then nothing but waiting.
    few = ENDLESS.replace("numbers.filter(lambda n: n == 50).print()", "")
    read = "for number in numbers.filter(lambda n: n == 50).execute_and_collect():\n    print(number)\n"
    lines, _ = interrupted(written(tmp_path, few + read))
    assert "nothing of its state stays" in lines[-1]
    assert len(lines) <= 6
