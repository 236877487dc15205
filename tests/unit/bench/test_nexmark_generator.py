"""The generator: the same events whoever makes them, in Nexmark's proportions."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import pytest

from millstream.bench.nexmark.generator import BASE_TIME, BLOCK, Events, Generator
from millstream.bench.nexmark.model import Auction, Bid, Person
from millstream.bench.nexmark.tally import row_hash

COUNT = 10_000
# What every process, machine and version must make of seed 1: results that are published name it.
PINNED = 21_445_283_510_981


@pytest.fixture(scope="module")
def stream():
    return list(Events(Generator(1), COUNT))


def test_any_split_of_the_numbers_gives_the_same_events(stream):
    for splits in (2, 3, 7):
        for split in range(splits):
            numbers = range(split, COUNT, splits)
            generator = pickle.loads(pickle.dumps(Generator(1)))
            assert [generator.event(n) for n in numbers] == stream[split::splits]
    middle = Generator(1)
    assert [event for n in range(60, 70) for event in middle.block(n)] == stream[3_000:3_500]


@pytest.mark.parametrize("hash_seed", ["0", "77"])
def test_every_process_makes_the_same(hash_seed):
    program = (
        "from millstream.bench.nexmark.generator import Events, Generator\n"
        "from millstream.bench.nexmark.tally import row_hash\n"
        f"print(sum(map(row_hash, Events(Generator(1), {COUNT}))))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(found.stdout) == PINNED


def test_it_is_the_stream_it_always_was(stream):
    assert sum(map(row_hash, stream)) == PINNED


def test_seeds_differ(stream):
    other = list(Events(Generator(2), COUNT))
    assert sum(a == b for a, b in zip(stream, other, strict=True)) == 0


def test_proportions_and_ids(stream):
    kinds = Counter(type(event) for event in stream)
    assert kinds == {Person: COUNT // 50, Auction: COUNT * 3 // 50, Bid: COUNT * 46 // 50}
    for kind in (Person, Auction):
        ids = [event.id for event in stream if isinstance(event, kind)]
        assert ids == list(range(1_000, 1_000 + len(ids)))
    assert [type(event) for event in stream[:5]] == [Person, Auction, Auction, Auction, Bid]


def test_times_advance_with_the_numbers(stream):
    assert stream[0].time == BASE_TIME
    assert stream[-1].time == BASE_TIME + (COUNT - 1) // 10
    assert all(a.time <= b.time for a, b in pairwise(stream))
    slow = Generator(1, rate=4, base_time=50)
    assert [slow.event(n).time for n in (0, 1, 4, 5)] == [50, 300, 1_050, 1_300]


def test_keys_are_as_hot_as_in_nexmark(stream):
    numbered = [(n, event) for n, event in enumerate(stream) if isinstance(event, Bid)]
    hot_auctions = hot_bidders = 0
    for n, bid in numbered:
        newest, person = n // 50 * 3 + 2, n // 50
        hot_auctions += bid.auction == newest // 100 * 100 + 1_000
        hot_bidders += bid.bidder == person // 100 * 100 + 1_001
        assert max(newest - 100, 0) <= bid.auction - 1_000 <= newest + 10
        assert bid.bidder - 1_000 <= person + 10
    assert 0.48 < hot_auctions / len(numbered) < 0.54
    assert 0.73 < hot_bidders / len(numbered) < 0.79
    auctions = [event for event in stream if isinstance(event, Auction)]
    hot = sum((auction.seller - 1_000) % 100 == 0 for auction in auctions)
    assert 0.7 < hot / len(auctions) < 0.82
    assert {auction.category for auction in auctions} == {10, 11, 12, 13, 14}


def test_sizes_prices_and_channels(stream):
    bids = [event for event in stream if isinstance(event, Bid)]
    assert 98 < sum(32 + len(bid.extra) for bid in bids) / len(bids) < 102
    prices = sorted(bid.price for bid in bids)
    assert prices[0] >= 100
    assert prices[-1] <= 100_000_000
    assert 80_000 < prices[len(prices) // 2] < 125_000
    few = {"Google", "Facebook", "Baidu", "Apple"}
    assert 0.48 < sum(bid.channel in few for bid in bids) / len(bids) < 0.52
    others = [bid.url for bid in bids if bid.channel not in few]
    assert 0.87 < sum("&channel_id=" in url for url in others) / len(others) < 0.93


def test_auctions_last_as_long_as_a_hundred_others_take_to_begin(stream):
    lengths = [event.expires - event.time for event in stream if isinstance(event, Auction)]
    assert min(lengths) >= 1
    assert max(lengths) <= 2 * 167 + 1
    assert 150 < sum(lengths) / len(lengths) < 185


def test_disorder_permutes_each_group(stream):
    mixed = list(Events(Generator(1, disorder=200), COUNT))
    assert mixed != stream
    for first in range(0, COUNT, 200):
        assert sorted(map(repr, mixed[first : first + 200])) == sorted(
            map(repr, stream[first : first + 200])
        )
    with pytest.raises(ValueError, match="disorder"):
        Generator(1, disorder=953)


def test_a_part_of_a_block(stream):
    assert list(Events(Generator(1), BLOCK + 7)) == stream[: BLOCK + 7]
