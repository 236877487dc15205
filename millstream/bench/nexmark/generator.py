"""Nexmark's events as a function of a seed and the event's number.

Nothing is drawn in turn: the bytes that an event is made of are SHAKE-128 of the seed and of the event's block of 50.
So any part of the stream can be made alone, in any process, again and again, and is always the same.

As in the original (nexmark/nexmark, which follows Beam): of each 50 events 1 is a person, then 3 are auctions, then 46
are bids; times advance evenly with the number; ids begin at 1,000; half of the bids go to a hot auction, three quarters
come from a hot bidder, three quarters of the auctions are a hot seller's; the others choose among the last 100 auctions
and the last 1,000 people, and up to 10 that are still to come; prices, lengths of auctions, states, cities, names,
channels, sizes and disorder are chosen by its rules.

Otherwise than there: the original's chance has no seed (Beam's has), and it adds the first id of people twice to a
bidder's id, which is not done here. Chance comes in steps of 1/65,536, so prices tie more often. Texts are pieces of
one random text. The clock begins at a fixed time (Beam's), not when the program starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from hashlib import shake_128
from struct import iter_unpack
from typing import Any, NamedTuple

from millstream.bench.nexmark.model import Auction, Bid, Event, Person

__all__ = ["BASE_TIME", "BLOCK", "Events", "Generator"]

BLOCK = 50
BASE_TIME = 1_436_918_400_000  # 2015-07-15T00:00:00Z, as in Beam
RATE = 10_000  # events in a second of event time

_FIRST_ID = 1_000
_FIRST_CATEGORY, _CATEGORIES = 10, 5
_AUCTIONS = 3  # in a block, behind its one person
_IN_FLIGHT, _ACTIVE, _LEAD, _HOT = 100, 1_000, 10, 100
_AHEAD = _IN_FLIGHT * BLOCK // _AUCTIONS  # events until so many auctions have begun
_CHANNELS = 10_000
_HOT_CHANNELS = "Google Facebook Baidu Apple".split()
_STATES = "AZ CA ID OR WA WY".split()
_CITIES = (
    "Phoenix,Los Angeles,San Francisco,Boise,Portland,Bend,Redmond,Seattle,Kent,Cheyenne".split(",")
)
_FIRST_NAMES = "Peter Paul Luke John Saul Vicky Kate Julie Sarah Deiter Walter".split()
_LAST_NAMES = "Shultz Abrams Spencer White Bartels Walton Smith Jones Noris".split()
_WORDS = 8  # of 16 bits, for each event
_DISORDER = 953  # a prime that permutes the numbers of a group

# A tuple's own constructor: a third of the time of the class's, which Python code checks arguments in.
_new = tuple.__new__


class _Tables(NamedTuple):
    """What is the same for all events of a seed."""

    text: str
    prices: list[int]
    channels: list[tuple[str, str]]
    hot_channels: list[tuple[str, str]]


@lru_cache(maxsize=4)
def _tables(seed: int) -> _Tables:
    letters = bytes.maketrans(bytes(range(256)), b"abcdefghijklmnopqrstuvwxyz" * 9 + b" " * 22)
    drawn = shake_128(b"nexmark text %d" % seed).digest(65_536 + 1_024)
    text = drawn.translate(letters).decode()
    prices = [round(100 * 10 ** (6 * n / 65_536)) for n in range(65_536)]

    def url(place: int) -> str:
        path = "/".join(text[place + 5 * n : place + 5 * n + 5].replace(" ", "_") for n in range(3))
        return f"https://www.nexmark.com/{path}/item.htm?query=1"

    channels = []
    for n in range(_CHANNELS):
        # A number's 32 bits in reverse, as the original makes the id of a channel.
        tail = f"&channel_id={int(f'{n:032b}'[::-1], 2) & 0x7FFFFFFF}" if drawn[n] >= 26 else ""
        channels.append((f"channel-{n}", url(6 * n) + tail))
    hot = [(name, url(65_000 + 20 * n)) for n, name in enumerate(_HOT_CHANNELS)]
    return _Tables(text, prices, channels, hot)


def _pick(word: int, count: int) -> int:
    """One of 0..count-1 by 16 bits of chance."""
    return word * count >> 16


def _extra(text: str, word: int, size: int, average: int) -> str:
    """Letters that bring an event of a size to its average size, give or take a fifth of what is missing."""
    missing = max(0, average - size)
    spread = round(missing * 0.2)
    length = missing - spread + (_pick(word * 40_503 & 0xFFFF, 2 * spread) if spread else 0)
    return text[word : word + length]


class Generator:
    """Makes events. `rate` is how many there are in a second of event time.

    With a `disorder` of more than 1 the events of each group of so many come in another order; a stream is whole if its
    length is a multiple of it.

    >>> generator = Generator(seed=7)
    >>> generator.event(4).bidder, generator.event(4).price
    (1001, 57513)
    >>> generator.event(104) == generator.block(2)[4]
    True
    """

    def __init__(
        self, seed: int = 1, rate: int = RATE, disorder: int = 1, base_time: int = BASE_TIME
    ) -> None:
        if disorder < 1 or disorder % _DISORDER == 0:
            raise ValueError(f"disorder must be 1 or more and no multiple of {_DISORDER}")
        self.seed, self.rate, self.disorder, self.base_time = seed, rate, disorder, base_time
        self._prefix = b"nexmark %d " % seed
        # Who asks for single events asks for neighbours next: blocks that a group is spread over are made once.
        self._made = lru_cache(maxsize=2 + disorder // BLOCK)(self._in_order)

    def __reduce__(self) -> tuple[Any, ...]:
        return Generator, (self.seed, self.rate, self.disorder, self.base_time)

    def event(self, number: int) -> Event:
        """The event at a place of the stream."""
        group = self.disorder
        if group > 1:
            number = number // group * group + number * _DISORDER % group
        return self._made(number // BLOCK)[number % BLOCK]

    def block(self, number: int) -> list[Event]:
        """The events at the places 50 x number to 50 x number + 49: quicker than one by one."""
        if self.disorder == 1:
            return self._in_order(number)
        return [self.event(place) for place in range(number * BLOCK, (number + 1) * BLOCK)]

    def time_of(self, number: int) -> int:
        """When an event happens."""
        return self.base_time + number * 1_000 // self.rate

    def _in_order(self, block: int) -> list[Event]:
        chance = shake_128(self._prefix + block.to_bytes(8, "little")).digest(2 * _WORDS * BLOCK)
        words = iter_unpack(f"<{_WORDS}H", chance)
        first = block * BLOCK
        events: list[Event] = [self._person(block, next(words))]
        for offset in range(_AUCTIONS):
            number = first + 1 + offset
            events.append(self._auction(number, block * _AUCTIONS + offset, block, next(words)))
        text, prices, channels, hot_channels = _tables(self.seed)
        newest = block * _AUCTIONS + _AUCTIONS - 1
        hot_auction = newest // _HOT * _HOT + _FIRST_ID
        low_auction = max(newest - _IN_FLIGHT, 0)
        auctions = newest - low_auction + 1 + _LEAD
        low_auction += _FIRST_ID
        hot_bidder = block // _HOT * _HOT + 1 + _FIRST_ID
        active = min(block + 1, _ACTIVE)
        low_bidder = block + 1 - active + _FIRST_ID
        bidders = active + _LEAD
        base, rate, place = self.base_time, self.rate, (first + 1 + _AUCTIONS) * 1_000
        for kind, auction, bidder, price, channel, extra, size, _ in words:
            name, url = (
                channels[channel * _CHANNELS >> 16] if kind & 8 else hot_channels[channel >> 14]
            )
            bid = (
                hot_auction if kind & 1 else low_auction + (auction * auctions >> 16),
                hot_bidder if kind & 6 else low_bidder + (bidder * bidders >> 16),
                prices[price],
                name,
                url,
                base + place // rate,
                # Four numbers of eight bytes; the rest of a hundred, give or take a fifth.
                text[extra : extra + 54 + (size * 28 >> 16)],
            )
            events.append(_new(Bid, bid))
            place += 1_000
        return events

    def _person(self, block: int, words: tuple[int, ...]) -> Person:
        text = _tables(self.seed).text
        first, last, city, state, mail, card, extra, _ = words
        name = f"{_FIRST_NAMES[_pick(first, 11)]} {_LAST_NAMES[_pick(last, 9)]}"
        email = f"{text[mail : mail + 7]}@{text[mail + 7 : mail + 12]}.com".replace(" ", "_")
        digits = f"{card * 2_654_435_761 % 10**16:016d}"
        credit_card = " ".join(digits[n : n + 4] for n in range(0, 16, 4))
        chosen_city, chosen_state = _CITIES[_pick(city, 10)], _STATES[_pick(state, 6)]
        size = 8 + len(name) + len(email) + len(credit_card) + len(chosen_city) + len(chosen_state)
        return Person(
            block + _FIRST_ID,
            name,
            email,
            credit_card,
            chosen_city,
            chosen_state,
            self.time_of(block * BLOCK),
            _extra(text, extra, size, 200),
        )

    def _auction(self, number: int, auction: int, block: int, words: tuple[int, ...]) -> Auction:
        text, prices, _, _ = _tables(self.seed)
        kind, seller, category, price, more, length, item, extra = words
        if kind & 3:
            chosen = block // _HOT * _HOT
        else:
            active = min(block + 1, _ACTIVE)
            chosen = block + 1 - active + _pick(seller, active + _LEAD)
        time = self.time_of(number)
        horizon = max(2 * (self.time_of(number + _AHEAD) - time), 1)
        name = text[item : item + 3 + _pick(kind, 17)]
        description = text[more : more + 3 + _pick(item, 97)]
        size = 8 + len(name) + len(description) + 8 * 5
        return Auction(
            auction + _FIRST_ID,
            name,
            description,
            prices[price],
            prices[price] + prices[more],
            time,
            time + 1 + _pick(length, horizon),
            chosen + _FIRST_ID,
            _FIRST_CATEGORY + _pick(category, _CATEGORIES),
            _extra(text, extra, size, 500),
        )


class Events:
    """The first `count` events, as often as one asks for them.

    >>> len(list(Events(Generator(seed=7), 120)))
    120
    """

    def __init__(self, generator: Generator, count: int) -> None:
        self.generator, self.count = generator, count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Event]:
        whole, rest = divmod(self.count, BLOCK)
        for number in range(whole):
            yield from self.generator.block(number)
        if rest:
            yield from self.generator.block(whole)[:rest]
