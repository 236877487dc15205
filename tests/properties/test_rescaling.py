"""Random programs over event time, rescaled at random epochs, give the results of the reference."""

import tempfile
from collections import Counter

import pytest
from hypothesis import event, given, note
from hypothesis import strategies as st

from millstream.common.restart_strategy import RestartStrategies
from tests.properties import time_reference as ref
from tests.properties.test_time_programs import PLAIN, execute, programs, punctual
from tests.rescaling import rescaling_at


@pytest.mark.timeout(1800)
@given(
    programs(),
    st.sampled_from([1, 1, 2]),
    st.dictionaries(st.integers(1, 7), st.integers(1, 4), min_size=2, max_size=5),
    st.sampled_from(["hashmap", "hashmap", "lmdb"]),
    st.none() | st.tuples(st.sampled_from(["before", "after"]), st.integers(1, 12)),
)
def test_programs_over_time_may_be_rescaled(drawn, epoch, places, backend, crash):
    program, parallelism = drawn
    if program.then is not None and not punctual(program.stage, program.disorder is None):
        # What follows depends on there being one subtask.
        places = dict.fromkeys(places, parallelism)
    note(f"parallelism {parallelism}, epochs of {epoch}, {places}, {backend}, crash {crash}")
    expected = ref.run(program)
    results: list = []
    late: list = []
    with tempfile.TemporaryDirectory() as folder, rescaling_at(places) as asked:
        options = {"execution__checkpointing__dir": folder, "state__backend__type": backend}
        restart = RestartStrategies.fixed_delay_restart(3, 0)
        execute(program, parallelism, epoch, crash, PLAIN, options, restart, results, late)
    done = [future.result(0) for future in asked if future.exception(0) is None]
    event(f"rescaled {sum(not one.unchanged for one in done)} times")
    assert Counter(results) == Counter(expected.results)
    assert Counter(late) == Counter(expected.late)
