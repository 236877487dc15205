"""What the PostgreSQL sinks are told: the database, the table, the columns. Needs no driver.

A password is kept apart from everything that is shown: `Settings` has a `repr` without it, and
`Settings.redact` takes it out of what the server or the driver says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from millstream.errors import InvalidArgument, RuntimeUnusable
from millstream.redaction import remember

__all__ = ["Settings", "parse_dsn", "parse_table", "require_driver"]

_SECRETS = ("password", "sslpassword")


@dataclass(frozen=True)
class Settings:
    """The database, the table, the columns and the name under which epochs are logged.

    >>> parameters = {"host": "db", "dbname": "shop", "password": "hunter2"}
    >>> settings = Settings(parameters, ("public", "orders"), None, "shop orders")
    >>> settings
    Settings(table=('public', 'orders'), columns=None, sink_id='shop orders')
    >>> settings.redact("no such user with hunter2")
    'no such user with ***'
    """

    parameters: dict[str, str] = field(repr=False)
    table: tuple[str | None, str]
    columns: tuple[str, ...] | None
    sink_id: str

    @property
    def table_name(self) -> str:
        """The table as messages call it."""
        schema, name = self.table
        return name if schema is None else f"{schema}.{name}"

    @property
    def database(self) -> str:
        """The database as messages call it: where it is, never who logs in with what."""
        return describe_database(self.parameters)

    def redact(self, text: str) -> str:
        """The text without passwords."""
        for name in _SECRETS:
            secret = self.parameters.get(name)
            if secret:
                text = text.replace(secret, "***").replace(quote(secret, safe=""), "***")
        return text


def describe_database(parameters: Mapping[str, str]) -> str:
    """Host, port and name of a database.

    >>> describe_database({"host": "db", "dbname": "shop", "password": "hunter2"})
    'db:5432/shop'
    """
    host = parameters.get("host") or parameters.get("hostaddr") or "localhost"
    name = parameters.get("dbname") or parameters.get("user") or ""
    return f"{host}:{parameters.get('port') or 5432}/{name}"


def require_driver() -> None:
    """Say what to install if the driver is missing."""
    try:
        import psycopg  # noqa: F401  # not needed by programs without this sink
    except ImportError as error:
        raise RuntimeUnusable(
            f"the PostgreSQL driver cannot be imported: {error}",
            hint="pip install 'millstream[postgres]', on every machine of the job",
        ) from error


def parse_dsn(dsn: str | Mapping[str, Any]) -> dict[str, str]:
    """The connection's parameters, from libpq's text, a URL or a mapping.

    >>> parse_dsn("postgresql://ann@db:5433/shop")
    {'user': 'ann', 'dbname': 'shop', 'host': 'db', 'port': '5433'}
    """
    require_driver()
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    hint = (
        "pass 'host=db dbname=shop user=ann password=...', 'postgresql://ann:...@db/shop' or a dict"
    )
    given: Any = dsn
    if not isinstance(given, (str, Mapping)) or not given:
        raise InvalidArgument(
            "a DSN must be a text or a dict, and not empty", got=type(given).__name__, hint=hint
        )
    try:
        if isinstance(given, str):
            parts = conninfo_to_dict(given)
        else:
            parts = conninfo_to_dict("", **given)
    except psycopg.Error:
        # No cause and no quote of what was given: either would show the password.
        raise InvalidArgument("the DSN cannot be read", hint=hint) from None
    parameters = {name: str(value) for name, value in parts.items() if value is not None}
    for name in _SECRETS:
        # Wherever the program has it from: the line that hands it over may name it otherwise.
        remember(parameters.get(name))
    return parameters


def parse_table(table: str) -> tuple[str | None, str]:
    """Schema and name; without a schema the server's search path decides.

    >>> parse_table("sales.orders"), parse_table("orders")
    (('sales', 'orders'), (None, 'orders'))
    """
    given: Any = table
    parts = given.split(".") if isinstance(given, str) else []
    if not 1 <= len(parts) <= 2 or not all(parts):
        raise InvalidArgument(
            "a table must be named 'table' or 'schema.table'",
            got=repr(table),
            hint="names are taken as they are spelled: no quotes, and case matters",
        )
    return (parts[0], parts[1]) if len(parts) == 2 else (None, parts[0])
