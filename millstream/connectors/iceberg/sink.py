"""An exactly-once sink into an Iceberg table.

Tasks write Parquet files into the table's data folder. The driver appends those of an epoch as one snapshot, whose
summary names the job, the sink and the epoch. A catalogue takes a new snapshot only on top of the one it was made from,
so of two drivers one is refused, looks again, and finds the other's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.api.sink import Committer, DeliveryGuarantee, Sink, SinkWriter, WriterContext
from millstream.connectors.iceberg.settings import IcebergSettings
from millstream.connectors.tables import (
    check_created,
    check_name,
    check_partitions,
    check_size,
    hide,
)
from millstream.errors import InvalidArgument, RuntimeUnusable

__all__ = ["IcebergSink", "IcebergSinkBuilder"]


class IcebergSink(Sink):
    """Appends rows to an Iceberg table; made by a builder.

    >>> IcebergSink.builder().set_catalog("prod").set_table("shop.orders").build()
    <IcebergSink shop.orders in the catalogue prod, exactly-once>
    """

    guarantee = DeliveryGuarantee.EXACTLY_ONCE

    def __init__(self, settings: IcebergSettings) -> None:
        self.settings = settings

    def __repr__(self) -> str:
        told = self.settings
        return f"<IcebergSink {told.table} in the catalogue {told.catalog}, {self.guarantee.value}>"

    @staticmethod
    def builder() -> IcebergSinkBuilder:
        """A builder of an `IcebergSink`."""
        return IcebergSinkBuilder()

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """The writer of a subtask's epoch."""
        hide(self.settings.properties)
        from millstream.connectors.iceberg.table import IcebergWriter

        return IcebergWriter(self.settings, context)

    def create_committer(self) -> Committer:
        """The driver's half; raises if the table is not there, or does not fit the declared type."""
        _require()
        hide(self.settings.properties)
        from millstream.connectors.iceberg.table import IcebergCommitter

        return IcebergCommitter(self.settings)


class IcebergSinkBuilder:
    """Builds an `IcebergSink`.

    >>> builder = IcebergSinkBuilder().set_catalog("prod", {"uri": "https://catalog:8181"})
    >>> builder.set_table("shop.orders").set_sink_id("orders").build().settings.sink_id
    'orders'
    """

    def __init__(self) -> None:
        self._settings: dict[str, Any] = {}

    def set_catalog(
        self, name: str, properties: dict[str, str] | None = None
    ) -> IcebergSinkBuilder:
        """The catalogue, and its properties under pyiceberg's names. Those that are left out are looked for on each
        machine, in `~/.pyiceberg.yaml` and the environment, as pyiceberg does."""
        self._settings["catalog"] = check_name(name, "the catalogue")
        self._settings["properties"] = dict(properties or {})
        return self

    def set_table(self, identifier: str) -> IcebergSinkBuilder:
        """The table, with its namespace: "shop.orders"."""
        if "." not in check_name(identifier, "the table"):
            raise InvalidArgument("a table needs its namespace", got=identifier, hint="shop.orders")
        self._settings["table"] = identifier
        return self

    def set_row_type(self, row_type: Any) -> IcebergSinkBuilder:
        """The type of the rows (`Types.ROW_NAMED`, or a schema of PyArrow), compared with the table's at the start."""
        self._settings["row_type"] = row_type
        return self

    def create_if_missing(self, partition_by: Sequence[str] = ()) -> IcebergSinkBuilder:
        """Make the table, and its namespace, at the start if it is not there, with the columns of `set_row_type`,
        partitioned by the values of some of them. Other transforms: make the table before."""
        self._settings["create"] = True
        self._settings["partition_by"] = check_partitions(partition_by)
        return self

    def set_sink_id(self, sink_id: str) -> IcebergSinkBuilder:
        """The name of the sink in the table's snapshots, instead of its uid."""
        self._settings["sink_id"] = check_name(sink_id, "the sink's id")
        return self

    def set_target_file_size(self, size: int) -> IcebergSinkBuilder:
        """About how many bytes a file may have before the next one is begun (128 MB)."""
        self._settings["target_bytes"] = check_size(size)
        return self

    def build(self) -> IcebergSink:
        """The sink, as it was described."""
        if "catalog" not in self._settings or "table" not in self._settings:
            raise InvalidArgument("an Iceberg sink needs set_catalog(...) and set_table(...)")
        if self._settings.get("create"):
            check_created(self._settings.get("row_type"), self._settings["partition_by"])
        _require()
        return IcebergSink(IcebergSettings(**self._settings))


def _require() -> None:
    try:
        import pyiceberg  # noqa: F401
    except ImportError:
        raise RuntimeUnusable(
            "Iceberg tables are written with pyiceberg, which is not installed",
            hint="pip install 'millstream[iceberg]', on every machine of the job",
        ) from None
