"""Iterations on Spark: a known fixed point at several parallelisms, and through killed workers and drivers."""

from __future__ import annotations

import heapq
import os
import random
import signal
import sys
from collections import Counter

import pytest

from millstream.common import Configuration, Types
from millstream.common.serialization import Encoder
from millstream.datastream import KeyedProcessFunction, OutputTag, StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink
from millstream.datastream.state import ValueStateDescriptor
from tests.integration.processes import Program

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

NEWS = OutputTag("news")
NODES = 40


def roads():
    """For each node, what it leads to and how far that is."""
    rng = random.Random(11)
    return {n: [(rng.randrange(NODES), rng.randint(1, 50)) for _ in range(3)] for n in range(NODES)}


def dijkstra(graph):
    best, queue = {}, [(0, 0)]
    while queue:
        distance, node = heapq.heappop(queue)
        if node not in best:
            best[node] = distance
            for other, length in graph[node]:
                heapq.heappush(queue, (distance + length, other))
    return best


class Relax(KeyedProcessFunction):
    """Keeps the shortest distance of each node; kills its process once, at a given node, if told where to note it."""

    def __init__(self, graph, note=None, at=None):
        self.graph, self.note, self.at = graph, note, at

    def open(self, ctx):
        self.best = ctx.get_state(ValueStateDescriptor("best", Types.LONG()))

    def process_element(self, value, ctx):
        node, distance = value
        if node == self.at and not os.path.exists(self.note):
            open(self.note, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        known = self.best.value()
        if known is None or distance < known:
            self.best.update(distance)
            yield node, distance
            for other, length in self.graph[node]:
                yield NEWS, (other, distance + length)


def shortest(env, **options):
    loop = env.from_collection([(0, 0)]).iterate().uid("loop")
    improved = loop.key_by(0).process(Relax(roads(), **options)).uid("relax")
    loop.close_with(improved.get_side_output(NEWS))
    return improved


def check(results):
    best = {}
    for node, distance in results:
        assert distance < best.get(node, 1 << 60)
        best[node] = distance
    assert best == dijkstra(roads())


@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_the_fixed_point(make_env, parallelism):
    check(shortest(make_env(parallelism=parallelism)).execute_and_collect("shortest paths"))


@pytest.mark.parametrize(("parallelism", "checkpoints"), [(1, False), (2, True), (4, True)])
def test_a_killed_worker(make_env, tmp_path, parallelism, checkpoints):
    options = {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "10 ms",
    }
    if checkpoints:
        options["execution.checkpointing.dir"] = str(tmp_path / "chk")
    env = make_env(parallelism=parallelism, options=options)
    # The node that is reached last.
    distances = dijkstra(roads())
    late = max(distances, key=distances.__getitem__)
    note = str(tmp_path / "note")
    check(shortest(env, note=note, at=late).execute_and_collect(f"killed worker {parallelism}"))
    assert os.path.exists(note)


# -- a driver in a process of its own ----------------------------------------------------------------------------


def countdown(value):
    name, left = value
    return [(name, left - 1)] if left else []


def program(folder, parallelism):
    """Records that go round a known number of times, into files."""
    config = Configuration.from_dict(
        {
            "execution.checkpointing.dir": f"{folder}/chk",
            "millstream.epoch.records": "20",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.delay": "10 ms",
            "spark.ui.enabled": "false",
            "spark.master": "local[2]",
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(parallelism)
    loop = env.from_collection([(n, n % 5) for n in range(40)]).iterate().uid("loop")
    steps = loop.flat_map(countdown).uid("steps")
    loop.close_with(steps)
    sink = FileSink.for_row_format(f"{folder}/out", Encoder.simple_string_encoder())
    sink = sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
    steps.map(lambda v: f"{v[0]} {v[1]}").sink_to(sink).uid("out")
    env.execute("rounds")


@pytest.mark.parametrize(
    ("role", "place", "parallelism"),
    [
        pytest.param("driver", "before manifest:3", 1, marks=pytest.mark.nightly),
        ("driver", "after manifest:4", 4),
        ("worker", "after pre-commit:5", 2),
    ],
)
def test_killed_at_a_named_place(tmp_path, role, place, parallelism):
    struck = tmp_path / "struck"
    command = [sys.executable, "-m", "tests.integration.test_iteration"]
    command += [str(tmp_path), str(parallelism)]
    more = {
        "MILLSTREAM_FAILPOINT": place,
        "MILLSTREAM_FAILPOINT_ONCE": str(struck),
        "MILLSTREAM_FAILPOINT_ROLE": role,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    with Program(command, tmp_path, **more) as first:
        code = first.end()
        errors = first.errors
    assert struck.exists(), errors
    # A job whose worker was lost starts again; nobody does so for a driver.
    assert (code == 0) == (role == "worker"), errors
    if code:
        with Program(command, tmp_path, **more) as second:
            assert second.end() == 0, second.errors
    written = Counter(
        tuple(map(int, line.split()))
        for part in (tmp_path / "out").glob("part-*")
        for line in part.read_text().splitlines()
    )
    assert written == Counter((n, left) for n in range(40) for left in range(n % 5))


if __name__ == "__main__":
    program(sys.argv[1], int(sys.argv[2]))
