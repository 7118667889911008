"""Entries and answers of DLedger as JSON lines."""

import base64
import hashlib
import json
from typing import Any

from rmqha.cli.output import takes_unicode
from rmqha.codec.dledger_entry import Blank, DLedgerEntry
from rmqha.codec.dledger_wire import AppendEntryResponse
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.ledger_reader import LedgerEntry


def as_json(line: dict[str, Any]) -> str:
    """One line, in what stdout can write."""
    return json.dumps(line, ensure_ascii=not takes_unicode(), separators=(",", ":"))


def record_line(record: LedgerEntry | Blank, *, with_body: bool) -> dict[str, Any]:
    """What lies in a file."""
    if isinstance(record, Blank):
        return {"blank": True, "pos": record.pos, "size": record.size}
    header = record.header
    fields = (header.index, header.term, header.pos, header.size, header.magic)
    crcs = (header.channel, header.chain_crc, header.body_crc)
    return _line(fields, crcs, record.body) | (_body(record.body) if with_body else {})


def entry_line(entry: DLedgerEntry) -> dict[str, Any]:
    """What a leader answered."""
    fields = (entry.index, entry.term, entry.pos, entry.size, entry.magic)
    return _line(fields, (entry.channel, entry.chain_crc, entry.body_crc), entry.body) | _body(entry.body)


def append_line(answer: AppendEntryResponse) -> dict[str, Any]:
    """What became of an append."""
    return {
        "code": int(answer.code),
        "index": answer.index,
        "term": answer.term,
        "pos": answer.pos,
        "leaderId": answer.leader_id,
    }


def code_name(code: int) -> str:
    """A code of DLedger's as people know it."""
    known = {int(known): known.name for known in DLedgerResponseCode}
    return f"{known[code]} ({code})" if code in known else f"code {code}"


def _line(fields: tuple[int, ...], crcs: tuple[int, ...], body: bytes) -> dict[str, Any]:
    names = ("index", "term", "pos", "size", "magic", "channel", "chainCrc", "bodyCrc")
    numbers = dict(zip(names, fields + crcs, strict=True))
    return numbers | {"bodyLength": len(body), "bodySha256": hashlib.sha256(body).hexdigest()}


def _body(body: bytes) -> dict[str, Any]:
    try:
        return {"body": body.decode("utf-8")}
    except UnicodeDecodeError:
        return {"body": base64.b64encode(body).decode("ascii"), "bodyIsBase64": True}
