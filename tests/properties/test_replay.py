"""A replay of any epoch of a random program does exactly what the first run did: outputs, and changes of state."""

import tempfile
from functools import partial

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from millstream.common.restart_strategy import RestartStrategies
from millstream.errors import UserFunctionError
from millstream.graph.operators import CollectOp
from tests.in_rounds import in_rounds
from tests.properties import test_programs, test_time_programs
from tests.properties.test_time_programs import CRASHES, ROUNDS, STYLES
from tests.replaying import KEEP_ALL, check_epochs, folder_of, job_of, recording
from tests.support import environment


def _forget(records):
    """The record is what was delivered."""


@pytest.mark.timeout(1800)
@settings(max_examples=settings.default.max_examples // 2)
@given(
    test_time_programs.programs(),
    st.sampled_from([1, 2, 5]),
    CRASHES,
    st.sampled_from(["hashmap", "lmdb"]),
    st.sampled_from([True, False]),
    STYLES,
    ROUNDS,
)
def test_programs_over_time_are_replayed(drawn, epoch, crash, backend, panes, style, rounds):
    program, parallelism = drawn
    with tempfile.TemporaryDirectory() as folder, recording() as recorded:
        options = {
            "execution__checkpointing__dir": folder,
            "state__backend__type": backend,
            "millstream__windows__share_panes": panes,
            **KEEP_ALL,
        }

        def execute(parallelism, crash, restart):
            test_time_programs.execute(
                program, parallelism, epoch, crash, style, options, restart, [], [], rounds
            )

        # The same operators, of which none fails any more.
        harmless = None if crash is None else (crash[0], 0)
        no_restart = RestartStrategies.no_restart()
        layouts = [parallelism]
        if crash is None or crash[2] is None:
            execute(parallelism, crash, RestartStrategies.fixed_delay_restart(3, 0))
        else:
            try:
                execute(parallelism, crash, no_restart)
            except UserFunctionError:
                event(f"taken up again: {parallelism} to {crash[2]}")
                layouts.append(crash[2])
                execute(crash[2], harmless, no_restart)
        jobs = [job_of(partial(execute, p, harmless, no_restart)) for p in layouts]
        count = check_epochs(folder_of(folder), jobs, recorded, most=6)
        event(f"epochs: {count}")
        assert count


@pytest.mark.timeout(1800)
@settings(max_examples=settings.default.max_examples // 2)
@given(test_programs.programs(), st.sampled_from(["hashmap", "lmdb"]), ROUNDS)
def test_programs_are_replayed(drawn, backend, rounds):
    nodes, parallelism, epoch = drawn
    with tempfile.TemporaryDirectory() as folder, recording() as recorded:

        def execute():
            env = environment(
                parallelism,
                epoch or 3,
                execution__checkpointing__dir=folder,
                state__backend__type=backend,
                **KEEP_ALL,
            )
            for number, stream in enumerate(test_programs.build(env, nodes)):
                stream._sink(f"sink {number}", CollectOp(_forget))
            with in_rounds(rounds):
                env.execute("job")

        execute()
        assert check_epochs(folder_of(folder), [job_of(execute)], recorded, most=6)
