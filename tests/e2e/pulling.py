"""Reads what a broker serves to consumers, by plain pull requests: a witness that is not rmqha's own consumer."""

import json
from pathlib import Path
from typing import Final

import trio

from tests.e2e.commitlog import Record, decode_record, read_records

PULL_MESSAGE: Final = 11
FOUND: Final = 0
PULL_NOT_FOUND: Final = 19
_SUBSCRIPTION_IN_REQUEST: Final = "4"


class Pulling:
    """One connection to a broker."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._received = bytearray()

    async def pull(self, topic: str, queue_id: int, *, offset: int) -> tuple[dict[str, object], bytes]:
        """One pull; returns the answer's header and body."""
        fields = {"consumerGroup": "witness", "topic": topic, "queueId": str(queue_id), "queueOffset": str(offset)}
        fields |= {"maxMsgNums": "32", "sysFlag": _SUBSCRIPTION_IN_REQUEST, "commitOffset": "0"}
        fields |= {"suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG"}
        header = {"code": PULL_MESSAGE, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": 1}
        text = json.dumps(header | {"serializeTypeCurrentRPC": "JSON", "version": 395}).encode()
        await self._stream.send_all((4 + len(text)).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text)
        size = int.from_bytes(await self._receive_exactly(4), "big")
        frame = await self._receive_exactly(size)
        header_end = 4 + int.from_bytes(frame[1:4], "big")
        return json.loads(frame[4:header_end]), frame[header_end:]

    async def _receive_exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            data = await self._stream.receive_some(1 << 20)
            assert data, "the broker hung up"
            self._received += data
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    async def whole_queue(self, topic: str, queue_id: int) -> list[Record]:
        """Every message of a queue, from its minimum offset to its end."""
        records: list[Record] = []
        offset = 0
        while True:
            header, body = await self.pull(topic, queue_id, offset=offset)
            if header["code"] == PULL_NOT_FOUND:
                return records
            assert header["code"] == FOUND, f"{topic} queue {queue_id} at {offset}: {header}"
            at = 0
            while at < len(body):
                size = int.from_bytes(body[at : at + 4], "big")
                records.append(decode_record(body[at : at + size]))
                at += size
            fields = header["extFields"]
            assert isinstance(fields, dict)
            offset = int(fields["nextBeginOffset"])


async def assert_serves_its_log(port: int, commitlog: Path, *, topics: set[str]) -> int:
    """Every message of these topics that stands in the log is served, each in its queue; returns how many."""
    queues: dict[tuple[str, int], list[Record]] = {}
    for record in read_records(commitlog):
        if record.topic in topics:
            queues.setdefault((record.topic, record.queue_id), []).append(record)
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        pulling = Pulling(stream)
        for (topic, queue_id), expected in queues.items():
            served = await pulling.whole_queue(topic, queue_id)
            assert served == expected, (
                f"{topic} queue {queue_id}: {len(served)} served, {len(expected)} in the log; first difference: "
                f"{next(((a[:5], b[:5]) for a, b in zip(served, expected, strict=False) if a != b), None)}"
            )
    return sum(len(expected) for expected in queues.values())
