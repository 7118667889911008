"""DLedger's hot messages in the one form in which its members write them. Hot path.

A template writes a message, and reads back what has exactly its form, in a third of the time that the general way
(:mod:`rmqha.codec.dledger_wire`) takes. What has another form it leaves to that, which decides what is none at all.
"""

import re
from binascii import b2a_base64
from functools import lru_cache
from typing import Final

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.codec.dledger_json import decode_base64, encode_text
from rmqha.codec.dledger_wire import AppendEntryRequest, AppendEntryResponse, Base, decode, encode

_INT64: Final = rb"(0|-?[1-9]\\d{0,17})"
_INT32: Final = rb"(0|-?[1-9]\\d{0,8})"
_TEXT: Final = rb'"([ !#-\\[\\]-~]{0,255})"'


class Template:
    """JSON with ``%d`` for an int64, ``%i`` for an int32 and ``%b`` for a text, which :func:`text_of` quotes."""

    def __init__(self, form: bytes) -> None:
        pattern = re.escape(form)
        for mark, values in ((rb"%d", _INT64), (rb"%i", _INT32), (rb"%b", _TEXT)):
            pattern = re.sub(rb"\\?" + mark, values, pattern)
        self._form: Final = form
        self._pattern: Final = re.compile(pattern)

    def write(self, *values: int | bytes) -> bytes:
        """The message with these values."""
        return self._form % values

    def read(self, raw: bytes) -> tuple[bytes, ...] | None:
        """The values of a message; None if it has another form."""
        match = self._pattern.fullmatch(raw)
        return None if match is None else match.groups()

    def read_at(self, raw: bytes, at: int) -> tuple[tuple[bytes, ...], int] | None:
        """The values of what begins there, and where it ends."""
        match = self._pattern.match(raw, at)
        return None if match is None else (match.groups(), match.end())


@lru_cache(maxsize=256)
def text_of(value: str) -> bytes:
    """A text as a template takes it."""
    return encode_text(value).encode(errors="replace")


_BODY: Final = b'{"body":"'
_ENTRY_TAIL: Final = Template(
    b'","bodyCrc":%i,"chainCrc":%i,"channel":%i,"index":%d,"magic":%i,"pos":%d,"size":%i,"term":%d}'
)


def write_entry(entry: DLedgerEntry) -> bytes:
    """An entry as JSON; it is made once, and sent to every follower."""
    if entry.json:
        return entry.json
    tail = _ENTRY_TAIL.write(
        entry.body_crc,
        entry.chain_crc,
        entry.channel,
        entry.index,
        entry.magic,
        entry.pos,
        entry.size,
        entry.term,
    )
    entry.json = b"".join((_BODY, b2a_base64(entry.body, newline=False), tail))
    return entry.json


def read_entry(raw: bytes, at: int) -> tuple[DLedgerEntry, int] | None:
    """The entry that begins there, and where it ends.

    Raises:
        RemoteProtocolError: its body is no base64.
    """
    body_at = at + len(_BODY)
    body_end = raw.find(b'"', body_at)
    if body_end < 0 or not raw.startswith(_BODY, at) or raw.find(b"\\", body_at, body_end) >= 0:
        return None
    found = _ENTRY_TAIL.read_at(raw, body_end)
    if found is None:
        return None
    (body_crc, chain_crc, channel, index, magic, pos, size, term), end = found
    entry = DLedgerEntry(
        decode_base64(raw[body_at:body_end]),
        int(index),
        int(term),
        int(pos),
        int(magic),
        int(size),
        int(channel),
        int(chain_crc),
        int(body_crc),
    )
    return entry, end


_APPEND_TAIL: Final = Template(b'","code":200,"group":%b,"remoteId":%b,"term":-1}')
_APPEND_ANSWER: Final = Template(b'{"code":%i,"group":%b,"index":%d,"leaderId":%b,"pos":%d,"term":%d}')


def encode_append(request: AppendEntryRequest, base: Base) -> bytes:
    """A client's append."""
    if request.body is None or base.group is None or base.remote_id is None:
        return encode(request, base)
    tail = _APPEND_TAIL.write(text_of(base.group), text_of(base.remote_id))
    return b"".join((_BODY, b2a_base64(request.body, newline=False), tail))


def decode_append(body: bytes) -> tuple[Base, AppendEntryRequest]:
    """A client's append, and whom it is for.

    Raises:
        RemoteProtocolError: it is none.
    """
    data_end = body.find(b'"', len(_BODY))
    found = _APPEND_TAIL.read_at(body, data_end) if body.startswith(_BODY) and data_end > 0 else None
    if found is None or found[1] != len(body) or b"\\" in body:
        return decode(AppendEntryRequest, body)
    group, remote_id = found[0]
    return Base(group.decode(), remote_id.decode()), AppendEntryRequest(decode_base64(body[len(_BODY) : data_end]))


def encode_append_answer(response: AppendEntryResponse, *, group: str) -> bytes:
    """What has become of an append."""
    if response.leader_id is None:
        return encode(response, Base(group))
    return _APPEND_ANSWER.write(
        response.code, text_of(group), response.index, text_of(response.leader_id), response.pos, response.term
    )


def decode_append_answer(body: bytes) -> AppendEntryResponse:
    """What has become of an append.

    Raises:
        RemoteProtocolError: it is no such answer.
    """
    usual = _APPEND_ANSWER.read(body)
    if usual is None:
        return decode(AppendEntryResponse, body)[1]
    code, _group, index, leader_id, pos, term = usual
    return AppendEntryResponse(int(code), int(term), leader_id.decode(), int(index), int(pos))
