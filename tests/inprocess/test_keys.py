"""Keys and the state under them: types that change, numbers of key groups, names of jobs."""

from __future__ import annotations

import pytest

from millstream.common.state import ValueStateDescriptor
from millstream.common.typeinfo import Types
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.datastream import KeyedProcessFunction
from millstream.errors import StateMismatch
from millstream.runtime.job_folder import job_folder_name
from millstream.testing.scripted import ScriptedSource, record
from tests.support import environment, keeping


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield value, self.count.value()


def run(
    numbers, kept, select=lambda n: n, key_type=None, parallelism=2, path=None, to=None, **settings
):
    """Count the keys of some numbers, from a savepoint or to one."""
    options = {} if path is None else {"execution__state_recovery__path": path}
    env = environment(parallelism, 10, **options, **settings)
    source = ScriptedSource({"a": [record(n) for n in numbers]}, bounded=to is None)
    records = env.from_source(source, WatermarkStrategy.no_watermarks(), "script").uid("script")
    counted = records.key_by(select, key_type).process(Count()).uid("count")
    kept.add("counts", counted)
    if to is None:
        env.execute("counts")
        return None
    client = env.execute_async("counts")
    while len(kept.values("counts")) < len(numbers):
        client.get_job_status().result()
    path = client.stop_with_savepoint(False, str(to)).result(60)
    client.get_job_execution_result().result(60)
    return path


@pytest.mark.parametrize("declared", [Types.INT(), None], ids=["declared", "undeclared"])
@pytest.mark.parametrize("backend", ["hashmap", "lmdb"])
def test_a_key_of_another_type_is_refused_before_the_first_record(tmp_path, declared, backend):
    backend = {"state__backend__type": backend}
    with keeping() as kept:
        path = run([1, 2, 3], kept, key_type=declared, to=tmp_path, **backend)
    with keeping() as kept:
        with pytest.raises(StateMismatch, match=r"keys of .* were of another type") as refused:
            run([1, 2, 3, 1], kept, str, Types.STRING(), path=path, **backend)
        assert kept.values("counts") == []
    assert "int 1" in str(refused.value) or "int 2" in str(refused.value)
    with keeping() as kept:
        # Another name for the same numbers.
        run([1, 2, 3, 1], kept, key_type=Types.LONG(), path=path, **backend)
        assert kept.values("counts") == [(1, 2)]


def test_a_restored_job_has_the_maximum_parallelism_of_its_savepoint(tmp_path):
    numbers = list(range(40))
    with keeping() as kept:
        path = run(numbers, kept, to=tmp_path)
    with keeping() as kept:
        run([*numbers, *numbers], kept, parallelism=100, path=path)
        assert sorted(kept.values("counts")) == [(n, 2) for n in numbers]


def test_more_subtasks_than_the_savepoint_has_key_groups(tmp_path):
    with keeping() as kept:
        path = run([1], kept, to=tmp_path)
    with keeping() as kept, pytest.raises(StateMismatch, match="parallelism of at most 128"):
        run([1, 2], kept, parallelism=200, path=path)


def test_long_names_of_jobs_that_begin_alike_have_folders_of_their_own():
    names = ["x" * 250 + end for end in ("a", "b")] + ["ä" * 40, "ä" * 41, "." * 100, "." * 101]
    folders = [job_folder_name(name) for name in names]
    assert len(set(folders)) == len(names)
    assert all(len(folder) <= 255 for folder in folders)
