"""Every query of Nexmark against its oracle: seeds, parallelism, small epochs, disorder, and a driver that dies."""

from __future__ import annotations

import pytest

from millstream.bench.nexmark import oracle
from millstream.bench.nexmark.catalogue import CHANGES, QUERIES, ROWS
from millstream.bench.nexmark.generator import BASE_TIME, Events, Generator
from millstream.bench.nexmark.job import TallySink, events, results
from millstream.bench.nexmark.tally import Tally
from millstream.errors import JobError
from tests.crashes import dying_at
from tests.support import collect, environment

# Twelve seconds of event time in 3,000 events, with midnight in the middle of a window of ten seconds.
RATE = 250
BEGIN = BASE_TIME - 6_000
STATELESS = {"q0", "q1", "q2", "q13", "q14"}


def made(seed, disorder=1):
    return Generator(seed, RATE, disorder, BEGIN)


@pytest.mark.parametrize(
    ("seed", "count", "parallelism", "disorder", "epoch"),
    [(1, 3_000, 1, 1, None), (2, 3_000, 2, 100, 15), (3, 2_100, 4, 70, 6)],
)
@pytest.mark.parametrize("query", QUERIES)
def test_it_gives_what_its_oracle_gives(query, seed, count, parallelism, disorder, epoch):
    env = environment(parallelism, epoch)
    rate = 1e12 if epoch else None
    found = collect(results(query, events(env, made(seed, disorder).block, count, rate)))
    right = list(oracle.rows(query, Events(made(seed), count)))
    assert right, "nothing would be compared"
    if QUERIES[query].results == ROWS:
        assert sorted(map(tuple, found)) == sorted(right)
    elif QUERIES[query].results == CHANGES:
        left = sorted(row for sign, *row in found if sign == 1)
        for sign, *row in found:
            if sign == -1:
                left.remove(row)
        assert left == sorted(map(list, right))
    tally = Tally(query)
    tally.extend(found)
    assert tally.digest() == oracle.digest(query, Events(made(seed), count))


@pytest.mark.parametrize("query", [name for name in QUERIES if name not in STATELESS])
def test_a_driver_that_dies_loses_and_repeats_nothing(query, tmp_path):
    out = tmp_path / "out"
    out.mkdir()

    def run():
        folder = {"execution__checkpointing__dir": tmp_path / "checkpoints"}
        env = environment(2, 10, **folder)
        stream = events(env, made(5).block, 2_000)
        results(query, stream).sink_to(TallySink(query, str(out))).uid("out")
        env.execute("nexmark")

    with dying_at("after manifest", 2), pytest.raises(JobError, match="Died"):
        run()
    right = oracle.digest(query, Events(made(5), 2_000))
    assert TallySink(query, str(out)).tally().digest() != right
    run()
    assert TallySink(query, str(out)).tally().digest() == right
