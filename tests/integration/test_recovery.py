"""Recovery on Spark: restarts, lost drivers, streaming frames, savepoints and state frames."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest

import millstream.state
from millstream.common.serialization import Encoder
from millstream.common.typeinfo import Types
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.datagen import DataGeneratorSource
from millstream.datastream import KeyedProcessFunction
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink
from millstream.datastream.state import ValueStateDescriptor
from millstream.graph.operators import CollectOp
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

NO_WATERMARKS = WatermarkStrategy.no_watermarks()


class Count(KeyedProcessFunction):
    """Counts; kills its own process once, at a given record, if told where to leave a note of it."""

    def __init__(self, note=None, at=None, how="raise"):
        self.note, self.at, self.how = note, at, how

    def open(self, ctx):
        self.count = ctx.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        if value == self.at and not os.path.exists(self.note):
            open(self.note, "w").close()
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("once")
        self.count.update((self.count.value() or 0) + 1)
        yield ctx.get_current_key(), self.count.value()


def counted(results):
    return Counter(map(tuple, results))


def expected(count, keys=7):
    return Counter((n % keys, n // keys + 1) for n in range(count))


def numbers(env, count, rate=None):
    source = DataGeneratorSource(lambda n: n, count, rate)
    return env.from_source(source, NO_WATERMARKS, "numbers").uid("numbers")


@pytest.mark.parametrize("how", ["raise", "kill"])
@pytest.mark.parametrize("backend", ["hashmap", "lmdb"])
def test_a_failure_in_mid_job_costs_nothing(make_env, tmp_path, how, backend):
    env = make_env(
        parallelism=2,
        options={
            "millstream.epoch.records": "500",
            "execution.checkpointing.dir": str(tmp_path / "chk"),
            "state.backend.type": backend,
            "millstream.state.dir": str(tmp_path / "local"),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "3",
            "restart-strategy.fixed-delay.delay": "10 ms",
        },
    )
    env.enable_checkpointing(50)
    function = Count(str(tmp_path / "note"), 2600, how)
    # One source subtask, so that each key's numbers come in order.
    stream = numbers(env, 5000).set_parallelism(1).key_by(lambda n: n % 7).process(function)
    results = list(stream.execute_and_collect(f"recovery {how} {backend}"))
    assert (tmp_path / "note").exists()
    assert counted(results) == expected(5000)
    left = [name for name in os.listdir(tmp_path / "chk") if os.listdir(tmp_path / "chk" / name)]
    assert left == []


def test_signed_savepoint_rescale_and_read_as_a_frame(make_env, spark, tmp_path):
    out, path, total = [], None, 0
    key = tmp_path / "job.key"
    key.write_bytes(b"a key that nobody else has got")
    key.chmod(0o600)
    for parallelism in (1, 3, 2):
        total += 700
        options = {"millstream.epoch.records": "300", "millstream.state.hmac-key-file": str(key)}
        if path is not None:
            options["execution.state-recovery.path"] = path
        env = make_env(parallelism=parallelism, options=options)
        stream = env.from_source(_Growing(total), NO_WATERMARKS, "numbers").uid("numbers")
        counts = stream.key_by(lambda n: n % 7).process(Count()).uid("counter")
        counts._sink("out", CollectOp(out.extend))
        client = env.execute_async("rescaled")
        said = lambda client=client: (len(out), client.get_job_status().result())  # noqa: E731
        until(lambda total=total: len(out) >= total, 120, said)
        path = client.stop_with_savepoint(False, str(tmp_path)).result(60)
        client.get_job_execution_result().result(60)
    assert counted(out) == expected(2100)
    for key_file in (str(key), None):
        frame = millstream.state.read(path, "counter", "count", spark, hmac_key_file=key_file)
        assert {row.key: row.value for row in frame.collect()} == dict.fromkeys(range(7), 300)


class _Growing(DataGeneratorSource):
    """The first `count` numbers, and then silence."""

    def __init__(self, count):
        super().__init__(_same, count, None)

    def boundedness(self):
        from millstream.api.source import Boundedness

        return Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self, parallelism):
        return _Endless(super().create_enumerator(1))

    def max_parallelism(self):
        return 1


class _Endless:
    def __init__(self, inner):
        self._inner = inner

    def finished(self, split, position):
        return False

    def __getattr__(self, name):
        return getattr(self._inner, name)


def _same(n):
    return n


def test_a_streaming_frame_is_read_once_through_a_failure(make_env, spark, tmp_path):
    """Its offsets are in Spark's log, which goes with the checkpoints."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(6):
        (folder / f"{number}.txt").write_text("".join(f"{number * 10 + i}\n" for i in range(10)))
    note = str(tmp_path / "note")

    def fail_once(row):
        if row.value == "37" and not os.path.exists(note):
            open(note, "w").close()
            raise ValueError("once")
        return row.value

    env = make_env(
        parallelism=2,
        options={
            "execution.checkpointing.dir": str(tmp_path / "chk"),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "5",
            "restart-strategy.fixed-delay.delay": "10 ms",
        },
    )
    env.enable_checkpointing(50)
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder())
    sink = sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
    env.from_dataframe(lines).map(fail_once).sink_to(sink)
    client = env.execute_async("frames")

    def written():
        parts = (tmp_path / "out").glob("part-*") if (tmp_path / "out").exists() else []
        return sorted(int(line) for part in parts for line in part.read_text().split())

    until(lambda: len(written()) >= 60, 120, written)
    client.cancel().result(60)
    assert os.path.exists(note)
    assert written() == list(range(60))
