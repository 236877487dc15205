"""What state is written in: words of the vocabulary, and the names that keys have always had. Modules may move."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import pytest

import millstream
from millstream import v
from millstream.checkpoint.statefile import load_plain
from millstream.common import Instant, JobStatus, Row, RowKind
from millstream.connectors.file.commit import Part
from millstream.connectors.postgres.commit import Staged
from millstream.datastream import OutputTag
from millstream.datastream.window import TimeWindow, Window
from millstream.errors import KeyClassNotFound
from millstream.runtime.wire.codec import dumps, plain_pickle
from millstream.runtime.wire.keys import _Described, canonical, check_key, original_key
from tests.compat import kinds
from tests.compat.scan import (
    CLASSES,
    CLASSES_IN_KEYS,
    IN_KEYS,
    LATER_WORDS,
    WORDS,
    misnamed,
    names_in,
    names_of,
    public_names,
)

HERE = Path(__file__).parent

CHECKSUMS = [
    *(
        "text",
        1,
        1256158642,
        1353067260,
        3100806706,
        2029700232,
        1743488993,
        2611979788,
        1331721642,
    ),
    *(3041491045, 3599981998, 245245760, 1461482411, 1525942998, 1467092246, 2624217039, 847613128),
    *(864957113, 3847926848, 1389215145, 3984439203, 4236364177, 323819366, 3348355733, 306662170),
    *(2017710442, 3992160573, 3510469466, 3443017681, 59490294),
]


# -- what is written -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", kinds.BACKENDS)
def test_no_module_of_the_project_is_named_in_a_savepoint(backend, tmp_path):
    out = []
    client = kinds.start(out, 2, None, backend, str(tmp_path / "files"))
    kinds.wait_for(client, out, kinds.COUNT // 3)
    path = client.stop_with_savepoint(False, str(tmp_path)).result(60)
    client.get_job_execution_result().result(60)
    by_table = names_in(Path(path))
    found = {name for names in by_table.values() for name in names if "millstream" in name}
    assert {name for name in found if name.startswith("key ")} == {
        f"key {name}" for name in CLASSES_IN_KEYS
    }
    others = {name for name in found if not name.startswith("key ")}
    assert others == IN_KEYS | CLASSES | {f"millstream.v {word}" for word in WORDS}
    # Keys are in all tables, and nothing else in these.
    timers = [names for table, names in by_table.items() if table.endswith("-timers")]
    assert timers
    assert all({n for n in names if n.startswith("millstream")} <= IN_KEYS for names in timers)


def test_the_scan_finds_what_was_named_before(tmp_path):
    # The same scan over a savepoint from before, so that it cannot be blind.
    path, _ = kinds.unpack(kinds.written()[0], tmp_path)
    found = {name for names in names_in(Path(path)).values() for name in names}
    assert {"millstream.common.time Instant", "millstream.common.windows TimeWindow"} <= found
    assert not any("millstream.v" in name for name in found)


def test_every_test_that_writes_state_looks_for_such_names():
    # As the fixture for all tests does, which sees what the program above does not have.
    assert misnamed(dumps([(canonical(key), Row(1)) for key in kinds.KEYS])) == set()
    for data in (dumps(OutputTag), pickle.dumps([OutputTag, OutputTag], 5)):
        assert misnamed(data) == {"millstream.api.output_tag OutputTag"}
    assert misnamed(canonical(JobStatus.FAILED)) == {"key millstream.common.job_status.JobStatus"}


def test_the_words_never_change():
    assert set(v.NAMES) == WORDS | LATER_WORDS
    assert len(set(v.NAMES.values())) == len(v.NAMES)
    for word in v.NAMES:
        maker = getattr(v, word)
        assert (maker.__module__, maker.__qualname__) == ("millstream.v", word)


def test_the_bytes_of_keys_never_change():
    forms = [canonical(key) for key in kinds.KEYS]
    assert [crc32(one) if isinstance(one, bytes) else one for one in forms] == CHECKSUMS
    assert canonical(Row.of_kind(RowKind.DELETE, 1)) == (
        b"\x80\x05\x95S\x00\x00\x00\x00\x00\x00\x00\x8c\x17millstream.common.types\x8c\x08make_row\x93N]K\x01a"
        b"\x8c\x17millstream.common.types\x8c\x07RowKind\x93K\x03\x85R\x87R."
    )


class Named(Row):
    """A row of the user's own class."""


def test_keys_of_classes_that_extend_ours_are_what_they_were():
    wanted = {"millstream.runtime.keys _Part": 2, "key millstream.common.types.make_row": 1}
    assert names_of(canonical(Named(1))) == wanted
    name = "key millstream.common.windows.TimeWindow"
    wanted = {"millstream.runtime.keys _Part": 2, name: 1}
    assert names_of(canonical(kinds.Span(1, 2))) == wanted


def test_committables_of_our_sinks_are_no_pickles():
    assert json.loads(Part.encode([Part("day", ".hidden", "visible", "out")]))
    assert json.loads(Staged("shop orders", "job", 7, 0, "a1").encode())


# -- what is read ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", v.FORMER)
def test_what_was_named_by_its_module_is_found(name):
    module, _, attribute = name.partition(":")
    found = importlib.import_module(f"millstream.{module}")
    if attribute:
        assert getattr(found, attribute) is v._at(v.FORMER[name])
    else:
        today = importlib.import_module(v.FORMER[name])
        assert today.__all__
        assert all(getattr(found, one) is getattr(today, one) for one in today.__all__)


def test_what_a_class_of_a_script_takes_along_is_found():
    # Its base, and what its methods use: a pickle of such a class names them by the modules of its time.
    names = sorted(public_names())
    assert names
    for line in names:
        module, _, name = line.partition(":")
        assert hasattr(importlib.import_module(f"millstream.{module}"), name), (
            f"{line} has moved: say in millstream/v.py where it stands now"
        )


# What a program does not use, and so no class of a script.
INTERNAL = set(
    "bench checkpoint cli graph ha pyflink reporters rest runtime session spark storage testing"
    " __main__ names v".split()
)


def test_every_public_name_is_written_down():
    there = set()
    for module in pkgutil.walk_packages(millstream.__path__, "millstream."):
        if module.name.split(".")[1] in INTERNAL:
            continue
        found = importlib.import_module(module.name)
        for name in getattr(found, "__all__", ()):
            if getattr(getattr(found, name), "__module__", None) == module.name:
                there.add(f"{module.name.removeprefix('millstream.')}:{name}")
    missing = sorted(there - public_names())
    assert not missing, f"add to tests/compat/public_names.txt: {' '.join(missing)}"


def test_a_class_of_a_script_names_its_bases():
    class Own(Window):
        def max_timestamp(self):
            return 1

    data = dumps(Own())
    assert b"millstream.api.windows" in data
    assert misnamed(data) == set()


def test_a_module_that_is_gone_is_found_by_its_former_name(monkeypatch):
    monkeypatch.setitem(v.FORMER, "gone.before:make_row", "millstream.common.types:make_row")
    monkeypatch.setitem(v.FORMER, "gone.whole", "millstream.common.time")
    row = pickle.loads(b"cmillstream.gone.before\nmake_row\n(N(lI1\natR.")
    assert row == Row(1)
    assert pickle.loads(b"cmillstream.gone.whole\nInstant\n(I1\nI2\ntR.") == Instant(1, 2)
    for planted in (b"cmillstream.gone.before\nRow\n.", b"cmillstream.gone.whole\n_TEXT\n."):
        with pytest.raises(AttributeError):
            pickle.loads(planted)
    with pytest.raises(ImportError):
        importlib.import_module("millstream.gone.after")
    for name in [name for name in sys.modules if name.startswith("millstream.gone")]:
        monkeypatch.delitem(sys.modules, name)


def test_no_two_modules_have_become_one_by_whole_lines():
    whole = [place for name, place in v.FORMER.items() if ":" not in name]
    assert len(set(whole)) == len(whole)


MOVES = {
    "runtime.wire.keys": "runtime.moved_keys",
    "runtime.wire.key_objects": "runtime.moved_objects",
    "common.types": "common.moved_types",
    "api.windows": "common.moved_windows",
    "common.time": "common.moved_time",
}
AFTER_THE_MOVE = """
import pickle, sys
from pathlib import Path
import cloudpickle
import millstream.runtime.moved_keys as keys
from millstream.common import RowKind
assert b"_make_skeleton" not in cloudpickle.dumps(lambda: RowKind.DELETE)
sys.path.insert(1, sys.argv[1])
from tests.compat import kinds
from millstream import v
assert not Path(keys.__file__).with_name("wire").joinpath("keys.py").exists()
forms, values = pickle.loads(Path(sys.argv[2]).read_bytes())
assert [keys.canonical(key) for key in kinds.KEYS] == forms, "the bytes of a key have changed"
assert [repr(keys.original_key(form)) for form in forms] == [repr(key) for key in kinds.KEYS]
assert repr(pickle.loads(values)) == repr(kinds.values(3))
keys.check_key(forms[8])
everything = b"\\x80\\x04\\x8c\\x19millstream.common.windows\\x8c\\x10GlobalWindow.get\\x93)R."
assert repr(pickle.loads(everything)) == "GlobalWindow"
assert v.row.__code__.co_filename.endswith("moved_types.py")
print("moved")
"""


def test_modules_may_move(tmp_path):
    # The package with some of its modules elsewhere, as whoever moves them would do it: by replacing their names.
    package = Path(millstream.__file__).parent
    target = tmp_path / "millstream"
    shutil.copytree(package, target, ignore=shutil.ignore_patterns("__pycache__"))
    for old, new in MOVES.items():
        (target / f"{old.replace('.', '/')}.py").rename(target / f"{new.replace('.', '/')}.py")
    names = re.compile(
        r"\bmillstream\.(" + "|".join(re.escape(old) for old in MOVES) + r")(?=[\s:\"])"
    )
    for file in target.rglob("*.py"):
        text = file.read_text()
        moved = names.sub(lambda found: f"millstream.{MOVES[found[1]]}", text)
        if moved != text:
            file.write_text(moved)
    data = tmp_path / "data"
    data.write_bytes(
        pickle.dumps(([canonical(key) for key in kinds.KEYS], _formerly(kinds.values(3))))
    )
    done = subprocess.run(
        [sys.executable, "-c", AFTER_THE_MOVE, str(HERE.parents[1]), str(data)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "moved\n", done.stderr


def _formerly(values):
    """A pickle of the values that names what makes them as savepoints from before do."""
    data = pickle.dumps(values, 0)
    for word, name in {
        "row": "common.types\nmake_row",
        "time_window": "common.windows\nTimeWindow",
        "count_window": "common.windows\nCountWindow",
        "instant": "common.time\nInstant",
        "time": "common.time\nTime",
        "duration": "common.time\nDuration",
    }.items():
        named = f"cmillstream.v\n{word}\n".encode()
        assert named in data
        data = data.replace(named, f"cmillstream.{name}\n".encode())
    return data


# -- where trust ends ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", kinds.values(1)[:15], ids=lambda one: type(one).__name__)
def test_a_word_is_no_way_into_what_is_plain(value):
    # Neither into the values of a plain table, nor into the bytes of a key, whoever reads them.
    data = dumps(value)
    for read in (load_plain, check_key, lambda data: original_key(data, trusted=False)):
        with pytest.raises(pickle.UnpicklingError):
            read(data)


def test_keys_do_not_get_to_call_what_words_stand_for():
    parts = [_Described("name", "millstream.v.row"), (None, [1]), None, None, None]
    planted = plain_pickle(_Described("object", parts))
    check_key(planted)
    for trusted in (True, False):
        with pytest.raises(KeyClassNotFound):
            original_key(planted, trusted=trusted)
    # As it was: who trusts nobody makes no windows of keys.
    with pytest.raises(KeyClassNotFound):
        original_key(canonical(TimeWindow(1, 2)), trusted=False)
