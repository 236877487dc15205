import copy
import pickle

import pytest

from millstream.common.types import Row, RowKind, format_row
from millstream.errors import InvalidArgument


def test_named_row_access():
    row = Row(name="Alice", age=11)
    assert (row.name, row["name"], row[0], row[-1]) == ("Alice", "Alice", "Alice", 11)
    assert row[0:2] == ["Alice", 11]
    assert list(row) == ["Alice", 11]
    assert len(row) == 2
    assert row.as_dict() == {"name": "Alice", "age": 11}


def test_names_keep_their_order():
    assert repr(Row(b=1, a=2)) == "Row(b=1, a=2)"


def test_contains_answers_for_names_and_values():
    row = Row(name="Alice")
    assert "name" in row
    assert "Alice" in row
    assert "age" not in row
    assert "name" in Row("name", "age")


def test_set_item_by_position_and_name():
    row = Row(a=1, b=2)
    row[0] = 5
    row["b"] = 6
    assert row == Row(a=5, b=6)


def test_missing_name():
    row = Row(a=1)
    with pytest.raises(InvalidArgument, match="no field 'b'"):
        row["b"]
    with pytest.raises(ValueError):
        row["b"] = 1
    with pytest.raises(AttributeError):
        _ = row.b
    with pytest.raises(ValueError):
        Row(1)["a"]
    with pytest.raises(AttributeError):
        _ = Row(1).a
    with pytest.raises(IndexError):
        row[1]


def test_attributes_cannot_be_set():
    row = Row(a=1)
    with pytest.raises(AttributeError):
        row.a = 2
    with pytest.raises(AttributeError):
        row.other = 2


def test_positional_and_named_do_not_mix():
    with pytest.raises(InvalidArgument):
        Row(1, a=2)


def test_template():
    template = Row("name", "age")
    template.set_row_kind(RowKind.DELETE)
    person = template("Bob", 7)
    assert person.name == "Bob"
    assert person.get_row_kind() is RowKind.DELETE
    with pytest.raises(InvalidArgument):
        template(1, 2, 3)


def test_template_with_fewer_values():
    row = Row("a", "b")(1)
    assert row.a == 1
    assert row.as_dict() == {"a": 1}
    with pytest.raises(AttributeError):
        _ = row.b
    with pytest.raises(InvalidArgument):
        row["b"]


def test_equality():
    assert Row(1, 2) == Row(1, 2)
    assert Row(1, 2) != Row(1, 3)
    assert Row(f0=1) != Row(1)
    assert Row(a=1) != Row(b=1)
    assert Row(1) != (1,)
    assert Row.of_kind(RowKind.DELETE, 1) != Row(1)


def test_hash():
    assert hash(Row(1, "a")) == hash(Row(1, "a"))
    assert {Row(1): "x"}[Row(1)] == "x"
    with pytest.raises(TypeError):
        hash(Row([1]))


@pytest.mark.parametrize(
    "row", [Row(), Row(1, "a", None), Row(a=1, b=[2]), Row.of_kind(RowKind.UPDATE_BEFORE, x=Row(1))]
)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(row, protocol):
    again = pickle.loads(pickle.dumps(row, protocol))
    assert again == row
    assert repr(again) == repr(row)
    assert again.get_row_kind() is row.get_row_kind()


def test_copies_are_independent():
    row = Row(a=[1])
    shallow, deep = copy.copy(row), copy.deepcopy(row)
    row["a"].append(2)
    assert deep == Row(a=[1])
    assert shallow == row


def test_no_dict():
    assert not hasattr(Row(1), "__dict__")


def test_as_dict():
    row = Row(key=1, value=Row(a=2), more=[Row(b=3)], some={"x": Row(c=4)})
    assert row.as_dict()["value"] == Row(a=2)
    assert row.as_dict(True) == {
        "key": 1,
        "value": {"a": 2},
        "more": [{"b": 3}],
        "some": {"x": {"c": 4}},
    }
    with pytest.raises(TypeError):
        Row(1).as_dict()


def test_field_names():
    row = Row(1, 2)
    row.set_field_names(["a", "b"])
    assert row == Row(a=1, b=2)
    assert row.get_fields_by_names(["b"]) == [2]
    assert Row(1, 2).get_fields_by_names(["x", "y"]) == [1, 2]
    with pytest.raises(InvalidArgument):
        row.get_fields_by_names(["c"])


def test_repr():
    assert repr(Row("a", 1)) == "<Row('a', 1)>"
    assert repr(Row(f0="a", f1=1)) == "Row(f0='a', f1=1)"
    assert repr(Row()) == "<Row()>"


def test_format_row():
    assert format_row(Row("a", 1)) == "+I[a,1]"
    assert format_row(Row(x="a", y=None), ", ") == "+I[a, null]"
    assert format_row(Row(Row(1, None), [2]), ", ") == "+I[+I[1, null], [2]]"
    assert format_row(Row.of_kind(RowKind.UPDATE_BEFORE, 1)) == "-U[1]"
    assert [str(kind) for kind in RowKind] == ["+I", "-U", "+U", "-D"]
