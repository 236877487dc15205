"""What Kafka's clients are told: properties by Kafka's names, as librdkafka takes them. Needs no client.

Most names are those of Java's clients. Those of Java's that have another name here are refused with that name, for they
are about security; those that speak of Java classes have nothing to do and are left out. Values of secrets are shown
nowhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from millstream.errors import InvalidArgument, RuntimeUnusable
from millstream.redaction import get_logger, is_secret_name, remember

__all__ = ["CLIENT_LOG", "Properties", "checked", "client_config", "log", "require_client"]

log = get_logger("millstream.kafka")

Properties = dict[str, str]


class _ClientLog:
    """Takes what clients say of each connection. They go on trying for ever: what matters of it is told elsewhere."""

    def __init__(self) -> None:
        self._log = get_logger("millstream.kafka.client")

    def log(self, level: int, *args: Any) -> None:
        """A line of a client's."""
        self._log.debug(*args)


CLIENT_LOG: Any = _ClientLog()

_JAVA_ONLY = {
    "key.serializer",
    "value.serializer",
    "key.deserializer",
    "value.deserializer",
    "register.consumer.metrics",
    "flink.disable-metrics",
    "register.producer.metrics",
}
_INSTEAD = {
    "sasl.jaas.config": "set sasl.username and sasl.password (and sasl.mechanism)",
    "sasl.login.callback.handler.class": "set sasl.oauthbearer.method=oidc and the sasl.oauthbearer.* properties",
    "ssl.truststore.location": "set ssl.ca.location to a file with the certificates in PEM format",
    "ssl.truststore.password": "set ssl.ca.location to a file with the certificates in PEM format",
    "ssl.truststore.type": "set ssl.ca.location to a file with the certificates in PEM format",
    "ssl.keystore.type": "set ssl.keystore.location for PKCS#12, or ssl.certificate.location and ssl.key.location",
}
# What this connector reads itself, and hands to no client. Times in milliseconds.
OWN = {
    "partition.discovery.interval.ms": "300000",
    "commit.offsets.on.checkpoint": "true",
    "client.id.prefix": "",
    "default.api.timeout.ms": "30000",
    "millstream.read.timeout.ms": "300000",
    "millstream.commit.timeout.ms": "120000",
    "auto.offset.reset": "error",
}
# Times that may be 0 or less, which says never.
_NEVER = {"partition.discovery.interval.ms"}
# Go on after records that are lost at what is left, at the end, or not at all; with older names of librdkafka's.
RESET_TO_FIRST = ("earliest", "smallest", "beginning")
RESET_TO_END = ("latest", "largest", "end")
RESETS = ("error", "none", *RESET_TO_FIRST, *RESET_TO_END)


DEFAULT_TRANSACTION_MS = 600_000
TOPIC_RULE = "letters, digits, '.', '_' and '-', 249 of them at most"


@lru_cache(1024)
def is_topic(name: str) -> bool:
    """True if Kafka takes it for the name of a topic.

    >>> is_topic("orders.eu"), is_topic("all orders"), is_topic("..")
    (True, False, False)
    """
    return re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name) is not None and name not in (".", "..")


def topic_name(given: Any) -> str:
    """A topic as the user gave it, if it can be one."""
    if isinstance(given, str) and is_topic(given):
        return given
    raise InvalidArgument(
        "a topic must be a text that Kafka takes for a name", got=repr(given)[:200], hint=TOPIC_RULE
    )


def require_client() -> None:
    """Say what to install if the client is missing."""
    try:
        import confluent_kafka  # noqa: F401  # not needed by programs without Kafka
    except ImportError as error:
        raise RuntimeUnusable(
            f"the Kafka client cannot be imported: {error}",
            hint="pip install 'millstream[kafka]', on every machine of the job",
        ) from error


def checked(name: Any, value: Any) -> tuple[str, str]:
    """A property as clients take it.

    >>> checked("linger.ms", 5)
    ('linger.ms', '5')
    >>> checked("sasl.jaas.config", "...")
    Traceback (most recent call last):
    ...
    millstream.errors.InvalidArgument: [INVALID_ARGUMENT] sasl.jaas.config is a property of Java's client
      what to do: set sasl.username and sasl.password (and sasl.mechanism)
    """
    if not isinstance(name, str) or not name:
        raise InvalidArgument("a property has a name", got=repr(name)[:200])
    if name in _INSTEAD:
        raise InvalidArgument(f"{name} is a property of Java's client", hint=_INSTEAD[name])
    if isinstance(value, bool):
        value = "true" if value else "false"
    if not isinstance(value, (str, int, float)):
        raise InvalidArgument(
            "a property's value is a text, a number or a boolean",
            property=name,
            got=type(value).__name__,
        )
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value)
    if is_secret_name(name):
        remember(text)
    return name, text


def client_config(properties: Mapping[str, str], **own: Any) -> dict[str, Any]:
    """The configuration of a client: the user's properties, over those that a program has by default; `own` names,
    with _ for the dots, are over both.

    >>> client_config(
    ...     {"bootstrap.servers": "a:9092", "key.serializer": "x"}, enable_auto_commit=False
    ... )
    {'reconnect.backoff.max.ms': '1000', 'bootstrap.servers': 'a:9092', 'enable.auto.commit': False}
    """
    # A broker that comes back is noticed within a second.
    config: dict[str, Any] = {"reconnect.backoff.max.ms": "1000"}
    config |= {
        name: value
        for name, value in properties.items()
        if name not in _JAVA_ONLY and name not in OWN
    }
    return config | {name.replace("_", "."): value for name, value in own.items()}


def consumer_config(properties: Mapping[str, str]) -> dict[str, Any]:
    """The configuration of a consumer that reads ranges of partitions.

    >>> consumer_config({"bootstrap.servers": "a:9092", "group.id": "g"})["group.id"]
    'g'
    """
    defaults = {
        "group.id": "millstream-reader",
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": "100",
        "fetch.queue.backoff.ms": "1",
        "queued.max.messages.kbytes": "16384",
    }
    prefix = properties.get("client.id.prefix") or "millstream"
    return client_config(
        {**defaults, **properties},
        client_id=f"{prefix}-reader",
        enable_auto_commit=False,
        enable_auto_offset_store=False,
        enable_partition_eof=True,
        # A range that is lost is an error, and never skipped without a word.
        auto_offset_reset="error",
    )


def producer_config(properties: Mapping[str, str], **own: Any) -> dict[str, Any]:
    """The configuration of a producer; what the user says is over what is good for all.

    >>> producer_config({"bootstrap.servers": "a:9092", "acks": "1"})["acks"]
    '1'
    """
    defaults = {
        "acks": "all",
        "linger.ms": "5",
        "retry.backoff.ms": "50",
        # As Java's client does, so that records of one key meet in one partition whoever wrote them.
        "partitioner": "murmur2_random",
        "queue.buffering.max.kbytes": "65536",
        "queue.buffering.max.messages": "100000",
    }
    own["delivery_report_only_error"] = True
    return client_config({**defaults, **properties}, **own)


def transaction_config(
    properties: Mapping[str, str], name: str = "millstream", timeout_ms: int | None = None
) -> dict[str, Any]:
    """The configuration of a producer that writes transactions of this name.

    >>> transaction_config({"bootstrap.servers": "a:9092"})["transaction.timeout.ms"]
    600000
    """
    if timeout_ms is None:
        timeout_ms = int(properties.get("transaction.timeout.ms", DEFAULT_TRANSACTION_MS))
    return producer_config(properties, transactional_id=name, transaction_timeout_ms=timeout_ms)


def milliseconds(properties: Mapping[str, str], name: str) -> float:
    """One of this connector's own times, in seconds.

    >>> milliseconds({"default.api.timeout.ms": "1500"}, "default.api.timeout.ms")
    1.5
    """
    text = properties.get(name, OWN[name])
    try:
        seconds = float(text) / 1000
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds) or (seconds <= 0 and name not in _NEVER):
        raise InvalidArgument(f"{name} is a number of milliseconds", got=text)
    return seconds


def choice(properties: Mapping[str, str], name: str, *values: str) -> str:
    """A property that is one of a few words; the first is the default.

    >>> choice({}, "isolation.level", "read_committed", "read_uncommitted")
    'read_committed'
    """
    text = properties.get(name, values[0])
    if text not in values:
        raise InvalidArgument(f"{name} is {', '.join(values[:-1])} or {values[-1]}", got=text)
    return text


def flag(properties: Mapping[str, str], name: str) -> bool:
    """One of this connector's own switches.

    >>> flag({}, "commit.offsets.on.checkpoint")
    True
    """
    text = properties.get(name, OWN[name]).strip().lower()
    if text not in ("true", "false"):
        raise InvalidArgument(f"{name} is true or false", got=text)
    return text == "true"


def try_out(client: Literal["Consumer", "Producer"], config: dict[str, Any]) -> None:
    """Have a client read the configuration that it will have, when the program is built; it connects to nothing."""
    require_client()
    import confluent_kafka

    try:
        getattr(confluent_kafka, client)(config, logger=CLIENT_LOG)
    except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
        found: Any = error.args[0]
        said = found.str() if isinstance(found, confluent_kafka.KafkaError) else found
        raise InvalidArgument(
            f"Kafka's client does not take these properties: {said}",
            properties=", ".join(sorted(config)),
            hint="the names and values are librdkafka's: "
            "https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md",
        ) from None
