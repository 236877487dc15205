"""A job as REST shows it: shapes of every path, changes, what stays of a job that has ended. Without Spark."""

from __future__ import annotations

import gc
import json
import os
import re
import socket
import urllib.error
import urllib.request
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest

from millstream.common.completable_future import CompletableFuture
from millstream.common.configuration import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import ConfigurationError
from millstream.rest import start
from millstream.rest.control import Control, SavepointBody
from millstream.rest.jobs import KEPT, Jobs
from millstream.rest.logs import LOGS
from millstream.rest.routes import ROUTES
from millstream.rest.start import server_of_process, stop_server
from millstream.runtime.driver.history import History
from tests.rest import Client, application, run_of, served, start_job, watched
from tests.waiting import until

GOLDEN = Path(__file__).parent / "rest_keys.json"
OWN = {"x-millstream": "1"}
SECRETS = ("AKIA-do-not-tell-7781", "hunter2-of-")
EVERY = {
    "execution.checkpointing.interval": "20 ms",
    "execution.checkpointing.num-retained": "2",
}


@pytest.fixture
def folder(tmp_path):
    """Savepoints and checkpoints go here."""
    for name in ("checkpoints", "savepoints"):
        (tmp_path / name).mkdir(mode=0o700)
    return tmp_path


def checkpointed(folder, **more):
    return {
        **EVERY,
        "execution.checkpointing.dir": str(folder / "checkpoints"),
        "execution.checkpointing.savepoint-dir": str(folder / "savepoints"),
        **more,
    }


@pytest.fixture
def job(folder):
    """A job that has failed once and has checkpoints and a savepoint, and a client."""
    options = checkpointed(folder)
    once = str(folder / "failed")
    with served(lambda: start_job(options, name="orders", fails_at=(1200,), once=once)) as (
        run,
        client,
    ):
        until(lambda: run.metrics.checkpoint_log.restored and run.metrics.records > 1300)
        yield run, client


# -- shapes -----------------------------------------------------------------------------------------


def keys_of(value, path="") -> set[str]:
    """The names in a JSON value; of ids, numbers of subtasks and metrics' own names only that there are some."""
    if isinstance(value, dict):
        found = set()
        for key, below in value.items():
            key = "*" if re.fullmatch(r"[0-9a-f]{32}|\d+/\d+|Source: .*", key) else key
            found |= keys_of(below, f"{path}.{key}" if path else key) or {f"{path}.{key}"}
        return found or {path}
    if isinstance(value, list):
        return set().union(*(keys_of(item, f"{path}[]") for item in value)) or {f"{path}[]"}
    kind = "null" if value is None else type(value).__name__
    return {f"{path}: {kind}"}


def path_of(endpoint, run, client):
    shape = client.get(f"/millstream/jobs/{run.job.id}").json
    process = client.get("/taskmanagers").json["taskmanagers"][0]["id"]
    last = max(c["id"] for c in shape["checkpoints"]["history"] if c["status"] == "COMPLETED")
    names = {
        ":jobid": run.job.id,
        ":vertexid": shape["vertices"][1]["id"],
        ":subtaskindex": "1",
        ":checkpointid": str(last),
        ":taskmanagerid": process,
        ":name": "millstream.log",
    }
    path = endpoint.path
    for name, value in names.items():
        path = path.replace(name, value)
    return path


def test_every_path_has_the_names_that_flinks_has(job):
    """`rest_keys.json` was held against Flink's own snapshot of its API. MILLSTREAM_UPDATE_GOLDEN=1 writes it anew."""
    run, client = job
    savepoint(run, client, "savepoints", {})
    found = {}
    for endpoint in ROUTES:
        if endpoint.method != "GET" or ":triggerid" in endpoint.path or endpoint.page_only:
            continue
        answer = client.get(path_of(endpoint, run, client))
        assert answer.status == 200, (endpoint.path, answer.body)
        if answer.headers["content-type"] == "application/json":
            found[endpoint.path] = sorted(keys_of(answer.json))
    if os.environ.get("MILLSTREAM_UPDATE_GOLDEN"):
        GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
    golden = json.loads(GOLDEN.read_text())
    assert set(found) == set(golden)
    for path, names in golden.items():
        # Figures may be whole or not, and there may or may not be one yet.
        assert _names(found[path]) == _names(names), path


def _names(keys):
    # There may be none yet.
    moving = ("lag", "latency", "history.series.")
    return sorted({key.partition(": ")[0] for key in keys if not key.startswith(moving)})


def test_metrics_are_asked_for_by_name(job):
    run, client = job
    vertex = client.get(f"/millstream/jobs/{run.job.id}").json["vertices"][1]
    path = f"/jobs/{run.job.id}/vertices/{vertex['id']}"
    assert {"id": "1.numRecordsIn"} in client.get(f"{path}/metrics").json
    both = client.get(f"{path}/metrics?get=0.numRecordsIn,1.numRecordsIn,none").json
    assert [entry["id"] for entry in both] == ["0.numRecordsIn", "1.numRecordsIn"]
    (one,) = client.get(f"{path}/subtasks/metrics?get=numRecordsIn").json
    assert one["min"] <= one["avg"] <= one["max"] <= one["sum"]
    assert set(one) == {"id", "min", "max", "avg", "sum", "skew"}
    (sums,) = client.get(f"{path}/subtasks/metrics?get=numRecordsIn&agg=sum&subtasks=0").json
    assert set(sums) == {"id", "sum"}
    assert client.get(f"{path}/subtasks/metrics?get=a&agg=median").status == 400
    assert client.get(f"{path}/metrics?get={'a,' * 1001}").status == 400
    (restarts,) = client.get(f"/jobs/{run.job.id}/metrics?get=numRestarts").json
    assert restarts == {"id": "numRestarts", "value": "1"}


def test_the_figures_are_those_of_the_job(job):
    run, client = job
    document = client.get(f"/millstream/jobs/{run.job.id}").json
    source, window, sink = document["vertices"]
    assert [v["kind"] for v in document["vertices"]] == ["source", "operator", "sink"]
    assert [v["level"] for v in document["vertices"]] == [0, 1, 2]
    assert source["records_in"] == document["records"] > 1200
    assert sum(part["records_in"] for part in source["subtasks"]) == source["records_in"]
    assert document["restarts"] == 1
    assert [edge["strategy"] for edge in document["edges"]] == ["HASH", "REBALANCE"]
    assert document["edges"][0]["from"] == source["id"]
    assert document["edges"][1]["to"] == sink["id"]
    assert window["watermark"] > 0
    assert window["state_bytes"] > 0
    (failure,) = document["exceptions"]
    assert (failure["code"], failure["operator"]) == ("USER_FUNCTION_FAILED", "check")
    assert failure["record"] == "(3, 1200)"
    assert "raise ValueError" in failure["line"]
    assert document["checkpoints"]["restored"]["id"] >= 0
    newest, *_, oldest = document["checkpoints"]["history"]
    assert newest["started"] >= oldest["started"]
    details = client.get(f"/jobs/{run.job.id}").json
    assert details["vertices"][0]["metrics"]["read-records"] >= source["records_in"]
    assert [n["inputs"][0]["ship_strategy"] for n in details["plan"]["nodes"][1:]] == [
        "HASH",
        "REBALANCE",
    ]
    assert "&lt;b&gt;drop" in details["plan"]["nodes"][2]["description"]
    (line,) = client.get("/jobs/overview").json["jobs"]
    assert line["tasks"]["total"] == line["tasks"]["running"] == 5


def test_the_history_goes_by_the_ids_of_vertices(job):
    run, client = job
    number = run.job.plan.vertices[1].id

    run.metrics.history = history = History()
    history.add(1.5, {"backlog": 1.0, f"busy.{number}": 0.5})
    history.add(2.5, {f"busy.{number}": 0.25})
    document = client.get(f"/millstream/jobs/{run.job.id}").json
    assert document["history"]["times"] == [1500, 2500]
    assert document["history"]["series"] == {
        "backlog": [1.0, None],
        f"busy.{document['vertices'][1]['id']}": [0.5, 0.25],
    }


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/jobs/none", 404),
        ("/jobs/{job}/vertices/none", 404),
        ("/jobs/{job}/vertices/{vertex}/subtasks/2", 404),
        ("/jobs/{job}/vertices/{vertex}/subtasks/-1", 400),
        ("/jobs/{job}/checkpoints/details/999999", 404),
        ("/jobs/{job}/checkpoints/details/x", 400),
        ("/jobs/{job}/exceptions?maxExceptions=x", 400),
        ("/jobs/{job}/exceptions?maxExceptions=0", 200),
        ("/jobs/{job}/nothing", 404),
        ("/jobs/{job}/", 404),
        ("/taskmanagers/none", 404),
        ("/jobmanager/logs/other", 404),
        ("/millstream/jobs/{job}/log?lines=99999999999", 200),
    ],
)
def test_what_is_not_there_is_said(job, path, status):
    run, client = job
    vertex = client.get(f"/millstream/jobs/{run.job.id}").json["vertices"][1]["id"]
    assert client.get(path.format(job=run.job.id, vertex=vertex)).status == status


def test_no_secret_is_shown(job):
    """A setting, an exception's text and a line of the program hold one each."""
    run, client = job
    client.get(f"/jobs/{run.job.id}/savepoints/{SECRETS[0]}")
    paths = [
        path_of(e, run, client)
        for e in ROUTES
        if e.method == "GET" and not {":triggerid"} & set(e.path.split("/")) and not e.page_only
    ]
    shown = {path: client.get(path).body.decode() for path in paths}
    assert "password=***" in shown[f"/jobs/{run.job.id}/exceptions"]
    assert '"spark.hadoop.fs.s3a.secret.key","value":"******"' in shown["/jobmanager/config"]
    found = [(path, secret) for path, text in shown.items() for secret in SECRETS if secret in text]
    assert not found


# -- changes ----------------------------------------------------------------------------------------


def savepoint(run, client, path, body):
    asked = client.request("POST", f"/jobs/{run.job.id}/{path}", OWN, json.dumps(body).encode())
    assert asked.status == 202, asked.body
    where = f"/jobs/{run.job.id}/savepoints/{asked.json['request-id']}"
    until(lambda: client.get(where).json["status"]["id"] == "COMPLETED")
    return client.get(where).json["operation"]


def test_a_job_is_cancelled(job, caplog):
    run, client = job
    answer = client.request("PATCH", f"/jobs/{run.job.id}", OWN)
    assert (answer.status, answer.json) == (202, {})
    assert client.get(f"/jobs/{run.job.id}/status").json["status"] in ("CANCELLING", "CANCELED")
    assert run.wait(60)
    assert client.get(f"/jobs/{run.job.id}/status").json == {"status": "CANCELED"}
    assert f"cancel of job {run.job.id} (orders) asked by 127.0.0.1" in caplog.text
    assert client.request("PATCH", f"/jobs/{run.job.id}", OWN).status == 202
    assert client.request("PATCH", f"/jobs/{run.job.id}?mode=stop", OWN).status == 410


def requirements(run, client):
    return client.get(f"/jobs/{run.job.id}/resource-requirements").json


def require(run, client, wanted):
    path = f"/jobs/{run.job.id}/resource-requirements"
    return client.request("PUT", path, OWN, json.dumps(wanted).encode())


def test_a_job_is_rescaled(job, caplog):
    """Its source has two splits and so two subtasks at most, and the program has set the parallelism of the sink."""
    run, client = job
    before = requirements(run, client)
    assert sorted(one["parallelism"]["upperBound"] for one in before.values()) == [1, 2, 2]
    wanted = {
        id_: {"parallelism": {"lowerBound": 1, "upperBound": 3 if upper == 2 else 1}}
        for id_, one in before.items()
        for upper in [one["parallelism"]["upperBound"]]
    }
    answer = require(run, client, wanted)
    assert (answer.status, answer.json) == (200, {})
    # The source and what was chained to it are two vertices now.
    until(lambda: len(requirements(run, client)) == 4)
    assert f"parallelism 3 of job {run.job.id} (orders) asked by 127.0.0.1" in caplog.text
    vertices = client.get(f"/jobs/{run.job.id}").json["vertices"]
    assert sorted(vertex["parallelism"] for vertex in vertices) == [1, 2, 3, 3]
    for vertex in vertices:
        detail = client.get(f"/jobs/{run.job.id}/vertices/{vertex['id']}").json
        assert len(detail["subtasks"]) == vertex["parallelism"]


def test_requirements_that_cannot_be_are_refused(job):
    run, client = job
    before = requirements(run, client)
    first, *others = before
    three = {"parallelism": {"lowerBound": 1, "upperBound": 3}}
    refused = {
        "has to name every vertex": {first: three},
        "not above the upper": {
            key: {"parallelism": {"lowerBound": 4, "upperBound": 3}} for key in before
        },
        "above its maximum parallelism, 128": {
            key: {"parallelism": {"lowerBound": 1, "upperBound": 129}} for key in before
        },
        "name the same upper bound": {**before, first: three},
        "cannot be read": {first: {"parallelism": {"most": 3}}},
    }
    for why, wanted in refused.items():
        answer = require(run, client, wanted)
        assert answer.status == 400, why
        assert why.replace("has to", "have to") in answer.body.decode()
    assert others
    assert requirements(run, client) == before
    run.cancel()
    assert require(run, client, before).status == 409


def test_a_savepoint_is_taken(job, folder, caplog):
    run, client = job
    operation = savepoint(run, client, "savepoints", {})
    assert operation["location"].startswith(str(folder / "savepoints"))
    assert Path(operation["location"]).exists()
    assert run.status.name == "RUNNING"
    assert f"savepoint of job {run.job.id} (orders)" in caplog.text
    history = client.get(f"/jobs/{run.job.id}/checkpoints").json
    assert history["latest"]["savepoint"]["external_path"] == operation["location"]


def test_a_job_is_stopped_with_a_savepoint(job, folder, caplog):
    run, client = job
    operation = savepoint(run, client, "stop", {"drain": True, "targetDirectory": None})
    assert Path(operation["location"]).exists()
    assert run.wait(60)
    assert client.get(f"/jobs/{run.job.id}/status").json == {"status": "FINISHED"}
    assert "stop with a savepoint of job" in caplog.text
    assert "with drain asked by" in caplog.text
    for path in ("stop", "savepoints"):
        assert client.request("POST", f"/jobs/{run.job.id}/{path}", OWN, b"{}").status == 409


def test_the_same_stop_twice_is_one(job):
    """Whoever has not got the answer asks again, and the job may have stopped by then."""
    run, client = job
    body = {"triggerId": "d" * 32}
    operation = savepoint(run, client, "stop", body)
    assert run.wait(60)
    assert savepoint(run, client, "stop", body) == operation


def test_a_savepoint_of_a_job_that_ends_before_it_is_cancelled():
    taken: CompletableFuture[str] = CompletableFuture()
    run = SimpleNamespace(done=False, savepoint=lambda *path, **how: taken)
    settings = SimpleNamespace(savepoint_dir="/data", checkpoint_dir=None)
    shown = SimpleNamespace(id="a" * 32, name="n", state="FINISHED", run=run, settings=settings)
    control = Control(any_savepoint_dir=False)
    trigger = control.savepoint(shown, SavepointBody(cancel_job=True), "127.0.0.1")
    run.done = True
    taken.set_result("/data/savepoint-1")
    until(lambda: control.outcome(shown, trigger)["status"]["id"] == "COMPLETED", seconds=10)
    assert control.outcome(shown, trigger)["operation"] == {"location": "/data/savepoint-1"}


def test_a_savepoint_may_end_the_job(job):
    run, client = job
    savepoint(run, client, "savepoints", {"cancel-job": True})
    assert run.wait(60)
    assert client.get(f"/jobs/{run.job.id}/status").json == {"status": "CANCELED"}


def test_the_same_request_twice_is_one(job):
    run, client = job
    body = json.dumps({"triggerId": "c" * 32}).encode()
    for _ in range(2):
        asked = client.request("POST", f"/jobs/{run.job.id}/savepoints", OWN, body)
        assert asked.json == {"request-id": "c" * 32}
    until(
        lambda: (
            client.get(f"/jobs/{run.job.id}/savepoints/{'c' * 32}").json["status"]["id"]
            == "COMPLETED"
        )
    )
    assert run.metrics.checkpoint_log.savepoints == 1


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b'{"cancel-job": 1}', 400),
        (b'{"target": "x"}', 400),
        (b'{"triggerId": "../x"}', 400),
        (b'{"target-directory": "/etc"}', 403),
        (b'{"target-directory": "SAVEPOINTS/../../x"}', 403),
        (b'{"target-directory": "SAVEPOINTS/%2e%2e/x"}', 403),
        (b'{"target-directory": "SAVEPOINTS\\u0000x"}', 403),
        (b'{"target-directory": "SAVEPOINTS/link/x"}', 403),
        (b'{"target-directory": "SAVEPOINTS2"}', 403),
        (b'{"target-directory": "file:///etc"}', 403),
        (b'{"target-directory": "s3://bucket/x"}', 403),
        (b'{"target-directory": ""}', 403),
        (b"\xff\xfe", 400),
    ],
)
def test_a_request_that_cannot_be_is_refused(job, folder, body, status):
    run, client = job
    (folder / "savepoints" / "link").symlink_to("/tmp")
    body = body.replace(b"SAVEPOINTS", str(folder / "savepoints").encode())
    answer = client.request("POST", f"/jobs/{run.job.id}/savepoints", OWN, body)
    assert answer.status == status, answer.body
    assert "errors" in answer.json


def test_a_folder_below_the_jobs_own_is_taken_and_any_if_that_is_allowed(job, folder, tmp_path):
    run, client = job
    below = str(folder / "savepoints" / "for-ann")
    assert savepoint(run, client, "savepoints", {"target-directory": below})["location"].startswith(
        below
    )
    other = str(tmp_path / "elsewhere")
    allowing = Client(application([run], any_savepoint_dir=True))
    asked = {"target-directory": other}
    assert savepoint(run, allowing, "savepoints", asked)["location"].startswith(other)
    up = json.dumps({"target-directory": f"{other}/../x"}).encode()
    answer = allowing.request("POST", f"/jobs/{run.job.id}/savepoints", OWN, up)
    assert answer.status == 403


def test_a_job_without_a_folder_for_savepoints_says_so():
    with served() as (run, client):
        answer = client.request("POST", f"/jobs/{run.job.id}/savepoints", OWN, b"")
        assert answer.status == 400
        assert "savepoint-dir" in answer.json["errors"][0]


def test_a_savepoint_that_fails_says_why_and_not_where(job, monkeypatch):
    run, client = job

    def broken(*args, **kwargs):
        raise OSError("no space, password=hunter2-of-disk")

    monkeypatch.setattr("millstream.runtime.driver.savepoints.write_savepoint", broken)
    failure = savepoint(run, client, "savepoints", {})["failure-cause"]
    assert failure["class"] == "JOB_FAILED"
    assert "no space" in failure["stack-trace"]
    assert "hunter2" not in failure["stack-trace"]
    assert "File " not in failure["stack-trace"]


# -- what stays -------------------------------------------------------------------------------------


def test_a_job_that_has_ended_is_shown_without_being_kept():
    client = start_job(count=500, rate=None)
    run = run_of(client)
    web = Client(application([run]))
    assert run.wait(60)
    job = run.job.id
    before = web.get(f"/jobs/{job}").json
    until(lambda: web.app._services.jobs.get(job).run is None)
    kept = weakref.ref(run.job)
    del client, run
    until(lambda: gc.collect() >= 0 and kept() is None)
    after = web.get(f"/jobs/{job}").json
    assert after["state"] == before["state"] == "FINISHED"
    assert after["vertices"] == before["vertices"]
    assert after["end-time"] > 0
    assert web.get(f"/millstream/jobs/{job}").json["records"] == 500
    assert web.request("PATCH", f"/jobs/{job}", OWN).status == 409


def test_a_job_that_failed_says_where():
    settings = {"restart-strategy.type": "none"}
    client = start_job(settings, count=500, rate=None, fails_at=(7,))
    run = run_of(client)
    web = Client(application([run]))
    assert run.wait(60)
    job = run.job.id
    states = [vertex["status"] for vertex in web.get(f"/jobs/{job}").json["vertices"]]
    assert states == ["FAILED", "CANCELED", "CANCELED"]
    exceptions = web.get(f"/jobs/{job}/exceptions?maxExceptions=1").json
    assert exceptions["exceptionHistory"]["entries"][0]["taskName"] == "Source: orders -> check"
    assert exceptions["root-exception"].startswith("[USER_FUNCTION_FAILED]")


def test_the_last_that_have_ended_stay():
    class Ended:
        """As much of a run as a list of jobs needs."""

        def __init__(self, job):
            self.job, self.done = job, False
            self.status, self.failures, self.metrics, self.since = run.status, [], None, {}

        def on_done(self, call):
            self.end = call

        def engine(self):
            return {}

    from dataclasses import replace

    run = run_of(start_job(count=1, rate=None))
    assert run.wait(60)
    jobs = Jobs()
    runs = [Ended(replace(run.job, id=f"{number:032x}")) for number in range(KEPT + 6)]
    for other in runs:
        jobs.add(other, {})
    for other in runs[1:]:
        other.done = True
        other.end()
    assert [job.id for job in jobs.all()] == [runs[0].job.id, *(r.job.id for r in runs[6:])]


# -- the server of a process ------------------------------------------------------------------------


def fetch(address, path, **headers):
    request = urllib.request.Request(address + path, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.status, json.loads(answer.read())


@pytest.fixture(autouse=True)
def no_server_is_left():
    yield
    stop_server()


def test_a_job_says_where_it_can_be_seen():
    with watched() as (run, address):
        assert run.web_address == address
        assert fetch(address, "/health") == (200, {"status": "up"})
        assert fetch(address, f"/v1/jobs/{run.job.id}/status") == (200, {"status": "RUNNING"})


def test_all_jobs_of_a_process_have_one_server():
    with watched(name="first") as (first, address):
        second = run_of(start_job({"millstream.rest.enabled": "true"}, name="second", count=9))
        assert second.web_address == first.web_address
        assert second.wait(60)
        names = {job["name"]: job["state"] for job in fetch(address, "/jobs/overview")[1]["jobs"]}
        assert names == {"first": "RUNNING", "second": "FINISHED"}


def test_a_forked_child_has_no_server():
    with watched() as (run, address):
        server = server_of_process()
        child = os.fork()
        if child == 0:
            os._exit(0 if server_of_process() is None and server._socket.fileno() < 0 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert server_of_process() is server
        assert fetch(address, "/jobs")[1] == {"jobs": [{"id": run.job.id, "status": "RUNNING"}]}


def test_a_job_cannot_open_the_server_of_another(tmp_path):
    token = tmp_path / "token"
    token.write_text("t" * 43)
    token.chmod(0o600)
    with watched() as (run, address):
        more = {"millstream.rest.enabled": "true", "rest.authentication.token-file": str(token)}
        with pytest.raises(ConfigurationError, match="another job of this process"):
            start_job(more)
        assert fetch(address, "/jobs")[1] == {"jobs": [{"id": run.job.id, "status": "RUNNING"}]}


def test_a_token_is_read_from_its_file(tmp_path):
    token = tmp_path / "token"
    token.write_text("t" * 43 + "\n")
    token.chmod(0o600)
    with watched(options={"rest.authentication.token-file": str(token)}) as (run, address):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            fetch(address, "/jobs")
        status, jobs = fetch(address, "/jobs", Authorization=f"Bearer {'t' * 43}")
        assert (status, jobs["jobs"][0]["id"]) == (200, run.job.id)
        assert fetch(address, "/health")[0] == 200


def test_settings_reach_the_server(tmp_path):
    (tmp_path / "index.html").write_text("a page")
    options = {
        "web.refresh-interval": "7 s",
        "millstream.rest.allowed-hosts": "jobs.example, other.example:1",
        "millstream.rest.any-savepoint-dir": "true",
        "millstream.rest.flink-page": str(tmp_path),
    }
    with watched(options=options) as (run, address):
        assert fetch(address, "/config", Host="jobs.example")[1]["refresh-interval"] == 7000
        with urllib.request.urlopen(f"{address}/flink/", timeout=30) as page:
            assert page.read() == b"a page"
        client = Client(server_of_process()._server.config.app, server_of_process().port)
        asked = {"target-directory": str(tmp_path / "anywhere")}
        assert savepoint(run, client, "savepoints", asked)["location"].startswith(str(tmp_path))


def test_in_process_jobs_are_shown_only_if_somebody_asks():
    run = run_of(start_job(count=1))
    assert run.wait(60)
    assert run.web_address is None
    assert server_of_process() is None


def test_on_spark_jobs_are_shown_unless_somebody_forbids_it(monkeypatch):
    from millstream.datastream import executor

    shown = []
    monkeypatch.setattr(start, "show", lambda run, configuration: shown.append(run))
    run = run_of(start_job(count=1))
    for enabled, count in (("auto", 1), ("true", 2), ("false", 2)):
        options = {"execution.target": "spark", "millstream.rest.enabled": enabled}
        executor.show_run(run, Configuration.from_dict(options))
        assert len(shown) == count


def test_the_next_free_port_is_taken():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with start.listen("127.0.0.1", port) as listening:
            assert port < listening.getsockname()[1] < port + start.PORTS


def test_without_any_port_a_job_runs_if_nobody_wanted_to_see_it(monkeypatch, caplog):
    monkeypatch.setattr(start, "PORTS", 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        options = {"rest.port": str(taken.getsockname()[1])}
        with pytest.raises(ConfigurationError, match="no port"):
            start_job({**options, "millstream.rest.enabled": "true"})
        run = run_of(start_job(count=1))
        start.show(run, Configuration.from_dict(options))
        assert run.web_address is None
        assert "cannot be watched" in caplog.text


def test_who_would_let_anybody_in_does_not_start():
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(
            {
                "execution.target": "in-process",
                "millstream.rest.enabled": "true",
                "rest.bind-address": "0.0.0.0",
            }
        )
    )
    env.from_collection([1]).print()
    with pytest.raises(ConfigurationError, match="nothing says who may"):
        env.execute("open")
    assert server_of_process() is None


def test_no_job_waits_for_the_web_stack():
    import subprocess
    import sys

    program = (
        "import sys; import millstream.rest.start, millstream.datastream.executor;"
        "print([name for name in ('starlette', 'uvicorn', 'h11') if name in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "[]"


def test_the_log_is_what_the_package_wrote(job, caplog):
    run, client = job
    LOGS.attach()
    from millstream.redaction import get_logger

    get_logger("millstream.test").warning("a line, token=%s", SECRETS[0])
    lines = client.get(f"/millstream/jobs/{run.job.id}/log?lines=1").json["lines"]
    assert len(lines) == 1
    assert lines[0].endswith("WARNING millstream.test MainThread: a line, token=***")
    assert lines[0] in client.get("/jobmanager/logs/millstream.log").body.decode()
    LOGS.attach()
    get_logger("millstream.test").warning("another")
    assert [line for line in LOGS.last(2) if "another" in line] == LOGS.last(1)
