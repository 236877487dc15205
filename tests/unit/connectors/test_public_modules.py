"""The modules programs import from."""

import importlib

import pytest


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("base", "Source Sink DeliveryGuarantee SplitEnumerator SourceReader Boundedness"),
        ("base", "SinkWriter Committer WriterContext"),
        ("number_seq", "NumberSequenceSource"),
        ("datagen", "DataGeneratorSource seeded"),
        ("file_system", "FileSource FileSink StreamFormat BucketAssigner"),
        ("file_system", "RollingPolicy OutputFileConfig"),
        ("socket", "SocketTextSource"),
    ],
)
def test_names_are_where_pyflink_has_them(module, names):
    found = importlib.import_module(f"millstream.datastream.connectors.{module}")
    assert names.split()
    for name in names.split():
        assert name in found.__all__
        assert hasattr(found, name)
