"""The checker job with its lines in other systems than files of this machine, and what these hold in the end."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from millstream.api.sink import Sink
from millstream.common import Encoder, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import (
    BucketAssigner,
    FileCompactor,
    FileCompactStrategy,
    FileSink,
)
from tests.chaos import checker, oracle
from tests.chaos.oracle import Verdict
from tests.integration.postgres import start_server
from tests.s3 import KEY, SECRET, client_of, s3_process

__all__ = ["OUTSIDE", "Outside", "main", "nothing", "postgres_server", "s3_server"]

LINE = Types.ROW_NAMED(["line"], [Types.STRING()])
BUCKET = "chaos"
POSTGRES = "MILLSTREAM_CHAOS_POSTGRES"


@dataclass(frozen=True)
class Outside:
    """A system: the sink into it, and all lines that are in it. One folder of the runs is one place there."""

    sink: Callable[[Path], Sink]
    lines: Callable[[Path], list[str]]

    def judge(self, folder: Path) -> Verdict:
        """The oracle reads files; so the lines become one."""
        (folder / "out").mkdir(exist_ok=True)
        (folder / "out" / "lines").write_text("".join(f"{line}\n" for line in self.lines(folder)))
        return oracle.judge(folder)


def _compacted_sink(folder: Path) -> Sink:
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(3).build()
    builder = FileSink.for_row_format(folder / "compacted", Encoder.simple_string_encoder())
    builder = builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    return builder.enable_compact(strategy, FileCompactor.concat_file_compactor()).build()


def _compacted_lines(folder: Path) -> list[str]:
    return oracle.visible_lines(folder / "compacted")


def _delta_sink(folder: Path) -> Sink:
    from millstream.datastream.connectors.delta import DeltaSink

    builder = DeltaSink.builder().set_table(str(folder / "delta")).set_row_type(LINE)
    return builder.create_if_missing().build()


def _delta_lines(folder: Path) -> list[str]:
    from deltalake import DeltaTable

    return DeltaTable(str(folder / "delta")).to_pyarrow_table().column("line").to_pylist()


def _iceberg(folder: Path) -> dict[str, str]:
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalogue.db",
        "warehouse": f"file://{folder}/warehouse",
    }


def _iceberg_sink(folder: Path) -> Sink:
    from millstream.datastream.connectors.iceberg import IcebergSink

    builder = IcebergSink.builder().set_catalog("chaos", _iceberg(folder)).set_table("chaos.lines")
    return builder.set_row_type(LINE).create_if_missing().build()


def _iceberg_lines(folder: Path) -> list[str]:
    from pyiceberg.catalog import load_catalog

    table = load_catalog("chaos", **_iceberg(folder)).load_table("chaos.lines")
    return table.scan().to_arrow().column("line").to_pylist()


def _prefix(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"


def _s3_sink(folder: Path) -> Sink:
    url = f"s3://{BUCKET}/{_prefix(folder)}"
    builder = FileSink.for_row_format(url, Encoder.simple_string_encoder())
    return builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()


def _s3_lines(folder: Path) -> list[str]:
    client = client_of(os.environ["AWS_ENDPOINT_URL"])
    pages = client.get_paginator("list_objects_v2").paginate(
        Bucket=BUCKET, Prefix=f"{_prefix(folder)}/"
    )
    found: list[str] = []
    for page in pages:
        for one in page.get("Contents", []):
            body = client.get_object(Bucket=BUCKET, Key=one["Key"])["Body"].read()
            found += body.decode().splitlines()
    return found


def _postgres(folder: Path) -> tuple[dict[str, Any], str]:
    """The server, and a table for this run."""
    name = f"lines_{folder.parent.name}_{folder.name}".lower()
    return json.loads(os.environ[POSTGRES]), "".join(c if c.isalnum() else "_" for c in name)[:60]


def _postgres_sink(folder: Path) -> Sink:
    import psycopg

    from millstream.datastream.connectors.postgres import PostgresSink

    dsn, table = _postgres(folder)
    with psycopg.connect(**dsn, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE IF NOT EXISTS {table} (line text NOT NULL)")
    builder = PostgresSink.builder().set_dsn(dsn).set_table(table).set_columns("line")
    return builder.build_transactional()


def _postgres_lines(folder: Path) -> list[str]:
    import psycopg

    dsn, table = _postgres(folder)
    with psycopg.connect(**dsn, autocommit=True) as connection:
        return [line for (line,) in connection.execute(f"SELECT line FROM {table}").fetchall()]


OUTSIDE = {
    "compact": Outside(_compacted_sink, _compacted_lines),
    "delta": Outside(_delta_sink, _delta_lines),
    "iceberg": Outside(_iceberg_sink, _iceberg_lines),
    "postgres": Outside(_postgres_sink, _postgres_lines),
    "s3": Outside(_s3_sink, _s3_lines),
}


@contextlib.contextmanager
def nothing() -> Iterator[None]:
    """No server is needed."""
    yield


@contextlib.contextmanager
def s3_server() -> Iterator[None]:
    """A server for as long as the runs take; drivers find it in their environment."""
    with s3_process() as endpoint:
        client_of(endpoint).create_bucket(Bucket=BUCKET)
        found = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        with patch.dict(os.environ, found):
            yield


@contextlib.contextmanager
def postgres_server() -> Iterator[None]:
    """A server of PostgreSQL for as long as the runs take."""
    folder = Path(tempfile.mkdtemp(prefix="millstream-postgres-", dir="/tmp"))
    try:
        server = start_server(folder)
        try:
            with patch.dict(os.environ, {POSTGRES: json.dumps(server.dsn)}):
                yield
        finally:
            server.control("stop", "-m", "immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(kind: str) -> None:
    """Run the checker job into a system, as the command line says."""

    def build(env: StreamExecutionEnvironment, folder: Path) -> Any:
        checker.build(env, folder, OUTSIDE[kind].sink(folder))

    checker.main(build)
