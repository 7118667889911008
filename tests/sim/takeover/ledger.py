"""Ledger: what the log says in the end of delayed messages and transactions, read with code of our own."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from rmqha.broker.transaction.half_message import HALF_TOPIC, OP_TOPIC
from rmqha.codec.record.layout import BLANK_MAGIC, SCHEDULE_TOPIC
from rmqha.codec.record.message import StoredMessage
from tests.sim.node import Process
from tests.sim.visible import decoded
from tests.sim.workload import LATE, PAID
from tests.store.helpers import commit_log

_WATCHED = (LATE, PAID, SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC)
_BLANK = BLANK_MAGIC.to_bytes(4, "big", signed=True)


class Ledger:
    """All records of those topics, in the log's order, by topic and by what their bodies begin with."""

    def __init__(self) -> None:
        self.records: dict[str, dict[bytes, list[StoredMessage]]] = {topic: {} for topic in _WATCHED}
        self._process: Process | None = None
        self._end = 0

    def read(self, process: Process) -> None:
        """What is new in the log of a master; of another one all, as what was not settled may be gone."""
        if process is not self._process:
            self._process, self._end = process, 0
            self.records = {topic: defaultdict(list) for topic in _WATCHED}
        for message in self._news(process):
            if (names := self.records.get(message.topic)) is not None:
                names[message.body.partition(b">")[0]].append(message)

    def _news(self, process: Process) -> Iterator[StoredMessage]:
        for mapped in commit_log(process.broker.store).queue.files:
            view, at = mapped.view, max(0, self._end - mapped.file_from_offset)
            while at + 8 <= mapped.wrote_position and bytes(view[at + 4 : at + 8]) != _BLANK:
                record = bytes(view[at : at + int.from_bytes(view[at : at + 4], "big")])
                yield decoded(record)
                at += len(record)
                self._end = mapped.file_from_offset + at

    def counts(self, delay: Mapping[int, int] | None = None) -> dict[tuple[str, bytes], int]:
        """How often each was delivered, or committed; of delayed ones only those that the offsets of levels count."""
        counts = {(topic, name): len(found) for topic in (LATE, PAID) for name, found in self.records[topic].items()}
        if delay is not None:
            for name, (waiting, *_) in self.records[SCHEDULE_TOPIC].items():
                if waiting.queue_offset >= delay.get(waiting.queue_id + 1, 0):
                    counts.pop((LATE, name), None)
        return counts
