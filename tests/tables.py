"""Tables of Delta and Iceberg as tests see them: with their own libraries, and with DuckDB."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from millstream.api.sink import Sink
from millstream.common import Types
from millstream.connectors.delta.sink import DeltaSink
from millstream.connectors.iceberg.sink import IcebergSink
from tests.crashes import Outlet

__all__ = ["DeltaRows", "IcebergRows", "Rows"]

ID = Types.ROW_NAMED(["id"], [Types.LONG()])


class Rows(Outlet):
    """A table of one column without any key: what is written twice is there twice."""

    kind = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / self.kind
        self.taken: Counter = Counter()

    def builder(self) -> Any:
        """A builder of sinks into the table."""
        raise NotImplementedError

    def sink(self) -> Sink:
        return self.builder().set_row_type(ID).create_if_missing().build()

    def table(self) -> pa.Table:
        """All rows, read by the table's own library."""
        raise NotImplementedError

    def files(self) -> list[str]:
        """The data files of the table as it is now."""
        raise NotImplementedError

    def empty(self) -> None:
        """Another writer removes all rows."""
        raise NotImplementedError

    def there(self) -> bool:
        raise NotImplementedError

    def read(self) -> Counter:
        if not self.there():
            return Counter(self.taken)
        own = Counter(self.table().column("id").to_pylist())
        files = [name.removeprefix("file://") for name in self.files()]
        seen = duckdb.read_parquet(files).fetchall() if files else []
        assert Counter(row[0] for row in seen) == own
        return self.taken + own

    def take(self) -> None:
        self.taken = self.read()
        if self.there():
            self.empty()


class DeltaRows(Rows):
    kind = "delta"

    def builder(self) -> Any:
        return DeltaSink.builder().set_table(str(self.folder))

    def there(self) -> bool:
        return DeltaTable.is_deltatable(str(self.folder))

    def table(self) -> pa.Table:
        return DeltaTable(str(self.folder)).to_pyarrow_table()

    def files(self) -> list[str]:
        return DeltaTable(str(self.folder)).file_uris()

    def empty(self) -> None:
        DeltaTable(str(self.folder)).delete()

    def commits(self) -> int:
        return sum(one["operation"] == "WRITE" for one in DeltaTable(str(self.folder)).history())


class IcebergRows(Rows):
    kind = "iceberg"
    name = "shop.orders"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder.mkdir(exist_ok=True)
        self.properties = {
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalogue.db",
            "warehouse": f"file://{self.folder}",
        }

    def builder(self) -> Any:
        return IcebergSink.builder().set_catalog("tests", self.properties).set_table(self.name)

    def catalog(self) -> Any:
        return load_catalog("tests", **self.properties)

    def loaded(self) -> Any:
        return self.catalog().load_table(self.name)

    def there(self) -> bool:
        return bool(self.catalog().table_exists(self.name))

    def table(self) -> pa.Table:
        return self.loaded().scan().to_arrow()

    def files(self) -> list[str]:
        return self.loaded().inspect.files().column("file_path").to_pylist()

    def empty(self) -> None:
        if self.loaded().current_snapshot() is not None:
            self.loaded().delete()

    def commits(self) -> int:
        noted = [one.summary.additional_properties for one in self.loaded().snapshots()]
        return sum("millstream.epoch" in one for one in noted)


def copied(folder: Path, to: Path) -> None:
    """A backup of a folder."""
    shutil.copytree(folder, to)
