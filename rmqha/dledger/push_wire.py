"""Pushes as they travel. Hot path: templates in place of tables; see :mod:`rmqha.codec.dledger_usual`.

    {"batch":false,"batchEntry":[],"code":200,"commitIndex":0,"count":1,"entry":{...},"firstEntryIndex":1,"group":"g1",
     "lastEntryIndex":1,"leaderId":"n0","localId":"n0","remoteId":"n2","term":1,"totalSize":0,"type":"APPEND"}
    {"beginIndex":0,"code":200,"count":1,"endIndex":1,"group":"g1","index":1,"term":1}

More entries than one travel in ``batchEntry``, in place of ``entry``. What repeats the entries (``batch``, ``count``,
the indexes, ``totalSize``) is written as Java writes it, and not read.

Source: spec: dledger §5.4, §5.5; dledger-all-0.3.1.2 PushEntryRequest.java.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.codec.dledger_json import MOST_OF_A_PUSH, entry_object, parse_object, read_object
from rmqha.codec.dledger_usual import Template, read_entry, text_of, write_entry
from rmqha.codec.dledger_wire import Base, decode, encode
from rmqha.dledger.push_entry import PushEntryRequest, PushEntryResponse, PushType
from rmqha.errors import RemoteProtocolError

_BATCH_MAX: Final = 1 << 15
"""Entries; more would hold everybody else up."""
_HEAD: Final = Template(b'{"batch":false,"batchEntry":[],"code":200,"commitIndex":%d,"count":1,"entry":')
_BATCH_HEAD: Final = b'{"batch":true,"batchEntry":['
_BATCH_MIDDLE: Final = Template(b'],"code":200,"commitIndex":%d,"count":%i')
_TAIL: Final = Template(
    b',"firstEntryIndex":%d,"group":%b,"lastEntryIndex":%d,"leaderId":%b,"localId":%b,"remoteId":%b,"term":%d,'
    b'"totalSize":%i,"type":"APPEND"}'
)
_GENERAL: Final = (
    b'{"batch":false,"batchEntry":[],"code":200,"commitIndex":%d,"count":%d,%b"firstEntryIndex":%d,"group":%b,'
    b'"lastEntryIndex":%d,"leaderId":%b,"localId":%b,"remoteId":%b,"term":%d,"totalSize":0,"type":"%b"}'
)
_ANSWER: Final = Template(b'{"beginIndex":%d,"code":%i,"count":%i,"endIndex":%d,"group":%b,"index":%d,"term":%d}')


def encode_push(request: PushEntryRequest, *, group: str, remote_id: str) -> bytes:
    """The body of a push to the member ``remote_id``."""
    entries = request.entries
    if request.type is not PushType.APPEND or not entries:
        return _encode_general(request, group=group, remote_id=remote_id)
    if len(entries) == 1:
        head = _HEAD.write(request.commit_index) + write_entry(entries[0])
        total_size = 0
    else:
        middle = _BATCH_MIDDLE.write(request.commit_index, len(entries))
        head = b"".join((_BATCH_HEAD, b",".join(map(write_entry, entries)), middle))
        total_size = sum(entry.size for entry in entries)
    leader_id = text_of(request.leader_id)
    first, last = entries[0].index, entries[-1].index
    return head + _TAIL.write(
        first, text_of(group), last, leader_id, leader_id, text_of(remote_id), request.term, total_size
    )


def _encode_general(request: PushEntryRequest, *, group: str, remote_id: str) -> bytes:
    entries = request.entries
    assert len(entries) <= 1, "only appends come in batches"
    leader_id = text_of(request.leader_id)
    return _GENERAL % (
        request.commit_index,
        len(entries),
        b'"entry":%b,' % write_entry(entries[0]) if entries else b"",
        request.first_entry_index,
        text_of(group),
        request.last_entry_index,
        leader_id,
        leader_id,
        text_of(remote_id),
        request.term,
        request.type.name.encode(),
    )


def decode_push(body: bytes) -> tuple[Base, PushEntryRequest]:
    """A push, and whom it is for.

    Raises:
        RemoteProtocolError: it is none, or its entries are not consecutive.
    """
    usual = _single(body) or _batch(body)
    if usual is None:
        return _decode_general(body)
    commit_index, entries, tail = usual
    _first, group, _last, leader_id, local_id, remote_id, term, _total_size = tail
    base = _base(group, remote_id, local_id, leader_id, term)
    return base, PushEntryRequest(PushType.APPEND, base.term, base.leader_id or "", int(commit_index), entries)


_Usual = tuple[bytes, tuple[DLedgerEntry, ...], tuple[bytes, ...]]
"""Commit index, entries, and what follows them."""


@lru_cache(maxsize=64)
def _base(group: bytes, remote_id: bytes, local_id: bytes, leader_id: bytes, term: bytes) -> Base:
    return Base(group.decode(), remote_id.decode(), local_id.decode(), 200, leader_id.decode(), int(term))


def _single(body: bytes) -> _Usual | None:
    head = _HEAD.read_at(body, 0)
    found = None if head is None else read_entry(body, head[1])
    if head is None or found is None:
        return None
    tail = _TAIL.read_at(body, found[1])
    return None if tail is None or tail[1] != len(body) else (head[0][0], (found[0],), tail[0])


def _batch(body: bytes) -> _Usual | None:
    if not body.startswith(_BATCH_HEAD):
        return None
    at = len(_BATCH_HEAD)
    entries: list[DLedgerEntry] = []
    while (found := read_entry(body, at)) is not None:
        entries.append(found[0])
        if len(entries) > _BATCH_MAX:
            raise RemoteProtocolError(f"a batch of more than {_BATCH_MAX} entries: lower the leader's maxBatchPushSize")
        at = found[1] + 1
        if not body.startswith(b",", found[1]):
            break
    middle = _BATCH_MIDDLE.read_at(body, at - 1)
    tail = None if middle is None else _TAIL.read_at(body, middle[1])
    if middle is None or tail is None or tail[1] != len(body):
        return None
    return middle[0][0], _consecutive(entries), tail[0]


def _decode_general(body: bytes) -> tuple[Base, PushEntryRequest]:
    members = read_object(body, most=MOST_OF_A_PUSH)
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
    return _consecutive([entry_object(entry) for entry in batch])


def _consecutive(entries: list[DLedgerEntry]) -> tuple[DLedgerEntry, ...]:
    for index, entry in enumerate(entries, entries[0].index):
        if entry.index != index:
            raise RemoteProtocolError(f"a batch holds entry {entry.index} where {index} belongs")
    return tuple(entries)


def encode_push_answer(response: PushEntryResponse, *, group: str) -> bytes:
    """The body of an answer."""
    if response.index == -1:
        return encode(replace(response, index=None), Base(group))  # type: ignore[arg-type]
    return _ANSWER.write(
        response.begin_index,
        response.code,
        response.count,
        response.end_index,
        text_of(group),
        response.index,
        response.term,
    )


def decode_push_answer(body: bytes) -> PushEntryResponse:
    """What a follower says.

    Raises:
        RemoteProtocolError: it is no answer to a push.
    """
    usual = _ANSWER.read(body)
    if usual is None:
        return decode(PushEntryResponse, body)[1]
    begin_index, code, count, end_index, _group, index, term = usual
    return PushEntryResponse(int(code), int(term), int(index), int(count), int(begin_index), int(end_index))
