"""What of a checkpoint goes where in a program of another shape, and what is refused."""

from __future__ import annotations

import pytest

from millstream.checkpoint.coordinator import Layout
from millstream.checkpoint.manifest import (
    FeedbackFile,
    GeneratorState,
    Manifest,
    OperatorInfo,
    Parent,
    StoreState,
)
from millstream.checkpoint.restore import (
    check_fits,
    fits_as_is,
    restored_manifest,
    without_sinks,
)
from millstream.checkpoint.statefile import StateFile
from millstream.errors import StateMismatch

KEYED = {"sum": {"kind": "value"}}
LISTED = {"buffer": {"kind": "operator list"}}


def operator(name: str, states: dict | None = None, most: int = 128, parallelism: int = 2):
    return OperatorInfo(
        name=name, parallelism=parallelism, max_parallelism=most, states=states or {}
    )


def layout(operators: dict | None = None, stores: dict | None = None, sinks: tuple = ()) -> Layout:
    return Layout("now", "job", [1], stores or {}, operators or {}, frozenset(sinks))


def store(subtask: int, *uids: str, parallelism: int = 2, most: int = 128, **more):
    return StoreState(
        subtask=subtask,
        parallelism=parallelism,
        max_parallelism=most,
        operators=list(uids),
        **more,
    )


def file(name: str) -> StateFile:
    return StateFile(name=name, epoch=7, full=True, size=1)


def manifest(**more) -> Manifest:
    return Manifest(epoch=7, job_id="then", job_name="job", **more)


# -- what is refused -----------------------------------------------------------------------------------------


def refusal(found: Manifest, program: Layout) -> str:
    with pytest.raises(StateMismatch) as raised:
        check_fits(found, program, where="checkpoint 7")
    return str(raised.value)


def test_nothing_of_a_checkpoint_belongs_to_another_program():
    found = manifest(operators={"a": operator("sum", KEYED), "b": operator("join", KEYED)})
    text = refusal(found, layout({"c": operator("other")}))
    assert "nothing of checkpoint 7 belongs to this program" in text
    assert "'sum' (uid a: sum)" in text
    assert "'other' (uid c)" in text


def test_of_a_program_that_lacks_one_operator_that_one_is_named():
    found = manifest(operators={"a": operator("sum", KEYED), "b": operator("join", KEYED)})
    text = refusal(found, layout({"a": operator("sum")}))
    assert "has state of operators that the program does not have" in text
    assert "'join' (uid b: sum)" in text


@pytest.mark.parametrize(
    "more",
    [
        {"offsets": {"a": {"0": 3}}},
        {"feedback": {"a": [FeedbackFile("f", 7, 1, 1)]}},
    ],
    ids=["positions of a source", "records of a loop"],
)
def test_what_has_no_state_but_something_to_go_on_from_is_missed_too(more):
    found = manifest(operators={"a": operator("source")}, **more)
    assert "nothing of checkpoint 7" in refusal(found, layout())


def test_an_operator_without_state_is_not_missed():
    check_fits(manifest(operators={"a": operator("map")}), layout(), where="")


def test_what_is_missing_may_be_left_behind():
    found = manifest(
        operators={"a": operator("sum", KEYED), "s": operator("sink")}, committables={"s": [b"1"]}
    )
    check_fits(found, layout(), where="", allow_non_restored=True)


def test_another_number_of_key_groups_is_refused_even_if_state_may_be_left_behind():
    found = manifest(operators={"a": operator("sum", KEYED, 128)})
    program = layout({"a": operator("sum", most=64)})
    with pytest.raises(StateMismatch, match="maximum parallelism of 'sum'") as raised:
        check_fits(found, program, where="", allow_non_restored=True)
    assert "set_max_parallelism(128)" in str(raised.value)


def test_a_parallelism_that_the_key_groups_do_not_reach_for_cannot_be_mended_by_a_setting():
    found = manifest(operators={"a": operator("sum", KEYED, 4)})
    at_most = refusal(found, layout({"a": operator("sum", most=128, parallelism=5)}))
    assert "a parallelism of at most 4" in at_most
    just = refusal(found, layout({"a": operator("sum", most=128, parallelism=4)}))
    assert "set_max_parallelism(4)" in just


def test_without_keyed_state_the_number_of_key_groups_does_not_matter():
    found = manifest(operators={"a": operator("source", LISTED, 128)})
    check_fits(found, layout({"a": operator("source", most=64)}), where="")


def test_output_to_commit_needs_its_sink():
    found = manifest(operators={"s": operator("files")}, committables={"s": [b"1"], "t": []})
    assert without_sinks(found, layout()) == ["s"]
    text = refusal(found, layout({"u": operator("other sink")}, sinks=("u",)))
    assert "has output to commit, of a sink that the program does not have" in text
    assert "'files' (uid s)" in text
    assert "'other sink' (uid u)" in text
    check_fits(found, layout({"s": operator("files")}, sinks=("s",)), where="")


def test_a_sink_is_named_though_the_checkpoint_does_not_know_its_operator():
    assert "'sink' (uid s)" in refusal(manifest(committables={"s": [b"1"]}), layout())


# -- as it is ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "same"),
    [
        ({"a/0": store(0, "a", "b")}, True),
        ({"a/0": store(0, "b", "a")}, True),
        ({"a/0": store(0, "a", "b"), "c/0": store(0, "c")}, True),
        ({"b/0": store(0, "a", "b")}, False),
        ({"a/0": store(1, "a", "b")}, False),
        ({"a/0": store(0, "a", "b", parallelism=3)}, False),
        ({"a/0": store(0, "a", "b", most=64)}, False),
        ({"a/0": store(0, "a")}, False),
        ({"a/0": store(0, "a", "b", "c")}, False),
        ({}, False),
    ],
)
def test_files_are_used_as_they_are_only_if_every_store_is_where_it_was(now, same):
    assert fits_as_is(manifest(stores={"a/0": store(0, "a", "b")}), layout(stores=now)) is same


def test_one_store_that_has_moved_is_enough():
    found = manifest(stores={"a/0": store(0, "a"), "a/1": store(1, "a")})
    now = {"a/0": store(0, "a"), "a/1": store(1, "a", parallelism=3)}
    assert not fits_as_is(found, layout(stores=now))


# -- another layout ------------------------------------------------------------------------------------------


def test_each_new_store_begins_with_the_old_ones_of_its_operators():
    found = manifest(
        stores={
            "a/0": store(0, "a", "b", segments=[file("1")]),
            "a/1": store(1, "a", "b", segments=[file("2")]),
            "c/0": store(0, "c", segments=[file("3")]),
        }
    )
    now = {"a/0": store(0, "a"), "b/0": store(0, "b", "c"), "d/0": store(0, "d")}
    made = restored_manifest(found, layout(stores=now), epoch=8, root="there")
    parents = {
        name: [(p.root, p.segments[0].name) for p in one.parents]
        for name, one in made.stores.items()
    }
    assert parents == {
        "a/0": [("there", "1"), ("there", "2")],
        "b/0": [("there", "1"), ("there", "2"), ("there", "3")],
    }
    assert not any(one.segments for one in made.stores.values())
    assert (made.epoch, made.job_id) == (8, "now")


def parent(subtask: int, *uids: str, root: str = "") -> Parent:
    return Parent(
        root=root,
        subtask=subtask,
        parallelism=1,
        operators=list(uids),
        segments=[file(f"p{subtask}")],
    )


def parents_of(*stores: StoreState) -> list[tuple[str, str]]:
    found = manifest(stores={str(i): one for i, one in enumerate(stores)})
    made = restored_manifest(found, layout(stores={"x": store(0, "a", "b")}), epoch=8, root="there")
    return [(p.root, p.segments[0].name) for p in made.stores["x"].parents]


def test_what_was_restored_and_has_written_nothing_hands_on_what_it_began_with():
    both = [parent(0, "a"), parent(1, "a", root="elsewhere")]
    assert parents_of(store(0, "a", parents=both)) == [("there", "p0"), ("elsewhere", "p1")]


def test_what_several_stores_began_with_is_handed_on_once():
    one = store(0, "a", parents=[parent(0, "a")])
    assert parents_of(one, store(1, "a", parents=[parent(0, "a")])) == [("there", "p0")]


def test_when_one_subtask_has_written_what_the_others_began_with_is_out_of_date():
    one = store(0, "a", segments=[file("new")], parents=[parent(0, "a")])
    assert parents_of(one, store(1, "a", parents=[parent(0, "a")])) == [("there", "new")]


def test_of_another_operator_what_it_began_with_still_counts():
    written = store(0, "a", segments=[file("new")])
    waiting = store(0, "b", parents=[parent(5, "b")])
    assert parents_of(written, waiting) == [("there", "new"), ("there", "p5")]


def test_of_positions_times_loops_and_output_the_operators_that_are_there_keep_theirs():
    times = {"0": {"s": GeneratorState(1)}}
    found = manifest(
        operators={"s": operator("source", KEYED)},
        offsets={"s": {"0": 3}, "gone": {"0": 4}},
        times={"s": times, "gone": times},
        feedback={"s": [FeedbackFile("f", 7, 1, 1)], "gone": [FeedbackFile("g", 7, 1, 1)]},
        committables={"k": [b"1"], "gone": [b"2"]},
        savepoint=True,
        ended=True,
        extra={"seen": 1},
    )
    now = layout({"s": operator("renamed"), "n": operator("new")}, sinks=("k",))
    made = restored_manifest(found, now, epoch=8)
    assert made.offsets == {"s": {"0": 3}}
    assert made.times == {"s": times}
    assert [*made.feedback] == ["s"]
    assert made.committables == {"k": [b"1"]}
    assert {uid: (one.name, one.states) for uid, one in made.operators.items()} == {
        "s": ("renamed", KEYED),
        "n": ("new", {}),
    }
    assert (made.savepoint, made.ended, made.extra) == (False, False, {"seen": 1})
    # What a job of another folder keeps beside its state is its own.
    assert restored_manifest(found, now, epoch=8, root="there").extra == {}
