"""The cases marked `spark: yes`, on Spark: the same programs, the same expectations."""

import sys
from pathlib import Path

import pytest

from millstream.common.configuration import Configuration
from millstream.datastream import DataStream, StreamExecutionEnvironment
from tests.conformance import script
from tests.conformance.test_cases import CASES, Case, compare, program_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

# Workers import `tests.conformance.script` by its name.
ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:
    sys.path.append(ROOT)

MARKED = [case for case in map(Case, CASES) if case.options.get("spark") == "yes"]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("case", MARKED, ids=lambda case: case.path.stem)
def test_case_on_spark(case, tmp_path):
    # Sinks of tests cannot be looked into from here, so each stream is collected by a run of its own.
    for name in case.of_kind("expect"):
        configuration = Configuration.from_dict({"execution.target": "spark"})
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(2).set_runtime_mode(case.mode)
        scope = program_of(case, env, 2, tmp_path)
        stream = scope[name]
        assert isinstance(stream, DataStream)
        if case.stamps(name):
            stream = script.stamped(stream)
        with stream.execute_and_collect() as results:
            compare(case, list(results), case.expected(name, scope))
