"""Sixty damages to recorded stores: what RocketMQ 4.9.8 made of each at its next start, and what we make of it.

docs/recovery.md has a table of the differences, made from the results here:

    RMQHA_RECORD=1 python -m pytest tests/store/test_recovery_cases.py
"""

import hashlib
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rmqha.errors import CorruptLogError
from rmqha.store.log_reader import LogReader
from rmqha.store.os_disk import OsDisk
from tests import stores
from tests.store.golden import open_store, queues_of

CASES = {f"{case['base'].removeprefix('store-')}: {case['name']}": case for case in stores.recovery_cases()}
DOCUMENT = Path(__file__).parents[2] / "docs" / "recovery.md"
TABLE_STARTS = "| store: case | damage | RocketMQ 4.9.8 | rmqha | why |\n"

WHY = {
    "crc-last": "a clean stop means that the message was safe, and it is not any more",
    "crc-second-last-file": "good messages behind the bad one",
    "crc-second-last-file-abort": "the checkpoint proves that later ones were durable; RocketMQ does not look there",
    "topic-byte": "the record left a gap in its queue, which stops before it, and says so; RocketMQ closes the gap and "
    "shifts all later messages",
    "physical-offset": "a record must know its place, else replicas and readers go astray; no crash does this",
    "total-size-plus-1": "the checkpoint proves that later records were durable",
    "total-size-huge": "sizes are checked before they are believed; RocketMQ runs out of memory",
    "total-size-negative": "the checkpoint proves that later records were durable",
    "magic": "the checkpoint proves that later records were durable",
    "hole": "the checkpoint proves that later records were durable",
    "torn-tail-1": "no checksum covers properties, but zeros in them are what a torn write leaves: never durable, "
    "and cut like any other torn byte; RocketMQ serves it damaged",
    "blank-destroyed": "what a blank held is known: it is written again, and the log goes on behind it",
    "one-queue-gone": "queues are compared with the log, and built again from where one lacks a record",
    "one-queue-gone-abort": "the same",
    "last-file-gone": "the queues know the messages that are missing",
    "first-file-gone": "the same messages; a queue whose messages are all gone begins at its end",
    "middle-file-gone": "a hole in the log; RocketMQ starts and cannot read on behind it",
    "no-commitlog": "most likely a disk that is not mounted; RocketMQ deletes all queues",
    "empty-file": "left over when making a segment was interrupted: it is removed",
    "foreign-file": "RocketMQ would not start either",
}


@dataclass(frozen=True)
class Outcome:
    """What a start led to; ``refusal`` is why there was none."""

    messages: int = 0
    max_offset: int = 0
    queues: tuple[tuple[str, str, int, int, str], ...] = ()
    refusal: str = ""
    stopped: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        if self.refusal:
            return "does not start"
        units = sum(queue[3] - queue[2] for queue in self.queues)
        stopped = f", {len(self.stopped)} queue stopped" if self.stopped else ""
        return f"{self.messages} messages, {units} in queues, log ends at {self.max_offset}{stopped}"


def rocketmq(case: dict[str, Any]) -> Outcome:
    java = case["java"]
    if not java["loads"]:
        return Outcome(refusal="yes")
    queues = tuple(
        (topic, number, queue["min"], queue["max"], queue["entriesSha256"])
        for topic, queues in sorted(java["queues"].items())
        for number, queue in sorted(queues.items())
        if queue["entries"]
    )
    return Outcome(java["messages"], java["maxOffset"], queues)


def rmqha(case: dict[str, Any], directory: Path) -> Outcome:
    name = case["base"].removeprefix("store-")
    root = stores.unpack(name, directory)
    stores.damage(root, case["ops"])
    store = open_store(root, name)
    try:
        store.load()
    except CorruptLogError as error:
        return Outcome(refusal=error.reason)
    finally:
        found = queues_of(store)
        end = store.max_offset
        store.close()
    queues = tuple(
        (topic, number, queue["min"], queue["max"], _digest(queue["entries"]))
        for topic, queues in sorted(found.items())
        for number, queue in sorted(queues.items())
    )
    messages = len(list(LogReader(OsDisk(), str(root / "commitlog")).messages(check_crc=False)))
    return Outcome(messages, end, queues, stopped=(*store.queues.stopped,))


def _digest(entries: list[list[int]]) -> str:
    return hashlib.sha256(b"".join(struct.pack(">qiq", *entry[1:]) for entry in entries)).hexdigest()


@pytest.mark.parametrize("name", CASES)
def test_a_damaged_store_is_never_worse_off_than_with_rocketmq(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    theirs, ours = rocketmq(case), rmqha(case, tmp_path)
    if ours.refusal:
        assert case["name"] in WHY
        assert len(ours.refusal) > 20
        # A human who looks at it must find everything as it was: the second start says the same.
        store = open_store(tmp_path / "store", case["base"].removeprefix("store-"))
        with pytest.raises(CorruptLogError) as caught:
            store.load()
        assert caught.value.reason == ours.refusal
        store.close()
        return
    if case["name"] == "torn-tail-1":
        assert ours.messages == theirs.messages - 1
        return
    assert (ours.messages, ours.max_offset) >= (theirs.messages, theirs.max_offset)
    their_queues = {queue[:2]: queue[3] for queue in theirs.queues}
    our_queues = {queue[:2]: queue[3] for queue in ours.queues}
    lost = {key for key, end in their_queues.items() if our_queues.get(key, 0) < end}
    if case["name"] == "first-file-gone":
        lost -= {key for key in lost if key not in our_queues}  # every message of that queue was in that file
    assert lost == {(topic, str(queue_id)) for topic, queue_id in ours.stopped}


def test_the_document_tells_every_difference(tmp_path: Path) -> None:
    rows = []
    for number, (name, case) in enumerate(CASES.items()):
        theirs, ours = rocketmq(case), rmqha(case, tmp_path / str(number))
        if ours != theirs and not (ours.refusal and theirs.refusal):
            ours_text = str(ours) if str(ours) != str(theirs) else f"{ours}, with another unit"
            rows.append(f"| {name} | {case['meaning']} | {theirs} | {ours_text} | {WHY[case['name']]} |\n")
    table = TABLE_STARTS + "|---|---|---|---|---|\n" + "".join(rows)
    document = DOCUMENT.read_text()
    before, _, _ = document.partition(TABLE_STARTS)
    if os.environ.get("RMQHA_RECORD") == "1":
        DOCUMENT.write_text(before + table)
    assert document == before + table
