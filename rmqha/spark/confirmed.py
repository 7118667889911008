"""How far replicas hold a log, as its master says: a failover to the slave that holds most cuts nothing of that.

The master counts what slaves took while it has run (``proven_offset``). As one of several stores may be asked about,
or a stranger, it is also asked for the last record that is to be read: its log must have the same bytes there.
"""

import json
import logging
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

from rmqha.codec.acl import SessionCredentials
from rmqha.codec.codes import STATUS_KEY, RequestCode, ResponseCode
from rmqha.codec.headers import ViewMessageRequestHeader, encode_header
from rmqha.codec.host import address_of
from rmqha.codec.java_json import loads
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import ConfigError, RemoteProtocolError, StoreError
from rmqha.remoting.blocking import BlockingConnection, Secure, plain
from rmqha.spark.commit_log import CommitLog
from rmqha.spark.position import last_record_before
from rmqha.spark.records import crc32

logger = logging.getLogger("rmqha.spark")

_TIMEOUT_S: Final = 10.0
_SLAVE: Final = "SLAVE"


class NoReplicaError(StoreError):
    """The master knows of no slave that has taken anything: for the time being, nothing is confirmed."""


class _UselessAnswerError(Exception):
    """Why a broker's answer tells nothing of this log."""


def _no_credentials() -> SessionCredentials | None:
    return None


@dataclass(frozen=True)
class Masters:
    """Whom to ask.

    Attributes:
        addresses: ``host:port`` of brokers, among them each log's master, wherever that is now.
        credentials: of an administrator, for brokers with ``aclEnable``.
        secure: makes TLS of a connection.
    """

    addresses: tuple[str, ...]
    credentials: Callable[[], SessionCredentials | None] = _no_credentials
    secure: Secure = plain

    @classmethod
    def by_files(cls, addresses: tuple[str, ...], *, credentials: str, trust: str, cert: str, key: str) -> Self:
        """With what files tell, which are read when somebody is asked; empty names: none."""
        return cls(
            addresses,
            credentials=partial(_read_credentials, credentials) if credentials else _no_credentials,
            secure=partial(_tls, trust, cert, key) if trust or cert else plain,
        )


def split_addresses(texts: Iterable[str]) -> tuple[str, ...]:
    """Lists of ``host:port``, separated by semicolons or commas, as one.

    Raises:
        ValueError: there is none, or one is something else.
    """
    addresses = [part.strip() for text in texts for part in text.replace(",", ";").split(";") if part.strip()]
    for address in addresses:
        host, port = address_of(address)
        if not (host and port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16):
            raise ValueError(f"{address!r} is not host:port")
    if not addresses:
        raise ValueError("no address is given: host:port, several separated by ;")
    return tuple(dict.fromkeys(addresses))


def confirmed_end(log: CommitLog, masters: Masters | None) -> int:
    """The end of the last whole record that replicas hold; of a DLedger log its end, as nothing else is read of one.

    Args:
        log: of a store, the master's or a slave's.
        masters: None: nobody has to confirm anything.

    Raises:
        ConfigError: no broker was named.
        StoreError: none that was named is this log's master, and answers.
        NoReplicaError: it is, but no slave has taken anything since it started; or it shows nothing of this log.
    """
    if masters is None or log.is_committed or log.end == log.min_offset:
        return log.end
    if not masters.addresses:
        raise ConfigError(f"who says how much of {log.uri} is held by replicas? Give the address of its master")
    reasons, ends = list[str](), list[int | None]()
    for address in masters.addresses:
        try:
            ends.append(_end_by(address, log, masters))
        except _UselessAnswerError as why:
            reasons.append(f"{address} {why}")
    if not ends:
        raise StoreError(
            f"nobody says how much of {log.uri} is held by replicas: {'; '.join(reasons)}. Name its master; after a "
            "failover that is another broker"
        )
    told = [end for end in ends if end is not None]
    if not told:
        raise NoReplicaError(
            f"no master that answers shows anything of {log.uri}: it is another log's, or has lost its own"
            + "".join(f"; {reason}" for reason in reasons)
        )
    return min(told)


def confirmed_end_or(log: CommitLog, masters: Masters | None, known: int) -> int:
    """As :func:`confirmed_end`, but never before ``known``, and ``known`` where there is no replica at present.

    Raises:
        StoreError: no broker that was named is this log's master, and answers.
    """
    try:
        return max(known, confirmed_end(log, masters))
    except NoReplicaError as error:
        logger.warning("commit_log.unconfirmed: nothing is read beyond %d: %s", known, error)
        return known


def _read_credentials(path: str) -> SessionCredentials:
    from rmqha.remoting.credentials import read_credentials  # noqa: PLC0415 - for those who have accounts

    return read_credentials(path)


def _tls(trust: str, cert: str, key: str, connection: socket.socket, host: str) -> socket.socket:
    from rmqha.certificates import TlsOptions, client_context  # noqa: PLC0415 - brings the event loop with it

    return client_context(TlsOptions(cert=cert, key=key, trust=trust)).wrap_socket(connection, server_hostname=host)


def _end_by(address: str, log: CommitLog, masters: Masters) -> int | None:
    """None: a master that shows nothing yet, as this log's may be, or that of another."""
    host, port = address_of(address)
    with BlockingConnection(
        host, int(port), timeout_s=_TIMEOUT_S, credentials=masters.credentials(), secure=masters.secure
    ) as broker:
        proven, shown = _known_by(_ask(broker, RequestCode.GET_BROKER_RUNTIME_INFO).body)
        if shown < log.min_offset:
            raise _UselessAnswerError(f"is the master of another log, which ends at {shown}, before this one begins")
        limit = min(proven or log.end, shown, log.end)
        last, sound = (last_record_before(log, limit, is_sound=only) for only in (False, True))
        common = sound or last_record_before(log, min(shown, log.end), is_sound=True)
        if common is None:
            return None
        fields = encode_header(ViewMessageRequestHeader(common.offset))
        if crc32(_ask(broker, RequestCode.VIEW_MESSAGE_BY_ID, fields).body) != common.crc32:
            raise _UselessAnswerError(
                f"is the master of another log: its record at {common.offset} is not the one here"
            )
        if not proven:
            raise NoReplicaError(
                f"{address}, the master of {log.uri}, knows of no slave that has taken anything since it started: "
                "start one, and wait until 'rmqha status' shows it in sync"
            )
        return log.min_offset if last is None else last.offset + last.size


def _ask(broker: BlockingConnection, code: RequestCode, fields: dict[str, str] | None = None) -> RemotingCommand:
    try:
        answer = broker.ask(RemotingCommand(code, ext_fields=fields or {}))
    except TimeoutError:
        raise _UselessAnswerError(f"does not answer within {_TIMEOUT_S:g} s") from None
    except (OSError, UnicodeError, RemoteProtocolError) as error:
        reason = getattr(error, "strerror", None) or error
        raise _UselessAnswerError(f"does not answer: {reason}") from None
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise _UselessAnswerError("is no broker; a name server, perhaps")
    if answer.code != ResponseCode.SUCCESS:
        raise _UselessAnswerError(f"refuses to tell (code {answer.code}): {answer.remark}")
    return answer


def _known_by(body: bytes | memoryview) -> tuple[int, int]:
    """What slaves took, and what the master shows to those who ask."""
    facts = _facts(bytes(body))
    if facts.get("role") == _SLAVE:
        raise _UselessAnswerError("is a slave")
    if facts.get("starting"):
        raise _UselessAnswerError("is still starting")
    proven, shown = facts["ha"].get("proven_offset"), facts.get("dispatched_offset")
    if not isinstance(proven, int) or not isinstance(shown, int):
        raise _UselessAnswerError(
            "does not know what slaves took: a broker of RocketMQ, of a DLedger group, or too old"
        )
    return proven, shown


def _facts(body: bytes) -> dict[str, Any]:
    try:
        table: Any = loads(body)
        facts: Any = json.loads(table["table"].get(STATUS_KEY, "{}"))
        ha: Any = facts.get("ha") or {}
        return dict(facts) | {"ha": dict(ha)}
    except (RemoteProtocolError, AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise _UselessAnswerError("answers with what is no status") from None
