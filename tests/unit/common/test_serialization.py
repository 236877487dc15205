import io
import pickle

import pytest

from millstream.common.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    Encoder,
    RowFieldExtractorSchema,
    SerializationSchema,
    SimpleStringSchema,
)
from millstream.common.typeinfo import Types
from millstream.common.types import Row
from millstream.errors import InvalidArgument, TypeMismatchError


@pytest.mark.parametrize("charset", ["UTF-8", "UTF-16", "utf-32", "GB18030"])
def test_string_schema_comes_back(charset):
    schema = SimpleStringSchema(charset)
    assert schema.deserialize(schema.serialize("tést 水")) == "tést 水"
    assert schema.get_produced_type() == Types.STRING()
    assert isinstance(schema, SerializationSchema)
    assert isinstance(schema, DeserializationSchema)


def test_string_schema_replaces_what_does_not_fit():
    assert SimpleStringSchema("ascii").serialize("aé") == b"a?"
    assert SimpleStringSchema().deserialize(b"a\xff") == "a�"
    assert SimpleStringSchema().deserialize(bytearray(b"a")) == "a"


def test_string_schema_refuses():
    with pytest.raises(TypeMismatchError):
        SimpleStringSchema().serialize(1)
    with pytest.raises(InvalidArgument):
        SimpleStringSchema("utf-99")


def test_bytes_schema():
    schema = ByteArraySchema()
    assert schema.serialize(bytearray(b"ab")) == b"ab"
    assert schema.deserialize(memoryview(b"ab")) == b"ab"
    assert schema.get_produced_type() == Types.PRIMITIVE_ARRAY(Types.BYTE())
    with pytest.raises(TypeMismatchError):
        schema.serialize("ab")


def test_row_field_schema():
    row = Row(b"k", bytearray(b"v"), 3, None)
    fields = [RowFieldExtractorSchema(i).serialize(row) for i in (0, 1, 3)]
    assert fields == [b"k", b"v", b""]
    assert RowFieldExtractorSchema(0).serialize(None) == b""
    with pytest.raises(InvalidArgument, match="Cannot access field 4 in Row with arity 4"):
        RowFieldExtractorSchema(4).serialize(row)
    with pytest.raises(InvalidArgument, match="Field at index 2 must be of type byte"):
        RowFieldExtractorSchema(2).serialize(row)
    with pytest.raises(ValueError, match="Field index must be non-negative, got: -1"):
        RowFieldExtractorSchema(-1)
    with pytest.raises(InvalidArgument):
        RowFieldExtractorSchema("0")
    assert RowFieldExtractorSchema(2).field_index == 2
    assert len({RowFieldExtractorSchema(1), RowFieldExtractorSchema(1)}) == 1
    assert RowFieldExtractorSchema(1) != RowFieldExtractorSchema(2)


def test_simple_string_encoder():
    stream = io.BytesIO()
    encoder = Encoder.simple_string_encoder()
    for element in ("é", 1, ("a", 1), Row("a", None), None):
        encoder.encode(element, stream)
    assert stream.getvalue().decode() == "é\n1\n('a', 1)\n+I[a, null]\nNone\n"
    with pytest.raises(InvalidArgument):
        Encoder.simple_string_encoder("nope")


def test_own_schema_only_needs_its_method():
    class Number(DeserializationSchema):
        def deserialize(self, message):
            return int(message)

    number = Number()
    number.open()
    assert number.deserialize(b"12") == 12
    assert number.get_produced_type() == Types.PICKLED_BYTE_ARRAY()
    assert not number.is_end_of_stream(12)
    with pytest.raises(TypeError):
        SerializationSchema()


@pytest.mark.parametrize("schema", [SimpleStringSchema(), Encoder.simple_string_encoder()])
def test_pickle(schema):
    assert type(pickle.loads(pickle.dumps(schema))) is type(schema)
