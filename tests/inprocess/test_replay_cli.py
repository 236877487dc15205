"""`millstream replay` as it is typed: what it shows, the debugger, and the options around the program."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from millstream.cli import main
from millstream.cli.debugger import entry_points, where_raised
from millstream.cli.replay import replay
from millstream.errors import UserFunctionError
from tests.replaying import job_of
from tests.support import environment

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json
import sys

from millstream.common import Types
from millstream.common.configuration import Configuration
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.state import ValueStateDescriptor


class Balance(KeyedProcessFunction):
    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value, ctx):
        account, amount = value
        total = (self.total.value() or 0) + int(amount)
        self.total.update(total)
        yield account, total


def parse(line):
    order = json.loads(line)
    return order["account"], order["amount"]


print("building")
config = Configuration()
config.set_string("execution.checkpointing.dir", "checkpoints")
config.set_string("execution.target", "in-process")
config.set_string("millstream.epoch.records", "3")
env = StreamExecutionEnvironment.get_execution_environment(config)
bad = sys.argv[1] if len(sys.argv) > 1 else "12 EUR"
lines = [json.dumps({"account": "ab"[n % 2], "amount": n}) for n in range(7)]
lines += [json.dumps({"account": "b", "amount": bad}), '{"account": "a", "amount": 1}']
orders = env.from_collection(lines).uid("orders").map(parse).uid("parse")
balances = orders.key_by(lambda order: order[0]).process(Balance()).uid("balance")
balances.print().uid("out")
env.execute("balances")
"""


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    """A folder in which the job has failed in its third epoch."""
    folder = tmp_path_factory.mktemp("replay")
    (folder / "job.py").write_text(PROGRAM)
    done = typed(folder, "run", "job.py")
    assert done.exit_code == 1, done.stderr
    assert "  replay: millstream replay job.py --epoch 2\n" in done.stderr
    return folder


def typed(folder, *words, keys=None):
    """A command in a folder."""
    with chdir(folder):
        return CliRunner().invoke(main, words, input=keys)


def really_typed(folder, *words, keys=""):
    """A command as it is typed, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "millstream", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        input=keys,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "named"), [(["job.py", "x y"], "job.py"), (["-m", "job", "x y"], "-pym job")]
)
def test_plain_python_says_how_to_replay_too(tmp_path, words, named):
    (tmp_path / "job.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert f"  replay: millstream replay {named} --epoch 2 -- 'x y'\n" in done.stderr


def test_a_failed_epoch(failed):
    done = typed(failed, "replay", "job.py", "--epoch", "2")
    assert done.exit_code == 1
    assert "building" not in done.stdout
    assert "epoch 2 of 'balances', which goes on from checkpoint 1" in done.stdout
    assert (
        "orders: split 'collection', positions 6 to 9, which ends there (subtask 0)" in done.stdout
    )
    assert re.search(r"KeyedProcess +2 +1 +uid balance", done.stdout)
    assert (
        "1 record for 'Sink: Print to Std. Out' (uid out), which is muted\n  ('a', 12)\n"
        in done.stdout
    )
    assert done.stdout.rstrip().endswith("the epoch fails")
    assert "record: ('b', '12 EUR')" in done.stderr


def test_an_epoch_that_was_completed(failed):
    done = typed(failed, "replay", "job.py", "--epoch", "1", "--operator", "balance")
    assert done.exit_code == 0, done.stderr
    taken = "3 records taken by 'KeyedProcess' (uid balance)\n  ('b', 3)\n  ('a', 4)\n  ('b', 5)\n"
    given = "3 records given by 'KeyedProcess' (uid balance)\n  ('b', 4)\n  ('a', 6)\n  ('b', 9)\n"
    assert taken in done.stdout
    assert given in done.stdout
    assert (
        "2 changes of state\n  balance: total of 'a': 2 → 6\n  balance: total of 'b': 1 → 9\n"
        in (done.stdout)
    )
    assert done.stdout.rstrip().endswith("the same state changes as the first run")


def test_no_more_is_shown_than_asked_for(failed):
    done = typed(failed, "replay", "job.py", "--epoch=1", "--limit=1")
    assert (
        "3 records for 'Sink: Print to Std. Out' (uid out), which is muted\n  ('b', 4)\n  … and 2 more"
        in (done.stdout)
    )
    assert "  balance: total of 'a': 2 → 6\n  … and 1 more" in done.stdout
    assert re.search("Sink: Print to Std. Out  +3  +0  uid out\n", done.stdout)


def test_lines_of_json(failed):
    done = typed(failed, "replay", "job.py", "--epoch", "1", "--json", "--operator", "parse")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [line["kind"] for line in lines]
    assert kinds[:2] == ["epoch", "range"]
    assert kinds[-1] == "result"
    assert {"kind": "record", "uid": "parse", "way": "out", "record": "('b', 3)"} in lines
    changes = [line for line in lines if line["kind"] == "change"]
    assert changes[0] == {
        "kind": "change",
        "uid": "balance",
        "state": "total",
        "key": "'a'",
        "before": "2",
        "after": "6",
        "change": "changed",
    }
    failing = typed(failed, "replay", "job.py", "--epoch", "2", "--json")
    error = next(
        one for one in map(json.loads, failing.stdout.splitlines()) if one["kind"] == "error"
    )
    assert error["code"] == "USER_FUNCTION_FAILED"


def test_the_last_epoch_is_what_is_meant(failed):
    assert "epoch 2 of 'balances'" in typed(failed, "replay", "job.py").stdout


def test_arguments_of_the_program_follow(failed):
    done = typed(failed, "replay", "job.py", "--epoch", "2", "--", "12")
    assert done.exit_code == 0, done.stderr
    assert "balance: total of 'b': 9 → 21" in done.stdout
    assert "the epoch runs through; the first run has not completed it" in done.stdout
    assert typed(failed, "replay", "job.py", "--epoch", "2", "12").stdout == done.stdout


def test_the_debugger_opens_where_it_failed(failed):
    keys = "p value\np int(amount.split()[0])\nw\nup\nq\n"
    done = really_typed(failed, "replay", "job.py", "--epoch", "2", "--pdb", keys=keys)
    assert done.returncode == 1
    session = done.stdout[done.stdout.index("> ") :]
    assert session.startswith(f"> {failed}/job.py(17)process_element()\n-> total = ")
    assert "(Pdb) ('b', '12 EUR')\n" in session
    assert "(Pdb) 12\n" in session
    # Nothing of Millstream, generated code or pdb is on the way.
    assert "*** Oldest frame" in session
    assert "millstream" not in session.replace(str(failed), "")


def test_the_debugger_works_in_a_terminal(failed):
    """A terminal has its own end of line, its echo, and no pipe that ends."""
    controller, terminal = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "millstream", "replay", "job.py", "--epoch", "2", "--pdb"],
        cwd=failed,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    shown = b""
    for key in (b"p account\n", b"q\n"):
        shown += read_to(controller, b"(Pdb) ")
        os.write(controller, key)
    shown += read_to(controller, None)
    os.close(controller)
    assert child.wait(60) == 1
    assert b"process_element()" in shown
    assert b"\r\n'b'\r\n" in shown


def read_to(controller, mark):
    """What a terminal shows up to a mark, or to its end."""
    shown = b""
    while mark is None or not shown.endswith(mark):
        try:
            part = os.read(controller, 1024)
        except OSError:  # its last user has gone
            break
        if not part:
            break
        shown += part
    return shown


def test_the_debugger_stops_in_the_functions_of_an_operator(failed):
    keys = "p value\nn\nn\np total\ncondition 1 value[0] == 'z'\nc\n"
    done = really_typed(
        failed, "replay", "job.py", "--epoch", "1", "--break-at", "balance", keys=keys
    )
    assert done.returncode == 0, done.stderr
    session = done.stdout[: done.stdout.index("epoch 1 of")]
    assert session.count("process_element()") == 3
    assert "(Pdb) ('b', 3)\n" in session
    assert "(Pdb) 4\n" in session
    assert "millstream" not in session.replace(str(failed), "")


def test_of_several_functions_on_a_line_one_is_meant(tmp_path):
    text = PROGRAM.replace(
        ".map(parse)", ".map(parse).map(lambda v: v).uid('same').map(lambda w: w)"
    )
    (tmp_path / "job.py").write_text(text)
    assert typed(tmp_path, "run", "job.py").exit_code == 1
    words = ["replay", "job.py", "--epoch", "1", "--break-at", "same"]
    done = really_typed(tmp_path, *words, keys="c\n" * 3)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("<lambda>()") == 3


def test_a_step_out_of_a_function_leads_into_the_next_one(failed):
    keys = "r\ns\np line\nq\n"
    done = really_typed(
        failed, "replay", "job.py", "--epoch", "1", "--break-at", "parse", keys=keys
    )
    assert '\'{"account": "a", "amount": 4}\'' in done.stdout
    assert done.returncode == 1
    assert "left by the debugger" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--epoch", "9"], "epoch 9 cannot be replayed"),
        (["--operator", "nobody"], "no operator with the uid 'nobody'"),
        (["--break-at", "out"], "has no function of yours to stop in"),
        (["--dir", "elsewhere"], "there is no job 'balances' in the checkpoint directory"),
    ],
)
def test_what_cannot_be_done_is_said(failed, words, told):
    done = typed(failed, "replay", "job.py", *words)
    assert done.exit_code == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert "the epoch fails" not in done.stdout


def test_the_first_execute_is_what_is_meant(tmp_path):
    once = "def once():\n" + "".join(f"    {line}\n" for line in PROGRAM.splitlines())
    twice = once + "\n\ntry:\n    once()\nexcept BaseException:\n    once()\n"
    (tmp_path / "job.py").write_text(twice)
    assert typed(tmp_path, "run", "job.py").exit_code == 1
    done = typed(tmp_path, "replay", "job.py", "--epoch", "0")
    assert done.stdout.count("epoch 0 of 'balances'") == 1


def test_modules_that_the_command_line_named_are_found_again(tmp_path):
    (tmp_path / "my libs").mkdir()
    (tmp_path / "my libs" / "helper.py").write_text("")
    (tmp_path / "job.py").write_text("import helper\n" + PROGRAM)
    done = typed(tmp_path, "run", "-pyfs", "my libs", "job.py")
    (line,) = re.findall("  replay: millstream (.*)\n", done.stderr)
    again = really_typed(tmp_path, *shlex.split(line))
    assert "the epoch fails" in again.stdout, again.stderr


def test_whoever_reads_may_go(failed):
    words = [sys.executable, "-m", "millstream", "replay", "job.py", "--epoch", "1", "--json"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        words,
        cwd=failed,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=100,
        check=False,
    )
    os.close(writer)
    assert done.stderr == "building\n"
    assert done.returncode == 1


def test_a_program_that_never_executes(tmp_path):
    (tmp_path / "job.py").write_text("print('nothing')\n")
    result = CliRunner().invoke(main, ["replay", str(tmp_path / "job.py")])
    assert result.exit_code == 1
    assert "never called execute()" in result.stderr


def test_a_program_without_checkpoints(tmp_path):
    text = PROGRAM.replace('config.set_string("execution.checkpointing.dir", "checkpoints")\n', "")
    (tmp_path / "job.py").write_text(text)
    done = typed(tmp_path, "replay", "job.py", "--epoch", "2")
    assert "there is nothing to replay from" in done.stderr


@pytest.mark.parametrize(
    ("words", "mine", "rest"),
    [
        ("--epoch 7 job.py", "--epoch 7", "job.py"),
        ("job.py --epoch 7", "--epoch 7", "job.py"),
        ("job.py --epoch=7 --pdb a b", "--epoch=7 --pdb", "job.py a b"),
        ("-p 2 job.py --epoch 7 -- --epoch 8", "-p 2 --epoch 7", "job.py --epoch 8"),
        ("-pym jobs.a --epoch 7 -- x", "-pym jobs.a --epoch 7", "x"),
        ("job.py x --epoch 7", "", "job.py x --epoch 7"),
    ],
)
def test_options_stand_before_the_program_or_directly_behind_it(words, mine, rest):
    found = replay._split(click.Context(replay), words.split())
    assert found == (mine.split(), rest.split())


# -- the debugger's parts --------------------------------------------------------------------------


def fails(value):
    raise ValueError(value)


def test_the_error_that_leads_to_the_user():
    env = environment()
    env.from_collection([1]).map(fails).print()
    with pytest.raises(UserFunctionError) as caught:
        env.execute()
    assert isinstance(where_raised(caught.value), ValueError)
    alone = RuntimeError("nobody's")
    assert where_raised(alone) is alone


def test_functions_to_stop_in():
    env = environment()
    stream = env.from_collection([1]).map(fails).uid("own").key_by(lambda v: v).sum(0).uid("ours")
    stream.print()
    nodes = {node.uid: node for node in job_of(env.execute).graph.nodes.values()}
    assert list(entry_points(nodes["own"])) == [fails.__code__]
    assert list(entry_points(nodes["ours"])) == []
