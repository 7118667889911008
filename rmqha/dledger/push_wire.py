"""Pushes as they travel. Hot path: templates in place of the tables of :mod:`rmqha.codec.dledger_wire`.

    {"batch":false,"batchEntry":[],"code":200,"commitIndex":0,"count":1,"entry":{...},"firstEntryIndex":1,"group":"g1",
     "lastEntryIndex":1,"leaderId":"n0","localId":"n0","remoteId":"n2","term":1,"totalSize":0,"type":"APPEND"}
    {"beginIndex":0,"code":200,"count":1,"endIndex":1,"group":"g1","index":1,"term":1}

More entries than one travel in ``batchEntry``, in place of ``entry``. What repeats the entries (``batch``, ``count``,
the indexes, ``totalSize``) is written as Java writes it, and not read.

Source: spec: dledger §5.4, §5.5; dledger-all-0.3.1.2 PushEntryRequest.java.
"""

from functools import lru_cache
from typing import Any, Final

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.codec.dledger_json import encode_text, entry_object, entry_text, parse_object, read_object
from rmqha.codec.dledger_wire import Base
from rmqha.dledger.push_entry import PushEntryRequest, PushEntryResponse, PushType
from rmqha.errors import RemoteProtocolError
from rmqha.memory import BytesLike

_REQUEST: Final = (
    b'{"batch":%b,"batchEntry":[%b],"code":200,"commitIndex":%d,"count":%d,%b"firstEntryIndex":%d,"group":%b,'
    b'"lastEntryIndex":%d,"leaderId":%b,"localId":%b,"remoteId":%b,"term":%d,"totalSize":%d,"type":"%b"}'
)
_ANSWER: Final = b'{"beginIndex":%d,"code":%d,"count":%d,"endIndex":%d,"group":%b,%b"term":%d}'
_NAMES: Final = {kind: kind.name.encode() for kind in PushType}


@lru_cache(maxsize=64)
def _text(value: str) -> bytes:
    return encode_text(value).encode(errors="replace")


def encode_push(request: PushEntryRequest, *, group: str, remote_id: str) -> bytes:
    """The body of a push to the member ``remote_id``."""
    entries = request.entries
    batch, single, total_size = b"", b"", 0
    if len(entries) > 1:
        batch = b",".join(map(entry_text, entries))
        total_size = sum(entry.size for entry in entries)
    elif entries:
        single = b'"entry":%b,' % entry_text(entries[0])
    leader_id = _text(request.leader_id)
    return _REQUEST % (
        b"true" if batch else b"false",
        batch,
        request.commit_index,
        len(entries),
        single,
        request.first_entry_index,
        _text(group),
        request.last_entry_index,
        leader_id,
        leader_id,
        _text(remote_id),
        request.term,
        total_size,
        _NAMES[request.type],
    )


def decode_push(body: BytesLike) -> tuple[Base, PushEntryRequest]:
    """A push, and whom it is for.

    Raises:
        RemoteProtocolError: it is none, or its entries are not consecutive.
    """
    members = read_object(body)
    base = parse_object(Base, members)
    commit_index = members.get("commitIndex", -1)
    if type(commit_index) is not int:
        raise RemoteProtocolError("PushEntryRequest.commitIndex is no number")
    kind = _push_type(members.get("type"))
    return base, PushEntryRequest(kind, base.term, base.leader_id or "", commit_index, _entries(members))


def _push_type(value: Any) -> PushType:
    if value is None:
        return PushType.APPEND
    try:
        return PushType[value] if type(value) is str else PushType(value)
    except (KeyError, ValueError, TypeError):
        raise RemoteProtocolError(f"there is no push of type {str(value)[:40]!r}") from None


def _entries(members: dict[str, Any]) -> tuple[DLedgerEntry, ...]:
    batch = members.get("batchEntry")
    if not batch:
        single = members.get("entry")
        return () if single is None else (entry_object(single),)
    if type(batch) is not list:
        raise RemoteProtocolError("PushEntryRequest.batchEntry is no array")
    entries = tuple(map(entry_object, batch))
    for index, entry in enumerate(entries, entries[0].index):
        if entry.index != index:
            raise RemoteProtocolError(f"a batch holds entry {entry.index} where {index} belongs")
    return entries


def encode_push_answer(response: PushEntryResponse, *, group: str) -> bytes:
    """The body of the answer; :func:`~rmqha.codec.dledger_wire.decode` reads it as a :class:`PushEntryResponse`."""
    index = b"" if response.index == -1 else b'"index":%d,' % response.index
    return _ANSWER % (
        response.begin_index,
        response.code,
        response.count,
        response.end_index,
        _text(group),
        index,
        response.term,
    )
