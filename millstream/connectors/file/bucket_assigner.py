"""Which folder a record's file goes to (Flink's `BucketAssigner`)."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from millstream.errors import InvalidArgument

__all__ = ["BasePathBucketAssigner", "BucketAssigner", "DateTimeBucketAssigner"]

_FIELDS = {"yyyy": "%Y", "uuuu": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_TOKEN = re.compile(r"'(?P<quoted>(?:[^']|'')*)'|(?P<field>([A-Za-z])\3*)|(?P<other>[^A-Za-z']+)")


class BucketAssigner(ABC):
    """Gives each record the name of a folder below the sink's path, "" for the path itself.

    >>> class ByCountry(BucketAssigner):
    ...     def get_bucket_id(self, element):
    ...         return f"country={element['country']}"
    >>> ByCountry().get_bucket_id({"country": "nl"})
    'country=nl'
    """

    @abstractmethod
    def get_bucket_id(self, element: Any) -> str:
        """The folder, with "/" between the names if there are several."""

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """Everything into the sink's path.

        >>> BucketAssigner.base_path_bucket_assigner().get_bucket_id("any record")
        ''
        """
        return BasePathBucketAssigner()

    @staticmethod
    def date_time_bucket_assigner(
        format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None
    ) -> BucketAssigner:
        """A folder per hour, day or the like, by the time at which a record is written.

        The format is Java's, of yyyy MM dd HH mm ss, other signs, and text in single quotes.

        >>> assigner = BucketAssigner.date_time_bucket_assigner("'day='yyyy-MM-dd", "Europe/Berlin")
        >>> len(assigner.get_bucket_id("any record"))
        14
        """
        return DateTimeBucketAssigner(format_str, timezone_id)


class BasePathBucketAssigner(BucketAssigner):
    """No buckets: all files go into the sink's own folder.

    >>> BasePathBucketAssigner().get_bucket_id(1)
    ''
    """

    def get_bucket_id(self, element: Any) -> str:
        """Always "", the folder itself."""
        return ""


class DateTimeBucketAssigner(BucketAssigner):
    """Buckets by processing time.

    >>> DateTimeBucketAssigner("yyyy/MM/dd", "UTC", clock=lambda: 86400.5).get_bucket_id(1)
    '1970/01/02'
    """

    def __init__(
        self,
        format_str: str = "yyyy-MM-dd--HH",
        timezone_id: str | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._format = _to_strftime(format_str)
        self._zone = _zone(timezone_id)
        self._clock = clock
        self._second = -1
        self._bucket = ""

    def get_bucket_id(self, element: Any) -> str:
        """The time now, formatted; worked out once a second."""
        second = int(self._clock())
        if second != self._second:
            moment = datetime.fromtimestamp(second, UTC).astimezone(self._zone)
            self._bucket = moment.strftime(self._format)
            self._second = second
        return self._bucket


def _zone(timezone_id: str | None) -> tzinfo | None:
    if timezone_id is None:
        return None
    try:
        return ZoneInfo(timezone_id)
    except (ZoneInfoNotFoundError, ValueError):
        raise InvalidArgument(
            "this time zone is not known", got=timezone_id, hint="for example UTC, Europe/Berlin"
        ) from None


def _to_strftime(pattern: str) -> str:
    """Java's pattern as Python's."""
    result = []
    place = 0
    for match in _TOKEN.finditer(pattern):
        if match.start() != place:
            break
        place = match.end()
        field, quoted = match.group("field"), match.group("quoted")
        if field is None:
            literal = match.group("other") if quoted is None else quoted.replace("''", "'") or "'"
            result.append(literal.replace("%", "%%"))
        elif field in _FIELDS:
            result.append(_FIELDS[field])
        else:
            raise InvalidArgument(
                f"'{field}' is not available in the format of a bucket",
                got=pattern,
                hint=f"use {', '.join(_FIELDS)} and text in single quotes",
            )
    if place != len(pattern) or not pattern:
        raise InvalidArgument("this is not a format of dates", got=pattern)
    return "".join(result)
