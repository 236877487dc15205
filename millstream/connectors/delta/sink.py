"""An exactly-once sink into a Delta table.

Tasks write Parquet files beside the table. The driver adds those of an epoch in one commit of the table's log, with an
application transaction: the job and the sink are its id, the epoch is its version. Delta itself refuses a second commit
of the same transaction, also one at the same moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.api.sink import Committer, DeliveryGuarantee, Sink, SinkWriter, WriterContext
from millstream.connectors.delta.settings import DeltaSettings
from millstream.connectors.file.paths import stable_path
from millstream.connectors.tables import (
    check_created,
    check_name,
    check_partitions,
    check_size,
    hide,
)
from millstream.errors import InvalidArgument, RuntimeUnusable

__all__ = ["DeltaSink", "DeltaSinkBuilder"]


class DeltaSink(Sink):
    """Adds rows to a Delta table; made by a builder.

    >>> DeltaSink.builder().set_table("/data/orders").build()
    <DeltaSink /data/orders, exactly-once>
    """

    guarantee = DeliveryGuarantee.EXACTLY_ONCE

    def __init__(self, settings: DeltaSettings) -> None:
        self.settings = settings

    def __repr__(self) -> str:
        return f"<DeltaSink {self.settings.shown}, {self.guarantee.value}>"

    @staticmethod
    def builder() -> DeltaSinkBuilder:
        """A builder of a `DeltaSink`."""
        return DeltaSinkBuilder()

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """The writer of a subtask's epoch."""
        hide(self.settings.options)
        from millstream.connectors.delta.table import DeltaWriter

        return DeltaWriter(self.settings, context)

    def create_committer(self) -> Committer:
        """The driver's half; raises if the table is not there, or does not fit the declared type."""
        _require()
        hide(self.settings.options)
        from millstream.connectors.delta.table import DeltaCommitter

        return DeltaCommitter(self.settings)


class DeltaSinkBuilder:
    """Builds a `DeltaSink`.

    >>> builder = DeltaSinkBuilder().set_table("/data/orders").set_target_file_size(1 << 20)
    >>> builder.build().settings.target_bytes
    1048576
    """

    def __init__(self) -> None:
        self._settings: dict[str, Any] = {}

    def set_table(
        self, uri: str, storage_options: dict[str, str] | None = None
    ) -> DeltaSinkBuilder:
        """The table's folder or URL, and options for its storage, under deltalake's names."""
        self._settings["uri"] = stable_path(check_name(uri, "the table"))
        self._settings["options"] = dict(storage_options or {})
        return self

    def set_row_type(self, row_type: Any) -> DeltaSinkBuilder:
        """The type of the rows (`Types.ROW_NAMED`, or a schema of PyArrow), compared with the table's at the start."""
        self._settings["row_type"] = row_type
        return self

    def create_if_missing(self, partition_by: Sequence[str] = ()) -> DeltaSinkBuilder:
        """Make the table at the start if it is not there, with the columns of `set_row_type`."""
        self._settings["create"] = True
        self._settings["partition_by"] = check_partitions(partition_by)
        return self

    def set_sink_id(self, sink_id: str) -> DeltaSinkBuilder:
        """The name of the sink in the table's log, instead of its uid."""
        self._settings["sink_id"] = check_name(sink_id, "the sink's id")
        return self

    def set_target_file_size(self, size: int) -> DeltaSinkBuilder:
        """About how many bytes a file may have before the next one is begun (128 MB)."""
        self._settings["target_bytes"] = check_size(size)
        return self

    def build(self) -> DeltaSink:
        """The sink, as it was described."""
        if "uri" not in self._settings:
            raise InvalidArgument("a Delta sink needs set_table(...)")
        if self._settings.get("create"):
            check_created(self._settings.get("row_type"), self._settings["partition_by"])
        _require()
        return DeltaSink(DeltaSettings(**self._settings))


def _require() -> None:
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise RuntimeUnusable(
            "Delta tables are written with deltalake, which is not installed",
            hint="pip install 'millstream[delta]', on every machine of the job",
        ) from None
