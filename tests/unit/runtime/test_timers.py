"""Timers: what is due, in which order, for which key, and what is left of one in the table."""

import datetime

import pytest

from millstream.common.constants import MAX_TIME, NO_TIME
from millstream.errors import InvalidArgument
from millstream.runtime.base import clock
from millstream.runtime.state.hash_tables import make_hash_table
from millstream.runtime.state.keyed_state import NO_KEY, KeyContext
from millstream.runtime.state.table import DELETED
from millstream.runtime.time.timers import Calendar, InternalTimers, KeyedTimerService, checked_time
from millstream.runtime.wire.keys import canonical

# -- the calendar --------------------------------------------------------------------------------------------------


def entry(key, at, namespace=None):
    return (key, (at, namespace))


def popped(calendar):
    """All entries, first to last."""
    found = []
    while calendar.next is not None:
        found.append(calendar.pop())
    return found


A5, B5, C5, A3, A8 = (entry(*one) for one in [("a", 5), ("b", 5), ("c", 5), ("a", 3), ("a", 8)])


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([], []),
        ([("add", A5)], [A5]),
        # By time, and within one time in the order in which they came.
        ([("add", A8), ("add", A3), ("add", A5)], [A3, A5, A8]),
        ([("add", C5), ("add", A5), ("add", B5)], [C5, A5, B5]),
        # An entry is one of a kind.
        ([("add", A5), ("add", B5), ("add", A5)], [A5, B5]),
        ([("add", A5), ("remove", A5)], []),
        ([("add", A5), ("add", B5), ("remove", A5)], [B5]),
        ([("add", A3), ("add", A8), ("remove", A3)], [A8]),
        # What was never there is removed without a trace.
        ([("remove", A5)], []),
        ([("add", B5), ("remove", A5)], [B5]),
        ([("add", A3), ("remove", A5)], [A3]),
        # A time of which all entries are gone can be used again.
        ([("add", A5), ("remove", A5), ("add", B5)], [B5]),
        ([("add", A3), ("remove", A3), ("look",), ("add", A3), ("add", A8)], [A3, A8]),
        ([("add", A3), ("clear",)], []),
        ([("add", A3), ("clear",), ("add", A3)], [A3]),
        # Blocks of a file: keys that are gone, or entries that are there.
        ([("applied", "P", [(A5, True), (A3, True)])], [A3, A5]),
        ([("add", A3), ("add", A5), ("applied", "D", [A3])], [A5]),
    ],
)
def test_the_calendar_gives_entries_by_time(steps, expected):
    calendar = Calendar()
    for call, *arguments in steps:
        if call == "look":
            assert calendar.next is None
        else:
            getattr(calendar, call)(*arguments)
    assert popped(calendar) == expected
    assert calendar.next is None


def test_next_is_the_time_of_the_first_entry():
    calendar = Calendar()
    assert calendar.next is None
    calendar.add(A5)
    calendar.add(A3)
    assert calendar.next == 3
    calendar.remove(A3)
    assert calendar.next == 5


@pytest.mark.parametrize(
    ("valid", "there", "expected"),
    [
        (True, True, [A5, B5]),
        (True, False, [A5]),
        # One that is wrong anyhow is left alone until it is made anew.
        (False, True, [A5]),
        (False, False, [A5]),
    ],
)
def test_what_is_undone_is_put_back(valid, there, expected):
    calendar = Calendar()
    calendar.add(A5)
    if valid and not there:
        calendar.add(B5)
    calendar.valid = valid
    calendar.put_back(B5, there=there)
    assert popped(calendar) == expected


def test_an_entry_that_was_removed_is_not_put_back_into_a_calendar_that_is_not_valid():
    calendar = Calendar()
    calendar.add(A5)
    calendar.valid = False
    calendar.put_back(A5, there=False)
    assert popped(calendar) == [A5]


class Entries:
    """In the place of a table."""

    def __init__(self, *entries):
        self.entries = entries
        self.looked = 0

    def keys(self):
        self.looked += 1
        return iter(self.entries)


def test_a_calendar_that_may_be_wrong_is_made_anew_from_the_table_once():
    calendar, table = Calendar(), Entries(A8, B5, A5)
    calendar.add(A3)
    calendar.refresh(table)
    assert (calendar.next, table.looked) == (3, 0)
    calendar.valid = False
    calendar.refresh(table)
    calendar.refresh(table)
    assert table.looked == 1
    assert popped(calendar) == [B5, A5, A8]


# -- timers of an operator -----------------------------------------------------------------------------------------


class Operator:
    """Timers with tables of their own, and a note of everything that fired."""

    def __init__(self):
        self.keys = KeyContext()
        self.tables = {}
        self.fired = []
        self.then = {}
        self.timers = InternalTimers(self.keys, self.make_table)
        self.timers.on_event_time = self.note("event")
        self.timers.on_processing_time = self.note("processing")

    def make_table(self, name):
        self.tables[name] = make_hash_table(name, "value")
        return self.tables[name]

    @property
    def event(self):
        return self.tables["#event-timers"]

    @property
    def processing(self):
        return self.tables["#processing-timers"]

    def note(self, domain):
        def fired(timestamp, namespace):
            self.fired.append((domain, self.keys.key, timestamp, namespace))
            self.then.pop(timestamp, lambda: None)()

        return fired

    def of(self, key):
        self.keys.key, self.keys.canon = key, canonical(key)
        return self.timers

    def epoch_ends(self):
        self.event.absorb()
        self.processing.absorb()

    def left(self):
        """The timestamps of what is still to fire."""
        return sorted(key[1][0] for table in (self.event, self.processing) for key in table.keys())  # noqa: SIM118 - a table is no dictionary


@pytest.fixture
def operator():
    return Operator()


@pytest.mark.parametrize(
    ("watermark", "fired"),
    [(4, []), (5, [5]), (6, [5]), (7, [5, 7]), (MAX_TIME, [5, 7, 9])],
)
def test_a_timer_fires_when_the_watermark_reaches_it(operator, watermark, fired):
    for at in (9, 5, 7):
        operator.of("a").register_event("ns", at)
    operator.timers.advance(watermark)
    assert operator.fired == [("event", "a", at, "ns") for at in fired]
    assert operator.timers.watermark == watermark
    assert operator.left() == sorted({5, 7, 9} - set(fired))


def test_a_timer_fires_once(operator):
    operator.of("a").register_event(None, 5)
    operator.timers.advance(5)
    operator.timers.advance(6)
    assert len(operator.fired) == 1


def test_the_two_domains_know_nothing_of_each_other(operator):
    operator.of("a").register_event("e", 5)
    operator.of("a").register_processing("p", 5)
    assert operator.timers.next_tick() == 5
    operator.timers.advance(10)
    assert operator.fired == [("event", "a", 5, "e")]
    operator.timers.tick(4)
    assert len(operator.fired) == 1
    operator.timers.tick(5)
    assert operator.fired[1:] == [("processing", "a", 5, "p")]
    assert operator.timers.next_tick() is None
    # Processing time moves no watermark.
    assert operator.timers.watermark == 10


def test_a_timer_is_one_of_a_kind_by_key_time_and_namespace(operator):
    for key, at, namespace in [
        ("a", 5, None),
        ("a", 5, None),
        ("b", 5, None),
        ("a", 6, None),
        ("a", 5, "w"),
    ]:
        operator.of(key).register_event(namespace, at)
    operator.timers.advance(9)
    assert [one[1:] for one in operator.fired] == [
        ("a", 5, None),
        ("b", 5, None),
        ("a", 5, "w"),
        ("a", 6, None),
    ]


@pytest.mark.parametrize("key", ["a", 1, ("a", 1), datetime.date(2026, 1, 1)])
def test_functions_find_their_key_when_a_timer_fires_and_nobody_finds_it_afterwards(operator, key):
    operator.of(key).register_event(None, 5)
    operator.keys.leave()
    operator.then[5] = lambda: canons.append(operator.keys.canon)
    canons = []
    operator.timers.advance(5)
    assert operator.fired == [("event", key, 5, None)]
    assert canons == [canonical(key)]
    assert operator.keys.canon is NO_KEY


def test_a_watermark_that_fires_nothing_leaves_no_key_either(operator):
    operator.of("a")
    operator.timers.advance(5)
    assert operator.keys.canon is NO_KEY
    operator.of("a")
    operator.timers.tick(5)
    assert operator.keys.canon is NO_KEY


def test_the_watermark_has_moved_on_before_its_timers_fire(operator):
    seen = []
    operator.of("a").register_event(None, 5)
    operator.then[5] = lambda: seen.append(operator.timers.watermark)
    operator.timers.advance(8)
    assert seen == [8]


@pytest.mark.parametrize(("registered", "fired"), [(4, [5, 4]), (8, [5, 8]), (9, [5])])
def test_what_a_timer_registers_fires_too_if_it_is_due(operator, registered, fired):
    operator.of("a").register_event(None, 5)
    operator.then[5] = lambda: operator.timers.register_event(None, registered)
    operator.timers.advance(8)
    assert [one[2] for one in operator.fired] == fired
    assert operator.left() == ([] if len(fired) == 2 else [9])


def test_a_timer_that_registers_itself_again_fires_again(operator):
    operator.of("a").register_event(None, 5)
    operator.then[5] = lambda: operator.timers.register_event(None, 5)
    operator.timers.advance(5)
    assert [one[2] for one in operator.fired] == [5, 5]
    assert operator.left() == []


def test_a_timer_that_another_one_deletes_does_not_fire(operator):
    for at in (5, 6):
        operator.of("a").register_event(None, at)
    operator.then[5] = lambda: operator.timers.delete_event(None, 6)
    operator.timers.advance(9)
    assert [one[2] for one in operator.fired] == [5]


@pytest.mark.parametrize(("domain", "other"), [("event", "processing"), ("processing", "event")])
def test_deleting_takes_key_time_namespace_and_domain(operator, domain, other):
    register = f"register_{domain}"
    for key, at, namespace in [("a", 5, "n"), ("b", 5, "n"), ("a", 6, "n"), ("a", 5, "m")]:
        getattr(operator.of(key), register)(namespace, at)
    getattr(operator.of("a"), f"delete_{other}")("n", 5)
    assert len(operator.left()) == 4
    getattr(operator.of("a"), f"delete_{domain}")("n", 5)
    operator.timers.advance(9)
    operator.timers.tick(9)
    assert [one[1:] for one in operator.fired] == [("b", 5, "n"), ("a", 5, "m"), ("a", 6, "n")]


def test_deleting_what_is_not_there_changes_nothing(operator):
    operator.of("a").delete_event(None, 5)
    operator.of("a").register_event(None, 6)
    operator.of("b").delete_event(None, 6)
    assert operator.event.changes == {entry("a", 6): True}


# -- timers as state -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "changes"),
    [
        # One that came and went within an epoch leaves no trace.
        ([], ["register", "delete"], {}),
        ([], ["register", "fire"], {}),
        ([], ["register"], {entry("a", 5): True}),
        # One of a former epoch is gone from the next file on.
        (["register"], ["delete"], {entry("a", 5): DELETED}),
        (["register"], ["fire"], {entry("a", 5): DELETED}),
        (["register"], ["delete", "register"], {entry("a", 5): True}),
        (["register"], ["register"], {}),
        (["register"], [], {}),
        (["register"], ["delete", "delete"], {entry("a", 5): DELETED}),
    ],
)
def test_what_an_epoch_writes_of_a_timer(operator, before, now, changes):
    def do(step):
        if step == "fire":
            operator.timers.advance(5)
        else:
            getattr(operator.of("a"), f"{step}_event")(None, 5)

    for step in before:
        do(step)
    operator.epoch_ends()
    for step in now:
        do(step)
    assert operator.event.changes == changes


def test_timers_of_former_epochs_fire_with_those_of_this_one(operator):
    operator.of("a").register_event(None, 7)
    operator.epoch_ends()
    operator.of("b").register_event(None, 5)
    operator.timers.advance(9)
    assert [one[1] for one in operator.fired] == ["b", "a"]


def test_timers_that_were_restored_before_anybody_asked_for_them_fire():
    table = make_hash_table("#event-timers", "value")
    table.apply("P", [(entry("a", 5), True)], None)
    made = {"#event-timers": table, "#processing-timers": make_hash_table("p", "value")}
    fired = []
    timers = InternalTimers(KeyContext(), made.__getitem__)
    timers.on_event_time = lambda timestamp, namespace: fired.append(timestamp)
    timers.advance(5)
    assert fired == [5]


def test_timers_in_the_files_of_another_process_come_and_go(operator):
    operator.timers.advance(0)
    operator.event.apply("P", [(entry("a", 5), True), (entry("a", 6), True)], None)
    operator.event.apply("D", [entry("a", 5)], None)
    operator.timers.advance(9)
    assert [one[2] for one in operator.fired] == [6]


def test_what_a_failed_attempt_did_to_timers_is_forgotten(operator):
    operator.of("a").register_event(None, 5)
    operator.epoch_ends()
    operator.timers.advance(5)
    operator.of("a").register_event(None, 7)
    operator.fired.clear()
    operator.event.discard()
    operator.timers.advance(9)
    assert [one[2] for one in operator.fired] == [5]


def test_a_table_that_is_emptied_has_no_timers(operator):
    operator.of("a").register_event(None, 5)
    operator.timers.advance(0)
    operator.event.reset()
    operator.timers.advance(9)
    assert operator.fired == []


def test_all_timers_of_some_namespaces_can_be_forgotten(operator):
    for key, namespace in [("a", "old"), ("a", "new"), ("b", "old")]:
        operator.of(key).register_event(namespace, 5)
        operator.of(key).register_processing(namespace, 5)
    operator.epoch_ends()
    operator.of("c").register_event("old", 5)
    # The calendars have been looked at, and so are believed.
    assert (operator.timers.advance(0), operator.timers.next_tick()) == (None, 5)
    operator.timers.forget(lambda namespace: namespace == "old")
    operator.timers.advance(9)
    operator.timers.tick(9)
    assert operator.fired == [("event", "a", 5, "new"), ("processing", "a", 5, "new")]


def test_a_timer_can_be_registered_and_deleted_after_others_were_forgotten(operator):
    operator.of("a").register_event("old", 5)
    operator.timers.forget(lambda namespace: True)
    operator.of("a").register_event("new", 6)
    operator.of("a").register_event("new", 7)
    operator.of("a").delete_event("new", 7)
    operator.timers.advance(9)
    assert [one[2] for one in operator.fired] == [6]


# -- batch: the end of a key ---------------------------------------------------------------------------------------


def test_at_the_end_of_a_key_event_timers_fire_before_those_of_the_clock(operator):
    operator.of("a").register_processing(None, 1)
    for at in (7, 5):
        operator.of("a").register_event(None, at)
    operator.timers.finish_key()
    assert [(one[0], one[2]) for one in operator.fired] == [
        ("event", 5),
        ("event", 7),
        ("processing", 1),
    ]
    assert operator.left() == []


def test_at_the_end_of_a_key_its_watermark_is_the_last_and_the_next_key_begins_anew(operator):
    seen = []
    operator.of("a").register_event("ns", 5)
    operator.keys.leave()
    operator.then[5] = lambda: seen.append((operator.timers.watermark, operator.keys.canon))
    operator.timers.finish_key()
    assert seen == [(MAX_TIME, "a")]
    assert operator.fired == [("event", "a", 5, "ns")]
    assert operator.timers.watermark == NO_TIME


@pytest.mark.parametrize("register", ["register_event", "register_processing"])
def test_what_is_registered_at_the_end_of_a_key_does_not_fire(operator, register):
    operator.of("a").register_event(None, 5)
    operator.then[5] = lambda: getattr(operator.timers, register)(None, 6)
    operator.timers.finish_key()
    assert [one[2] for one in operator.fired] == [5]


@pytest.mark.parametrize("domain", ["event", "processing"])
def test_what_is_deleted_at_the_end_of_a_key_does_not_fire(operator, domain):
    operator.of("a").register_event(None, 5)
    getattr(operator.of("a"), f"register_{domain}")(None, 6)
    operator.then[5] = lambda: getattr(operator.timers, f"delete_{domain}")(None, 6)
    operator.timers.finish_key()
    assert [one[2] for one in operator.fired] == [5]


# -- what functions see --------------------------------------------------------------------------------------------


@pytest.fixture
def service(operator):
    service = KeyedTimerService(operator.keys)
    service.attach(operator.timers)
    return service


def test_functions_register_and_delete_without_a_namespace(operator, service):
    operator.of("a")
    for at in (5, 6):
        service.register_event_time_timer(at)
        service.register_processing_time_timer(at)
    service.delete_event_time_timer(5)
    service.delete_processing_time_timer(6)
    assert list(operator.event.changes) == [entry("a", 6)]
    assert list(operator.processing.changes) == [entry("a", 5)]


def test_the_watermark_is_that_of_the_timers(operator, service):
    assert service.current_watermark() == NO_TIME
    operator.timers.advance(7)
    assert service.current_watermark() == 7


def test_a_function_that_fires_nothing_has_a_watermark_and_no_timers():
    keys = KeyContext()
    keys.canon = "a"
    service = KeyedTimerService(keys)
    assert service.current_watermark() == NO_TIME
    service.watermark = 7
    assert service.current_watermark() == 7
    service.register_event_time_timer(5)
    service.register_processing_time_timer(5)
    service.delete_event_time_timer(5)
    service.delete_processing_time_timer(5)


def test_processing_time_is_the_clock(operator, service, monkeypatch):
    monkeypatch.setattr(clock, "now", lambda: 1234)
    assert service.current_processing_time() == 1234
    assert operator.timers.now() == 1234


CALLS = [
    "register_event_time_timer",
    "register_processing_time_timer",
    "delete_event_time_timer",
    "delete_processing_time_timer",
]


@pytest.mark.parametrize("call", CALLS)
def test_without_a_key_there_are_no_timers(operator, service, call):
    operator.keys.leave()
    with pytest.raises(InvalidArgument, match=f"{call} was called where there is no current key"):
        getattr(service, call)(5)


@pytest.mark.parametrize("call", CALLS)
def test_a_timestamp_is_checked_whether_the_function_fires_timers_or_not(operator, service, call):
    operator.of("a")
    for one in (service, KeyedTimerService(operator.keys)):
        with pytest.raises(InvalidArgument, match=f"{call} needs a whole number of milliseconds"):
            getattr(one, call)(1.5)


class Whole:
    def __index__(self):
        return 5


@pytest.mark.parametrize(
    ("given", "expected"),
    [(5, 5), (0, 0), (-1, -1), (True, 1), (Whole(), 5), (NO_TIME, NO_TIME), (MAX_TIME, MAX_TIME)],
)
def test_timestamps(given, expected):
    assert checked_time(given, "call") == expected
    assert type(checked_time(given, "call")) is int


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (1.0, ["call needs a whole number of milliseconds", "float 1.0"]),
        ("5", ["call needs a whole number of milliseconds", "str '5'"]),
        (None, ["call needs a whole number of milliseconds", "NoneType None"]),
        (MAX_TIME + 1, ["call: the timestamp does not fit into 64 bits", str(MAX_TIME + 1)]),
        (NO_TIME - 1, ["call: the timestamp does not fit into 64 bits", "not nanoseconds"]),
    ],
)
def test_what_is_no_timestamp(given, words):
    with pytest.raises(InvalidArgument) as failure:
        checked_time(given, "call")
    assert all(word in str(failure.value) for word in words)
