"""The options of a sink, ``df.write`` or ``df.writeStream`` of the format ``rmqha``: strings in, checked values out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rmqha.codec.limits import FORBIDDEN_SEND_TOPICS, group_problem, topic_problem
from rmqha.errors import ConfigError
from rmqha.spark.option_values import count, parse_values

RETRY_FOR_MS: Final = 60_000


@dataclass(frozen=True)
class SinkOptions:
    """What the options of one ``save()`` or ``start()`` mean. Travels to the workers; paths are theirs.

    Attributes:
        addresses: of brokers or name servers, ``host:port``, several separated by ``;``.
        topic: of all messages; None: the column of that name says it.
        write_id: by what consumers know the rows of this write again; None: a new one, or the streaming query's.
        retry_for_ms: how long a message is tried, after errors that may pass.
        accept_stored: whether what is in the master's log counts as sent, however safe it is there.
        producer_group: the producers' group.
        credentials: a file like mqadmin's tools.yml, for brokers with ``aclEnable``.
        tls_trust, tls_cert, tls_key: PEM files; TLS if any is given.
    """

    addresses: str
    topic: str | None = None
    write_id: str | None = None
    retry_for_ms: int = RETRY_FOR_MS
    accept_stored: bool = False
    producer_group: str = "rmqha-spark"
    credentials: str | None = None
    tls_trust: str = ""
    tls_cert: str = ""
    tls_key: str = ""


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Check every option.

    Raises:
        ConfigError: an option is unknown (with the nearest known one), or has a bad value; or no address is given.
    """
    values = parse_values(options, _PARSERS, _ELSEWHERE)
    if "addresses" not in values:
        raise ConfigError("option addresses is missing: host:port of a broker or a name server, several separated by ;")
    if "tlsKey" in values and "tlsCert" not in values:
        raise ConfigError("tlsKey is the key of tlsCert, which is missing")
    return SinkOptions(**{_FIELDS[name]: value for name, value in values.items() if name in _FIELDS})


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text


def forbidden_problem(topic: str) -> str:
    """Why nobody may send to a topic, though its name is one; empty: others may say so."""
    return f"{topic} is a topic of the brokers' own, to which nobody may send" if topic in FORBIDDEN_SEND_TOPICS else ""


def _legal(problem_of: Callable[[str], str | None]) -> Callable[[str], str]:
    def check(text: str) -> str:
        if problem := problem_of(text):
            raise ValueError(problem)
        return text

    return check


def _write_id(text: str) -> str:
    if not text.isascii() or not text.isprintable() or not 0 < len(text) <= _WRITE_ID_SIZE_MAX:
        raise ValueError(f"must be 1 to {_WRITE_ID_SIZE_MAX} printable ASCII characters")
    return text


def _require(text: str) -> bool:
    choices = {"send_ok": False, "stored": True}
    if text.lower() not in choices:
        raise ValueError("must be SEND_OK or stored")
    return choices[text.lower()]


_WRITE_ID_SIZE_MAX: Final = 128
_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "addresses": _text,
    "topic": _legal(lambda topic: topic_problem(topic) or forbidden_problem(topic)),
    "writeId": _write_id,
    "retryForMs": lambda text: count(text, 0),
    "require": _require,
    "producerGroup": _legal(group_problem),
    "credentials": _text,
    "tlsTrust": _text,
    "tlsCert": _text,
    "tlsKey": _text,
    "checkpointLocation": str,  # Spark hands these two of a streaming query to its sink
    "queryName": str,
}
_FIELDS: Final = {
    "addresses": "addresses",
    "topic": "topic",
    "writeId": "write_id",
    "retryForMs": "retry_for_ms",
    "require": "accept_stored",
    "producerGroup": "producer_group",
    "credentials": "credentials",
    "tlsTrust": "tls_trust",
    "tlsCert": "tls_cert",
    "tlsKey": "tls_key",
}
_ELSEWHERE: Final = {
    "path": "messages go to a broker, not to a directory: save() or start() without a path, and the option addresses",
    "nameserver": "the option is addresses, of brokers or name servers",
    "kafka.bootstrap.servers": "the option is addresses, of brokers or name servers",
}
"""By lower-case name: what is there instead."""
