"""The reporters: what Prometheus and JSON lines say of a job is what the driver knows of it."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from millstream.api.functions import ProcessFunction, RuntimeContext
from millstream.common import Configuration, WatermarkStrategy, options
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import ConfigurationError
from millstream.graph.operators import CollectOp
from millstream.redaction import remember
from millstream.reporters import catalogue, json_lines, prometheus
from millstream.reporters.catalogue import job_values, operator_values, task_values
from millstream.reporters.json_lines import JsonLinesReporter, document
from millstream.reporters.moment import id_of, look, user_totals
from millstream.reporters.prometheus import Address, families
from millstream.reporters.samples import OF_JOB, OF_OPERATOR, OF_TASK, Sample, samples_of
from millstream.reporters.start import reporters_of
from millstream.runtime.driver.metrics import OperatorMetrics, UserMetricTotal
from millstream.runtime.wire.reports import LatencyReport, UserMetric
from tests.inprocess.test_damage import Numbers
from tests.waiting import until

COUNT = 200


class Counting(ProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group()
        self.seen = group.add_group("parity", "even").counter("seen")
        self.sizes = group.distribution("sizes")
        group.gauge("level", lambda: 7)
        group.meter("events")

    def process_element(self, value, ctx):
        self.seen.inc(value % 2 == 0)
        self.sizes.update(value)
        yield value


class Own(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value


def started(settings=None, name="a job", operator="Count", count=COUNT):
    """A job that has read all there is, and waits for more."""
    config = Configuration.from_dict(
        {"execution.target": "in-process", "millstream.epoch.records": 50, **(settings or {})}
    )
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(2)
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Own())
    source = env.from_source(Numbers(count, bounded=False), times, "numbers")
    counted = source.rebalance().process(Counting()).name(operator).uid("count")
    counted._sink("out", CollectOp(lambda rows: None))
    client = env.execute_async(name)
    run = client._run
    until(lambda: run.metrics is not None and run.metrics.records == count)
    return run


@pytest.fixture
def jobs():
    """Starts jobs, which are cancelled in the end."""
    runs = []

    def start(*args, **kwargs):
        runs.append(started(*args, **kwargs))
        return runs[-1]

    yield start
    for run in runs:
        run.cancel()


PROM = {"metrics.reporters": "prom", "metrics.reporter.prom.port": "0"}


def page():
    """What the one page of this process is."""
    (only,) = prometheus._pages.open.values()
    return only.url


def scraped(url=None, **headers):
    request = urllib.request.Request(url or page(), headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


def series(text):
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def values(text, name, **labels):
    """The values of the series of a name that have these labels."""
    return [
        value
        for (of, having), value in series(text).items()
        if of == name and labels.items() <= dict(having).items()
    ]


# -- the catalogue ------------------------------------------------------------------------------------------------


def test_the_catalogue_reads_what_the_driver_has(jobs):
    run = jobs()
    at = look(run)
    assert at is not None
    job = job_values(at)
    assert job["numRecordsIn"] == COUNT
    assert job["currentEpoch"] == run.metrics.epoch
    assert job["pendingRecords"] == job["numRestarts"] == job["downtime"] == 0
    assert job["watermarkLag"] > 0
    tasks: list[tuple[Any, dict[str, Any]]] = [(task, task_values(task)) for task in at.tasks()]
    reading = [values for task, values in tasks if task.vertex.is_source]
    mapping = [values for task, values in tasks if not task.vertex.is_source]
    assert sum(values["numRecordsOut"] for values in reading) == COUNT
    assert sum(values["numRecordsIn"] for values in mapping) == COUNT
    # Watermarks come in at the second vertex, which hands them on; the sources make their own.
    assert {values["currentInputWatermark"] for values in mapping} == {COUNT - 2}
    assert {values["currentOutputWatermark"] for values in mapping} == {COUNT - 2}
    assert not any("currentOutputWatermark" in values for values in reading)
    assert all(values["isBackPressured"] in (0, 1) for values in reading)
    names = [operator.node.name for operator in at.operators(tasks[-1][0])]
    assert names[0] == "Count"
    assert set(operator_values(next(at.operators(tasks[0][0])))) == {
        metric.name for metric in catalogue.OPERATOR
    }
    run.cancel()
    ended = job_values(look(run))
    assert (ended["uptime"], ended["downtime"]) == (-1, -1)


def test_checkpoints(jobs, tmp_path):
    run = jobs(
        {"execution.checkpointing.dir": str(tmp_path), "execution.checkpointing.interval": "1 s"}
    )
    log = run.metrics.checkpoint_log
    until(lambda: log.completed and log.records[-1].status == "COMPLETED")
    at = look(run)
    job = job_values(at)
    assert job["numberOfCompletedCheckpoints"] == log.completed
    assert job["lastCompletedCheckpointId"] == at.last.id
    assert job["lastCheckpointFullSize"] >= job["lastCheckpointSize"] > 0
    assert job["lastCheckpointExternalPath"].startswith(str(tmp_path))
    # One subtask reads the only split; the other has no part in a checkpoint.
    aligned = [task for task in at.tasks() if "checkpointAlignmentTime" in task_values(task)]
    assert len(aligned) == len(list(at.tasks())) - 1
    # Prometheus knows numbers only.
    assert OF_JOB + "lastCheckpointDuration" in {sample.name for sample in samples_of(at)}
    assert OF_JOB + "lastCheckpointExternalPath" not in {sample.name for sample in samples_of(at)}


def test_latency_and_lag_have_labels_of_their_own(jobs):
    run = jobs()
    from millstream.runtime.base.histogram import Histogram

    histogram = Histogram()
    for milliseconds in range(1, 101):
        histogram.add(milliseconds / 1000)
    run.metrics.latency["count"] = histogram
    told = {(s.name, labels): value for s, labels, value in catalogue.series_values(look(run))}
    assert told["latency", (id_of("count"), "Count", "0.99")] == pytest.approx(99, rel=0.03)
    assert told["latency", (id_of("count"), "Count", "1")] == 100
    assert told["sourceLag", ("Source: numbers", "only")] == 0
    assert LatencyReport().largest == 0


def test_names_of_a_scope_are_told_apart():
    for metrics in (catalogue.JOB, catalogue.TASK, catalogue.OPERATOR, catalogue.SERIES):
        names = [metric.name for metric in metrics]
        assert len(names) == len(set(names))
        assert all(
            m.meaning.endswith(".") and m.kind in {"counter", "gauge", "meter"} for m in metrics
        )


def test_user_metrics_over_all_subtasks():
    parts = [OperatorMetrics() for _ in range(3)]
    for number, part in enumerate(parts, 1):
        part.add(
            [
                UserMetric(name="c", kind="counter", count=number),
                UserMetric(name="m", kind="meter", count=number, value=number / 2),
                UserMetric(
                    name="d",
                    kind="distribution",
                    count=1,
                    value=number,
                    least=number,
                    largest=number,
                ),
                UserMetric(name="g", kind="gauge", value=number),
            ]
        )
    parts[2].user[(), "c"] = UserMetricTotal("gauge", value=5)
    totals = user_totals(parts)
    assert totals[(), "c"] == UserMetricTotal("counter", count=3)
    assert totals[(), "m"] == UserMetricTotal("meter", count=6, value=3)
    assert totals[(), "d"] == UserMetricTotal("distribution", 3, 6, 1, 3)
    assert totals[(), "g"] == UserMetricTotal("gauge", 3, 6, 1, 3)


# -- Prometheus ---------------------------------------------------------------------------------------------------


def test_prometheus_says_what_the_driver_knows(jobs):
    run = jobs(PROM)
    text = scraped()
    assert sum(values(text, OF_TASK + "numRecordsIn", task_id=id_of("count"))) == COUNT
    by_subtask = [s.records_in for s in list(run.metrics.vertices.values())[-1].subtasks]
    for index, count in enumerate(by_subtask):
        labels = {"task_id": id_of("count"), "subtask_index": str(index)}
        assert values(text, OF_TASK + "numRecordsIn", **labels) == [count]
    assert values(text, OF_JOB + "numRestarts") == [0]
    seen = OF_OPERATOR + "parity_seen"
    assert sum(values(text, seen, parity="even", operator_name="Count")) == COUNT // 2
    assert sum(values(text, OF_OPERATOR + "sizes_sum")) == sum(range(COUNT))
    assert max(values(text, OF_OPERATOR + "sizes_max")) == COUNT - 1
    assert values(text, OF_OPERATOR + "level") == [7, 7]
    assert "_total{" not in text
    # All that the driver knows is there, and nothing else.
    at = look(run)
    assert {sample.name for sample in samples_of(at)} == {name for name, _ in series(text)}
    assert "# TYPE flink_taskmanager_job_task_numRecordsIn gauge" in text


def test_names_of_labels(jobs):
    jobs(PROM)
    by_name: dict[str, set[str]] = {}
    for name, labels in series(scraped()):
        by_name.setdefault(name, set()).update(label for label, _ in labels)
    task = {"host", "tm_id", "job_id", "job_name", "task_id", "task_name", "subtask_index"}
    assert by_name[OF_JOB + "uptime"] == {"host", "job_id", "job_name"}
    assert by_name[OF_TASK + "numRecordsIn"] == task
    assert by_name[OF_OPERATOR + "numRecordsIn"] == task | {"operator_id", "operator_name"}
    assert by_name[OF_OPERATOR + "parity_seen"] == by_name[OF_OPERATOR + "level"] | {"parity"}


def test_the_format_of_open_metrics(jobs):
    from prometheus_client.openmetrics.parser import (
        text_string_to_metric_families as open_families,
    )

    jobs(PROM)
    text = scraped(Accept="application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    assert OF_JOB + "uptime" in {family.name for family in open_families(text)}


def test_two_jobs_share_a_page_and_leave_it(jobs):
    first, second = jobs(PROM, name="first"), jobs(PROM, name="second")
    url = page()
    names = {dict(labels)["job_name"] for _, labels in series(scraped())}
    assert names == {"first", "second"}
    first.cancel()
    until(lambda: {dict(labels)["job_name"] for _, labels in series(scraped(url))} == {"second"})
    second.cancel()
    until(lambda: not prometheus._pages.open)
    with pytest.raises(OSError):
        scraped(url)


def test_names_that_mean_harm(jobs):
    secret = "hunter2-hunter2"
    remember(secret)
    evil = f'a"}} 1\nfake_metric{{x="\\ {secret} \x1b[2J'
    jobs(PROM, name=evil, operator=evil)
    text = scraped()
    assert secret not in text
    assert "\x1b" not in text
    assert not values(text, "fake_metric")
    (name,) = {dict(labels)["job_name"] for _, labels in series(text)}
    assert name == 'a"} 1\nfake_metric{x="\\ *** \\x1b[2J'


def test_groups_whose_names_are_odd():
    part = OperatorMetrics()
    told = [
        UserMetric(name="n", kind="gauge", groups=(("job_name", "mine"), ("0 x", "y")), value=1),
        UserMetric(name="a.b", kind="gauge", value=1),
        UserMetric(name="a_b", kind="gauge", value=2),
        UserMetric(name="numRecordsIn", kind="gauge", value=3),
    ]
    part.add(told)
    from millstream.reporters import samples

    operator = type("Operator", (), {"metrics": part})
    made = list(samples._of_functions(operator, {"job_name": "ours"}))
    assert made[0].name == OF_OPERATOR + "job_name_0_x_n"
    assert made[0].labels == {"job_name": "ours", "exported_job_name": "mine", "_0_x": "y"}
    ours = Sample(OF_OPERATOR + "numRecordsIn", {"job_name": "ours"}, 9, "")
    # Two that would be one series are refused as a page: the first is shown.
    shown = {f.name: [s.value for s in f.samples] for f in families([ours, *made])}
    assert shown[OF_OPERATOR + "numRecordsIn"] == [9]
    assert shown[OF_OPERATOR + "a_b"] == [1]


def test_groups_in_another_order_are_no_second_series():
    samples = [Sample("x", {"a": "1", "b": "2"}, 1, ""), Sample("x", {"b": "2", "a": "1"}, 2, "")]
    assert [s.value for f in families(samples) for s in f.samples] == [1]


def test_names_of_metrics_tell_no_secrets():
    part = OperatorMetrics()
    part.add([UserMetric(name="password=hunter2", kind="gauge", groups=(("token=abc", "v"),))])
    from millstream.reporters import samples

    operator = type("Operator", (), {"metrics": part})
    (made,) = samples._of_functions(operator, {})
    assert "hunter2" not in made.name
    assert "abc" not in made.name + "".join(made.labels)


def test_labels_that_are_not_wanted_and_values_as_flink_has_them(jobs):
    of_flink = "org.apache.flink.metrics.prometheus.PrometheusReporterFactory"
    jobs(
        {
            "metrics.reporter.mine.factory.class": of_flink,
            "metrics.reporter.mine.port": "0",
            "metrics.reporter.mine.scope.variables.excludes": "tm_id;host",
            "metrics.reporter.mine.filterLabelValueCharacters": "true",
        }
    )
    labels = [dict(labels) for _, labels in series(scraped())]
    assert not any({"tm_id", "host"} & set(of) for of in labels)
    assert {of["job_name"] for of in labels} == {"a_job"}


def test_a_port_that_is_taken(jobs, caplog):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = jobs(PROM | {"metrics.reporter.prom.port": f"{port}"})
        assert "there is no page of metrics" in caplog.text
        assert not prometheus._pages.open
        assert run.metrics.records == COUNT
        run.cancel()
        # Of several the first that is free.
        other = socket.create_server(("127.0.0.1", 0))
        free = other.getsockname()[1]
        other.close()
        jobs(PROM | {"metrics.reporter.prom.port": f"{port},{free}"})
        assert page() == f"http://127.0.0.1:{free}/metrics"


def test_no_web_site_reaches_it_by_a_name_of_its_own(jobs):
    jobs(PROM)
    with pytest.raises(urllib.error.HTTPError) as refused:
        scraped(Host="evil.example")
    assert refused.value.code == 403
    assert scraped(Host="localhost:9249")


def test_scraping_while_jobs_begin_and_end():
    """Figures change and jobs go while they are read."""
    stop, failures, scrapes = threading.Event(), [], []

    def scrape():
        while not stop.is_set():
            pages = list(prometheus._pages.open.values())
            try:
                scrapes.extend(series(scraped(page.url)) for page in pages)
            except (urllib.error.URLError, ConnectionError):
                continue
            except Exception as error:
                failures.append(error)

    thread = threading.Thread(target=scrape)
    thread.start()
    for _ in range(3):
        run = started(PROM, count=1000)
        until(lambda: bool(scrapes))
        scrapes.clear()
        run.cancel()
    stop.set()
    thread.join()
    assert failures == []


def test_off_costs_nothing():
    """No module, no thread."""
    program = """
import sys, threading
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
config = Configuration.from_dict({"execution.target": "in-process"})
env = StreamExecutionEnvironment.get_execution_environment(config)
assert list(env.from_collection([1, 2]).map(str).execute_and_collect()) == ["1", "2"]
print([m for m in sys.modules if m.startswith(("millstream.reporters", "prometheus_client"))])
print([t.name for t in threading.enumerate() if "prometheus" in t.name or "metrics" in t.name])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["[]", "[]"]


# -- JSON lines ---------------------------------------------------------------------------------------------------


def lines(path):
    if not path.exists():
        return []
    # The last one may just be being written.
    whole, _, _ = path.read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def with_json(path, **more):
    settings = {"metrics.reporters": "json", "metrics.reporter.json.path": str(path)}
    return settings | {f"metrics.reporter.json.{key}": value for key, value in more.items()}


def test_json_lines_say_what_the_driver_knows(jobs, tmp_path):
    path = tmp_path / "metrics.jsonl"
    run = jobs(with_json(path, interval="1 ms"))
    until(lambda: any(line["job"]["numRecordsIn"] == COUNT for line in lines(path)))
    run.cancel()
    until(lambda: (written := lines(path)) and written[-1]["last"])
    *_, last = lines(path)
    assert (last["job_name"], last["state"]) == ("a job", "CANCELED")
    assert last == document(look(run, last["at"] / 1000), last=True)
    counted = [t for t in last["tasks"] if t["task_id"] == id_of("count")]
    assert sum(task["values"]["numRecordsIn"] for task in counted) == COUNT
    user = [metric for task in counted for metric in task["operators"][0]["user"]]
    seen = [metric for metric in user if metric["name"] == "parity.seen"]
    assert sum(metric["count"] for metric in seen) == COUNT // 2
    assert {metric["labels"]["parity"] for metric in seen} == {"even"}


def test_json_and_prometheus_agree(jobs):
    run = jobs()
    at = look(run)
    lines_say = document(at)
    prometheus_says = list(samples_of(at))
    for task in lines_say["tasks"]:
        for name, value in task["values"].items():
            same = [
                sample.value
                for sample in prometheus_says
                if sample.name == OF_TASK + name
                and sample.labels["task_id"] == task["task_id"]
                and sample.labels["subtask_index"] == str(task["subtask_index"])
            ]
            assert same == [value]


def test_a_file_that_becomes_too_large_makes_place(jobs, tmp_path):
    path = tmp_path / "metrics.jsonl"
    run = jobs(with_json(path, interval="1 ms", **{"max-size": "20 kb"}))
    before = path.with_name("metrics.jsonl.1")
    until(before.exists)
    run.cancel()
    # A new file may just have been begun.
    until(lambda: (written := lines(path)) and written[-1]["last"])
    assert path.stat().st_size <= 20 << 10
    assert before.stat().st_size <= 20 << 10
    assert lines(before)
    assert {file.name for file in tmp_path.iterdir()} == {path.name, before.name}


def test_a_full_disk_hurts_nobody(tmp_path, monkeypatch, caplog):
    path = tmp_path / "metrics.jsonl"
    reporter = JsonLinesReporter(str(path), 10, 1 << 20)
    write, room = os.write, [4, 0, 0]

    def until_full(file, data):
        """A few bytes of the first line and nothing of the second; then there is room again."""
        if not room:
            return write(file, data)
        left = room.pop(0)
        if left:
            return write(file, data[:left])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(json_lines.os, "write", until_full)
    for number in range(4):
        reporter._write(json.dumps({"line": number}))
    monkeypatch.undo()
    assert caplog.text.count("metrics cannot be written") == 1
    torn, *whole = path.read_text().splitlines()
    assert torn == '{"li'
    assert [json.loads(line)["line"] for line in whole] == [2, 3]


def test_a_folder_that_is_not_there(jobs, tmp_path, caplog):
    run = jobs(with_json(tmp_path / "no" / "such" / "file", interval="1 ms"))
    until(lambda: "metrics cannot be written" in caplog.text)
    assert run.metrics.records == COUNT


@pytest.mark.parametrize("what", ["folder", "pipe"])
def test_a_path_that_is_no_file_stays_as_it_is(what, tmp_path, caplog):
    path = tmp_path / what
    path.mkdir() if what == "folder" else os.mkfifo(path)
    reporter = JsonLinesReporter(str(path), 10, max_size=1)
    reporter._write("{}")
    assert "metrics cannot be written" in caplog.text
    assert [file.name for file in tmp_path.iterdir()] == [what]


def test_sums_without_end_are_no_json(jobs):
    run = jobs()
    (operator,) = next(
        v for v in run.metrics.vertices.values() if "count" in v.operators
    ).operators["count"][:1]
    for _ in range(3):
        operator.user[(), "sizes"].add(UserMetric(name="sizes", kind="distribution", value=1e308))
    at = look(run)
    assert at is not None
    text = json.dumps(document(at), allow_nan=False)
    assert '"value": null' in text


def test_the_last_line_is_written_before_the_process_ends(tmp_path):
    path = tmp_path / "metrics.jsonl"
    program = f"""
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
config = Configuration.from_dict({{
    "execution.target": "in-process",
    "metrics.reporters": "json",
    "metrics.reporter.json.path": {str(path)!r},
}})
env = StreamExecutionEnvironment.get_execution_environment(config)
env.from_collection([1, 2]).map(str).print()
env.execute("short")
"""
    subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    (only,) = lines(path)
    assert only["last"]
    assert (only["state"], only["job"]["numRecordsIn"]) == ("FINISHED", 2)


# -- what is configured -------------------------------------------------------------------------------------------


def test_both_by_name():
    made = reporters_of(
        {"metrics.reporters": "[prom, json, prom]", "metrics.reporter.json.path": "m.jsonl"}
    )
    assert [type(reporter).__name__ for reporter in made] == [
        "PrometheusReporter",
        "JsonLinesReporter",
    ]


def test_who_has_a_factory_starts_unless_others_are_named():
    mine = {
        "metrics.reporter.mine.factory.class": "prom",
        "metrics.reporter.mine.port": "9250-9252",
    }
    (reporter,) = reporters_of(mine)
    assert reporter._address == Address("127.0.0.1", (9250, 9251, 9252))
    assert reporters_of(mine | {"metrics.reporters": ""}) == []


def test_a_reporter_of_flinks_that_is_not_there(caplog):
    settings = {
        "metrics.reporter.jmx.factory.class": "org.apache.flink.metrics.jmx.JMXReporterFactory"
    }
    assert reporters_of(settings) == []
    assert "there is no metrics reporter jmx" in caplog.text


@pytest.mark.parametrize(
    "settings",
    [
        {"metrics.reporters": "graphite"},
        {"metrics.reporters": "json"},
        {"metrics.reporters": "prom", "metrics.reporter.prom.port": "many"},
        {"metrics.reporters": "prom", "metrics.reporter.prom.port": "9260-9250"},
        {"metrics.reporters": "prom", "metrics.reporter.prom.port": "70000"},
    ],
)
def test_what_cannot_be(settings):
    with pytest.raises(ConfigurationError):
        reporters_of(settings)


def test_values_are_checked_before_a_job_begins():
    config = Configuration.from_dict({"metrics.reporter.prom.port": "many"})
    with pytest.raises(ConfigurationError) as caught:
        options.check_values(config)
    assert caught.value.evidence["key"] == "metrics.reporter.prom.port"


def test_a_key_that_no_reporter_has():
    config = Configuration.from_dict({"metrics.reporter.prom.prot": "9249"})
    assert options.check_known(config) == [
        "unknown configuration key 'metrics.reporter.prom.prot'; "
        "did you mean 'metrics.reporter.prom.port'?"
    ]
