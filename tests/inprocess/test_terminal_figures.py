"""What a terminal shows of a job: the progress line, `kill -USR1`, `millstream top`."""

from __future__ import annotations

import doctest
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler, TCPServer
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner

from millstream.cli import main, top
from millstream.cli.top import Rest
from millstream.common.job_status import JobStatus
from millstream.datastream import progress
from millstream.datastream.progress import describe
from millstream.errors import InvalidArgument, JobError
from millstream.reporters import moment, table
from millstream.reporters.table import as_text, bottleneck, document_of, headline, rows
from tests.inprocess.test_reporters import COUNT, started


@pytest.fixture
def run():
    run = started(name="numbers")
    yield run
    run.cancel()


@pytest.mark.parametrize("module", [progress, moment, table])
def test_the_examples_in_docstrings(module):
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed


# -- the progress line ---------------------------------------------------------------------------------------------


def test_the_line_says_what_keeps_a_job_back(run, monkeypatch):
    metrics = run.metrics
    monkeypatch.setattr(progress.time, "time", lambda: COUNT / 1000 + 90)
    until_there = f"numbers: epoch {metrics.epoch}, {COUNT} records, "
    assert describe(run).startswith(until_there)
    assert describe(run).endswith("/s, watermark 2 min behind")
    metrics.backlog = 1234
    source, counting = metrics.vertices.values()
    source.subtasks[0].per_second["back_pressured"] = 0.71
    counting.subtasks[1].per_second["busy"] = 0.96
    run.web_address = "http://127.0.0.1:8081"
    assert describe(run).endswith(
        "/s, lag 1,234, watermark 2 min behind, "
        "back pressure 71%, held up by Count -> out (96% busy), http://127.0.0.1:8081"
    )


def test_a_watermark_at_its_end_is_no_lag(run):
    run.metrics.watermarks.update(dict.fromkeys(run.metrics.watermarks, 2**63 - 1))
    assert "watermark" not in describe(run)


# -- the table -----------------------------------------------------------------------------------------------------


def test_the_table_has_the_figures_of_the_driver(run):
    document = document_of(run)
    source, counting = run.metrics.vertices.values()
    cells = rows(document)
    assert cells[0][:4] == (source.name, "2", str(sum(source.num_records_in)), str(COUNT))
    assert cells[-1][0].startswith("  ")
    row = next(row for row in cells if row[0] == counting.name)
    assert row[2] == str(COUNT)
    text = as_text(document)
    head, columns, *lines = text.splitlines()
    assert head.startswith(f"numbers: RUNNING, epoch {run.metrics.epoch}, {COUNT} records")
    assert columns.split()[:2] == ["operator", "par."]
    assert len(lines) == len(cells)


def a_document(**more):
    vertex = {
        "name": "Map",
        "parallelism": 2,
        "records_in": 12345,
        "records_out": 12000,
        "records_in_per_second": 99.6,
        "records_out_per_second": 98.0,
        "busy": 0.93,
        "back_pressured": 0.0,
        "watermark_lag": 2500,
        "state_bytes": 7_000_000,
        "late": 3,
        "bad": 1,
        "operators": [{"name": "Map", "records_in": 1, "records_out": 1, "late": 0, "bad": 0}],
    }
    source = vertex | {
        "name": "Source: a",
        "busy": 0.2,
        "back_pressured": 0.7,
        "watermark_lag": None,
    }
    return {
        "jid": "a" * 32,
        "name": "clicks",
        "state": "RUNNING",
        "epoch": 7,
        "records": 12345,
        "records_per_second": 100.4,
        "restarts": 1,
        "backlog": 50,
        "vertices": [source, vertex],
    } | more


def test_how_the_table_looks():
    assert as_text(a_document()) == "\n".join(
        [
            "clicks: RUNNING, epoch 7, 12,345 records, 100/s, 1 restarts, lag 50, held up by Map",
            "operator   par.      in     out  in/s  out/s  busy  back pr.  wm. lag  late  bad   state",
            "Source: a     2  12,345  12,000   100     98   20%       70%              3    1  7.0 MB",
            "Map           2  12,345  12,000   100     98   93%        0%    2.5 s     3    1  7.0 MB",
        ]
    )
    slow = bottleneck(a_document())
    assert slow is not None
    assert slow["name"] == "Map"


def test_names_are_anybodys():
    document = a_document(name="a\nb password=hunter2", state="RUNNING\x1b[2J")
    document["vertices"][0]["name"] = "[red]evil[/red]\r\x1b]0;x\x07" + "y" * 100
    text = as_text(document)
    assert headline(document).startswith("a\\nb password=***: RUNNING\\x1b[2J")
    assert "\x1b" not in text
    assert "hunter2" not in text
    assert len(text.splitlines()) == 4


# -- the signal ----------------------------------------------------------------------------------------------------

PROGRAM = """
import os, signal, sys, threading, time
{before}
def start():
    from tests.inprocess.test_reporters import started
    global run
    run = started(name="numbers")
{start}
os.kill(os.getpid(), signal.SIGUSR1)
while any(thread.name == "millstream-figures" for thread in threading.enumerate()):
    time.sleep(0.01)
run.cancel()
"""


def signalled(before="", start="start()"):
    program = PROGRAM.format(before=before, start=start)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )


def test_a_signal_shows_the_table():
    done = signalled()
    assert done.returncode == 0, done.stderr
    assert re.search(rf"numbers: RUNNING, epoch \d+, {COUNT} records", done.stderr)
    assert "Count" in done.stderr


def test_a_signal_that_the_program_has_itself():
    handler = "signal.signal(signal.SIGUSR1, lambda *_: print('mine', file=sys.stderr))"
    assert signalled(handler).stderr.split() == ["mine"]
    faults = "import faulthandler; faulthandler.register(signal.SIGUSR1)"
    assert "most recent call first" in signalled(faults).stderr


def test_a_program_in_another_thread():
    """Nobody can wait for signals there: it ends the program, as it always did."""
    start = "thread = threading.Thread(target=start); thread.start(); thread.join()"
    assert signalled(start=start).returncode == -signal.SIGUSR1


# -- millstream top ------------------------------------------------------------------------------------------------

TOKEN = "t" * 43


class Driver(BaseHTTPRequestHandler):
    """What a driver's REST API answers."""

    documents: ClassVar[dict[str, Any]]
    token: str | None = None
    asked: ClassVar[list[str]]
    pid = 0

    def do_GET(self):
        if self.token is not None and self.headers["Authorization"] != f"Bearer {self.token}":
            self.send_error(401)
            return
        self.asked.append(self.path)
        id_ = self.path.removeprefix("/millstream/jobs").strip("/")
        if self.path == "/elsewhere/millstream/jobs":
            self.send_response(302)
            self.send_header("Location", "/millstream/jobs")
            self.end_headers()
            return
        if id_ and id_ not in self.documents:
            self.send_error(404)
            return
        if id_:
            document = self.documents[id_]
            answer = document.pop(0) if isinstance(document, list) else document
        else:
            answer = {
                "pid": self.pid,
                "jobs": [
                    {"jid": i, "name": d["name"], "state": d["state"]} for i, d in self.listed()
                ],
            }
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def listed(self):
        return [(i, d[0] if isinstance(d, list) else d) for i, d in self.documents.items()]

    def log_message(self, *args):
        pass


@pytest.fixture
def driver():
    class Mine(Driver):
        pass

    Mine.documents = {"a" * 32: a_document(), "b" * 32: a_document(name="old", state="FINISHED")}
    Mine.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Mine)
    threading.Thread(target=server.serve_forever, args=[0.01]).start()
    Mine.url = f"http://127.0.0.1:{server.server_port}"
    yield Mine
    server.shutdown()
    server.server_close()


def shown_by(*arguments):
    return CliRunner().invoke(main, ["top", *arguments])


def test_top_once(driver):
    for arguments in ([], ["clicks"], ["aaaa"]):
        done = shown_by(*arguments, "--url", driver.url, "--once")
        assert (done.exit_code, done.output) == (0, as_text(a_document()) + "\n")


def test_top_as_json(driver):
    assert (
        json.loads(shown_by("old", "--url", driver.url, "--json").output)
        == driver.documents["b" * 32]
    )


def test_top_until_the_job_ends(driver, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    driver.documents["a" * 32] = [a_document(), a_document(epoch=8), a_document(state="FINISHED")]
    done = shown_by("clicks", "--url", driver.url)
    assert done.exit_code == 0, done.output
    assert "clicks: FINISHED" in done.output
    assert driver.asked.count(f"/millstream/jobs/{'a' * 32}") == 3


def test_top_with_a_token(driver, tmp_path):
    driver.token = TOKEN
    refused = shown_by("--url", driver.url, "--once")
    assert refused.exit_code == 1
    assert "--token-file" in refused.output
    (tmp_path / "token").write_text(TOKEN + "\n")
    done = shown_by("--url", driver.url, "--once", "--token-file", str(tmp_path / "token"))
    assert done.exit_code == 0
    (tmp_path / "token").write_text("two\nlines")
    assert "holds no token" in shown_by("--token-file", str(tmp_path / "token")).output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nobody"], "there is no job 'nobody'"),
        (["--url", "http://127.0.0.1:1"], "nobody answers at http://127.0.0.1:1"),
        (["--url", "file:///etc/passwd"], "this is no address of a REST API"),
        (["--url", "http://127.0.0.1:port"], "this is no address of a REST API"),
        (["--url", "http://[::1"], "this is no address of a REST API"),
        (["--url", "http://127.0.0.1:1/a b"], "this is no address of a REST API"),
        (["--dir", "no/such/folder", "clicks"], "there is no job 'clicks'"),
    ],
)
def test_top_that_finds_nothing(driver, arguments, says):
    url = [] if "--url" in arguments or "--dir" in arguments else ["--url", driver.url]
    done = shown_by(*arguments, *url, "--once")
    assert done.exit_code == 1
    assert says in done.output


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n[]",
        b'HTTP/1.1 200 OK\r\n\r\n{"jobs": null}',
        b'HTTP/1.1 200 OK\r\n\r\n{"jobs": [{"jid": "a"}]}',
        b'HTTP/1.1 200 OK\r\n\r\n{"jobs": [{"jid": "a", "name": "n", "state": "RUNNING"}]}',
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000,
    ],
    ids=["ssh", "chunks", "list", "none", "nameless", "no document", "deep"],
)
def test_top_of_what_is_no_driver(answer):
    class Other(BaseRequestHandler):
        def handle(self):
            self.request.recv(1 << 16)
            self.request.sendall(answer)

    with TCPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        done = shown_by("--once", "--url", f"http://127.0.0.1:{server.server_address[1]}")
        server.shutdown()
        thread.join()
    assert done.exit_code == 1
    assert done.output.startswith("[JOB_FAILED]")


def test_which_of_several(driver):
    driver.documents["c" * 32] = a_document(name="clicks")
    done = shown_by("--url", driver.url, "--once")
    assert "there are several jobs" in done.output
    driver.documents["a" * 32] = a_document(state="FAILED")
    done = shown_by("clicks", "--url", driver.url, "--once")
    assert "clicks: RUNNING" in done.output


def test_a_token_is_not_sent_elsewhere(driver):
    with pytest.raises(JobError, match="status 302"):
        Rest(f"{driver.url}/elsewhere", TOKEN).jobs()
    with pytest.raises(InvalidArgument):
        Rest("127.0.0.1:8081")


def test_top_by_folder(driver, tmp_path, monkeypatch):
    """The driver of a job on this machine is found at one of the ports that drivers take."""
    settings = {
        "execution.checkpointing.dir": str(tmp_path),
        "execution.checkpointing.interval": "1 s",
    }
    run = started(settings, name="numbers")
    try:
        driver.documents[run.job.id] = a_document(name="numbers")
        port = int(driver.url.rpartition(":")[2])
        monkeypatch.setattr(top, "_PORTS", range(port, port + 1))
        # Somebody else runs a job of that name.
        assert "has no REST API here" in shown_by("numbers", "--dir", str(tmp_path)).output
        driver.pid = os.getpid()
        done = shown_by("numbers", "--dir", str(tmp_path), "--once")
        assert done.output.startswith("numbers: RUNNING"), done.output
        driver.pid = 0
        assert "has no REST API here" in shown_by("numbers", "--dir", str(tmp_path)).output
    finally:
        run.cancel()
    assert run.status is JobStatus.CANCELED
    assert "is not running" in shown_by("numbers", "--dir", str(tmp_path)).output


# -- the cursor, and what is left ----------------------------------------------------------------------------------


HOURS = """
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.window import TumblingProcessingTimeWindows

options = {"execution.target": "in-process", "millstream.progress": "true"}
env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
words = env.from_collection(["a", "b", "a"]).key_by(lambda word: word)
words.window(TumblingProcessingTimeWindows.of("1 h")).reduce(max).print()
env.execute("hours")
"""


def test_the_last_line_counts_windows_of_the_clock_and_the_cursor_is_never_hidden(tmp_path):
    script = tmp_path / "hours.py"
    script.write_text(HOURS)
    environ = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environ, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "hours: epoch 0, 3 records" in done.stderr.splitlines()[-1]
    assert ", 2 windows or timers of processing time not due, " in done.stderr.splitlines()[-1]
    # What hides a terminal's cursor would have to be undone by whoever kills the program.
    assert "\x1b[?25l" not in done.stderr
