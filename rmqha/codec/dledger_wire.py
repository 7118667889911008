"""DLedger's requests and answers: what travels as the body of a RemotingCommand, whichever way its header is written.

Each class below is the table of one message: its fields, their types, and what they are when absent. The messages of
the election (:mod:`rmqha.dledger.vote`) are such tables, too, and travel by the same two functions:

    base, vote = decode(VoteRequest, request.body)
    answer = encode(elector.handle_vote(vote, now=now), base)

:class:`Base` is what every message has besides: whom it is for, and from whom. A message's own ``code``, ``leader_id``
and ``term`` take the place of its base's. Pushes, which are hot, have :mod:`rmqha.dledger.push_wire`.

Every request that is understood is answered by a header of code 200; how it ended, the body's ``code`` says.
A body that is no such message is answered by a header of code 1, and no body, as Java does.

Source: spec: dledger §2.1, §5.
"""

from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, TypeVar

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.codec.dledger_json import Int32, fields_of, members_of, parse_object, plain, read_object, write_object
from rmqha.errors import RemoteProtocolError
from rmqha.memory import BytesLike

Message = TypeVar("Message")

_SHORT_BYTES: Final = 1024
_REMEMBERED_MAX: Final = 256
_METADATA_SIZE_MAX: Final = 64 * 1024

HANDLED: Final = 200
"""The code in the header of every answer that has a body."""
_AS_INT16: Final = 1 << 16


class DLedgerRequestCode(IntEnum):
    """What a request asks for (spec: dledger §5.2)."""

    METADATA = 50000
    APPEND = 50001
    GET = 50002
    VOTE = 51001
    HEART_BEAT = 51002
    PULL = 51003
    PUSH = 51004
    LEADERSHIP_TRANSFER = 51005

    @property
    def in_binary_header(self) -> int:
        """The code that arrives in a binary header: it has 16 bits, and these wrap. Serve both."""
        return self.value - _AS_INT16


@dataclass(frozen=True, slots=True)
class Base:
    """The fields of every message (DLedger's RequestOrResponse)."""

    group: str | None = None
    remote_id: str | None = None
    """The member that the request is for."""
    local_id: str | None = None
    """The member that sends it; clients are none."""
    code: Int32 = 200
    leader_id: str | None = None
    term: int = -1


@dataclass(frozen=True, slots=True)
class MetadataRequest:
    """50000, to any member: who leads?"""


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """What a member of ours tells of itself beside who leads; Java passes over it, and tells no such thing.

    ``role`` is a :class:`~rmqha.dledger.member_state.Role`'s name, indexes are -1 in an empty log.
    """

    role: str = ""
    term: int = -1
    begin_index: int = -1
    end_index: int = -1
    committed_index: int = -1
    flushed_index: int = -1
    """The last entry whose data and unit of the index are durable here."""
    transferee: str | None = None
    """To whom leadership is being transferred."""
    write_error: str | None = None
    """Why this member cannot write any more, if it cannot: the disk's error, or that it is full."""
    version: str | None = None
    broker_address: str | None = None
    """Where the broker whose log this is serves clients."""
    leader_for_s: int | None = None
    """So many seconds ago who leads, as far as this member knows, was last another."""
    uncommitted_for_s: int | None = None
    """So many seconds a leader's entries have waited for a majority, and none was committed; None: none wait."""
    deleted_early_s: int | None = None
    """So many seconds ago a file was last deleted before it had expired, for lack of room; None: none was."""
    former_members: tuple[str, ...] | None = None
    """Who is noted here as having committed last, if these are not the present members; empty: nobody is."""
    not_to_lead: str | None = None
    """Why this member must not lead: its leader has committed by a list whose majorities need not meet its own."""
    process: str | None = None
    """Another for each process, so that one tells two that have one id: when it was started."""
    counted: dict[str, str] | None = None
    """The process that this one finds as each other member."""
    rivals: tuple[str, ...] | None = None
    """Of which members it knows two processes, and what follows, in words."""
    damage: str | None = None
    """What of the messages of its broker was found not to be what was stored."""
    refused_term: int | None = None
    """Of the leader that last wanted to have cut what is committed here, while this log differs from its; else -1."""


@dataclass(frozen=True, slots=True)
class MetadataResponse:
    """``leader_id`` is None while nobody is known to lead; ``peers`` maps each member's id to its ``host:port``."""

    code: Int32 = 200
    leader_id: str | None = None
    peers: dict[str, str] | None = None
    rmqha_status: MemberStatus | None = None


@dataclass(frozen=True, slots=True)
class AppendEntryRequest:
    """50001, to the leader. Without a body it is answered as one that cannot be read."""

    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class AppendEntryResponse:
    """Where the entry went; -1 if it is not known to be there."""

    code: Int32 = 200
    term: int = -1
    leader_id: str | None = None
    index: int = -1
    pos: int = -1


@dataclass(frozen=True, slots=True)
class GetEntriesRequest:
    """50002, to the leader: the entry at ``begin_index``."""

    begin_index: int = -1
    max_size: Int32 = 0


@dataclass(frozen=True, slots=True)
class GetEntriesResponse:
    """One entry, or none with an error."""

    code: Int32 = 200
    leader_id: str | None = None
    entries: tuple[DLedgerEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class LeadershipTransferRequest:
    """51005: from an operator to the leader, from the leader to who is to take over."""

    term: int = -1
    transfer_id: str | None = None
    transferee_id: str | None = None
    take_leadership_ledger_index: int = 0


@dataclass(frozen=True, slots=True)
class LeadershipTransferResponse:
    """The transfer has succeeded, or has failed."""

    code: Int32 = 200
    term: int = -1


def decode(kind: type[Message], body: BytesLike) -> tuple[Base, Message]:
    """A message of that kind, and whom it is for; unknown keys are passed over.

    Change nothing in it: heartbeats, and who asks for the leader, repeat themselves byte for byte, and what was read
    before is not read again.

    Raises:
        RemoteProtocolError: ``body`` is no JSON object, or a field has another type.
    """
    if len(body) > _SHORT_BYTES:
        return _decode(kind, body)
    return _remembered(kind, bytes(body))  # type: ignore[arg-type]  # a class is hashable, whichever it is


def _decode(kind: type[Message], body: BytesLike) -> tuple[Base, Message]:
    members = read_object(body)
    return parse_object(Base, members), parse_object(kind, members)


@lru_cache(maxsize=_REMEMBERED_MAX)
def _remembered(kind: type[Any], body: bytes) -> tuple[Base, Any]:
    return _decode(kind, body)


def decode_metadata(body: BytesLike) -> MetadataResponse:
    """What a member says of itself; its texts go into lines of the log, and to those who ask for the status.

    Raises:
        RemoteProtocolError: it says nothing of the kind, or more than any member.
    """
    if len(body) > _METADATA_SIZE_MAX:
        raise RemoteProtocolError(f"metadata of {len(body)} bytes: more than any member's")
    return decode(MetadataResponse, body)[1]


def encode(message: Any, base: Base) -> bytes:
    """The body of a message.

    An answer's base is the request's for a vote, ``Base()`` for a heartbeat and a transfer, and for all others
    ``Base(group)``; that of a refusal makes :func:`refuse`.
    """
    members = members_of(base)
    for field in fields_of(type(message)):
        members.pop(field.wire, None)
    return write_object(members | members_of(message))


def refuse(kind: type, base: Base, *, code: int, leader_id: str | None) -> bytes:
    """The answer to what fails before its handler: the request's base, the code, and who leads, if that is known.

    Args:
        kind: of the answer.
        base: the request's.
        code: a DLedgerResponseCode.
        leader_id: as this member knows it.
    """
    members = {field.wire: plain(field.default) for field in fields_of(kind) if field.default is not None}
    return write_object(members | members_of(replace(base, code=int(code), leader_id=leader_id)))
