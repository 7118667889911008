"""Damage in large blocks, where many records are walked at once: each field that makes a record one is looked at."""

import random
from pathlib import Path

import pytest

from rmqha.spark import OnCorrupt, ReadReport
from rmqha.spark.lane_walk import _LANES_MIN, SLOT_BYTES
from tests.spark.logs import LedgerWriter, LogWriter
from tests.spark.readers import offsets

FILE_SIZE = 4 << 20
VICTIMS = (700, 701, 1500, 1980)
COUNT = 2000
BODY_SIZE_AT, BODY_AT = 84, 88
TOPIC, PROPERTIES = b"orders", b"TAGS\x01TagA"
MESSAGE_FIELDS = {
    "size": 3,
    "magic": 5,
    "magic's rare byte": 4,
    "physical offset": 35,
    "body's length": BODY_SIZE_AT + 3,
    "body": BODY_AT + 1,
}
"""Where a byte of each lies, from a message's begin."""
TAIL_FIELDS = {"topic's length": 0, "topic": 1, "properties' length": 1 + len(TOPIC) + 1}
"""Likewise, from its body's end."""
ENTRY_FIELDS = {"magic": 3, "size": 7, "index": 8, "term": 16, "pos": 31, "body's length": 47}
"""Likewise, from the begin of the entry around it."""


def flip(log: LogWriter | LedgerWriter, at: int) -> None:
    """The highest bit of a byte, by which an index and a term become negative, and a topic is no text."""
    byte = log.path(at).read_bytes()[at % log.file_size]
    log.write(at, bytes([byte ^ 0x80]))


def check(log: LogWriter | LedgerWriter, *, before: int = 0) -> None:
    """Just the damaged ones are left out, and told; ``before`` the message is so much of each."""
    assert log.offsets[VICTIMS[0]] > (_LANES_MIN + 1) * SLOT_BYTES, "else they are not walked at once"
    report = ReadReport()
    found = offsets(log.root, report, on_corrupt=OnCorrupt.SKIP)
    assert found == [at + before for number, at in enumerate(log.offsets) if number not in VICTIMS]
    told = {place for damage in report.corrupt for place in log.offsets if damage.start <= place < damage.end}
    assert told == {log.offsets[victim] for victim in VICTIMS}
    assert report.records == COUNT - len(VICTIMS)


@pytest.mark.parametrize("field", [*MESSAGE_FIELDS, *TAIL_FIELDS])
def test_a_field_of_a_record(field: str, tmp_path: Path) -> None:
    log, chance = LogWriter(tmp_path, file_size=FILE_SIZE), random.Random(7)
    sizes = [chance.randint(800, 1000) for _ in range(COUNT)]
    for size in sizes:
        log.append(chance.randbytes(size), topic=TOPIC, properties=PROPERTIES)
    for victim in VICTIMS:
        within = MESSAGE_FIELDS[field] if field in MESSAGE_FIELDS else BODY_AT + sizes[victim] + TAIL_FIELDS[field]
        flip(log, log.offsets[victim] + within)
    check(log)


@pytest.mark.parametrize("field", ENTRY_FIELDS)
def test_a_field_of_an_entry(field: str, tmp_path: Path) -> None:
    log, chance = LedgerWriter(tmp_path, file_size=FILE_SIZE), random.Random(8)
    for _ in range(COUNT):
        log.put(chance.randbytes(chance.randint(800, 1000)), topic=TOPIC, properties=PROPERTIES)
    log.commit()
    for victim in VICTIMS:
        flip(log, log.offsets[victim] + ENTRY_FIELDS[field])
    check(log, before=48)


@pytest.mark.parametrize("field", MESSAGE_FIELDS)
def test_a_field_of_a_message_in_an_entry(field: str, tmp_path: Path) -> None:
    log, chance = LedgerWriter(tmp_path, file_size=FILE_SIZE), random.Random(9)
    for _ in range(COUNT):
        log.put(chance.randbytes(chance.randint(800, 1000)), topic=TOPIC, properties=PROPERTIES)
    log.commit()
    for victim in VICTIMS:
        flip(log, log.offsets[victim] + 48 + MESSAGE_FIELDS[field])
    check(log, before=48)
