"""Bodies full of records, sound and odd: asked all at once, they are what they are one by one."""

import random
import struct
import time
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
from rmqha.spark import records
from rmqha.spark.commit_log import CommitLog, open_log
from rmqha.spark.segments import SegmentReader
from tests.spark.logs import BLANK, LedgerWriter, LogWriter, record

SIZES = (0, 1, -1, 90, 91, 1000, 40_000, 1 << 22, 1 << 30, -5, (1 << 31) - 1)
INNER = b"INNER_NUM\x013\x02"


def image(draw: random.Random, at: int, *, of_entry: bool) -> bytes:
    """A record that claims the place at which it lies, as a rule with something wrong."""
    topic = draw.choice([b"orders", b"pay/ments", b"", b"t" * 127, b"t" * 200])
    properties = draw.choice([b"", b"KEYS\x01k\x02", INNER, b"x" * 300])
    flag = draw.choice([0, 0, 0, 1 << 4, 1 << 5, 3 << 4, 1 << 7, draw.getrandbits(8)])
    lies_at = at + 48 if of_entry else at
    data = bytearray(record(lies_at, b"F" * draw.randrange(60), topic=topic, properties=properties, sys_flag=flag))
    for place in draw.sample([0, 84], draw.choice([0, 1, 1, 2])):  # TOTALSIZE, BODY LENGTH
        there = int.from_bytes(data[place : place + 4], "big", signed=True)
        size = draw.choice([*SIZES, there + draw.randrange(-3, 300)])
        data[place : place + 4] = struct.pack(">i", size)
    if not of_entry:
        return bytes(data)
    size = draw.choice([len(data), len(data), draw.choice(SIZES)])
    said = min(draw.choice([48 + size, 48 + size, draw.choice(SIZES)]), SIZES[-1])
    return struct.pack(">iiqqqiiii", 1, said, 0, 1, at, 0, 0, 0, size) + bytes(data)


def hostile(draw: random.Random, at: int, *, of_entry: bool) -> bytes:
    body = b""
    while len(body) < draw.choice([0, 500, 5000, 20_000]):
        kind = draw.random()
        if kind < 0.8:
            body += image(draw, at + len(body), of_entry=of_entry)
        elif kind < 0.9:
            left = (1 << 16) - (at + len(body)) % (1 << 16)
            body += struct.pack(">ii" if of_entry else ">II", *((-1, left) if of_entry else (left, BLANK)))
        else:
            body += bytes(draw.randrange(40))
    return body


def make(draw: random.Random, root: Path, *, of_entry: bool) -> CommitLog:
    if of_entry:
        ledger = LedgerWriter(root)
        for _ in range(12):
            ledger.put(hostile(draw, ledger.end + 48 + 88, of_entry=True))
        ledger.commit()
        return open_log(str(root))
    log = LogWriter(root)
    for _ in range(12):
        log.append(hostile(draw, log.end + 88, of_entry=False))
    whole = record(log.end, hostile(draw, log.end + 88, of_entry=False))
    log.write(log.end, whole[: draw.randrange(len(whole))][: log.file_size - log.end % log.file_size])
    return open_log(str(root))


@pytest.mark.parametrize("of_entry", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_all_at_once_they_are_what_they_are_one_by_one(
    seed: int, of_entry: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    log = make(draw, tmp_path, of_entry=of_entry)
    found = 0
    for segment in log.segments:
        places = [segment.base + draw.randrange(segment.end - segment.base) for _ in range(25)]
        told = []
        for many in (0, 1 << 30):
            monkeypatch.setattr(records, "_MANY", many)
            with SegmentReader(log.filesystem, segment) as file:
                told.append(
                    [
                        (
                            records.find_record(file, at, end=segment.end),
                            records.find_record(file, at, end=segment.end, or_blank=True),
                            records.covering(file, at, at),
                            records.open_at(file, at, end=segment.end),
                            records.start_at(file, at, end=segment.end),
                        )
                        for at in places
                    ]
                )
        assert told[0] == told[1]
        found += sum(over is not None for _, _, over, *_ in told[0])
    assert found


def test_a_body_full_of_records_that_claim_to_reach_far_takes_no_longer(tmp_path: Path) -> None:
    """One look at each took 12 to 30 s for a split."""
    log = LogWriter(tmp_path, file_size=16 << 20)
    for _ in range(3):
        at, body = log.end + 88, bytearray(4_000_000)
        one = bytearray(record(0, b"F" * 20, topic=b"payments", properties=b""))
        for place in range(0, len(body) - 200, len(one)):
            far = len(body) - place
            struct.pack_into(">I", one, 0, far + 91)
            struct.pack_into(">q", one, 28, at + place)
            struct.pack_into(">i", one, 84, far)
            body[place : place + len(one)] = one
        log.append(bytes(body))
    opened = open_log(str(tmp_path))
    before = time.process_time()
    assert [opened.start_at(at) for at in (3_000_000, 7_000_000)] == log.offsets[1:]
    assert time.process_time() - before < 5


def test_a_body_full_of_what_begins_a_blank_in_a_dledger_log_takes_no_longer(tmp_path: Path) -> None:
    """0xFF is: as bitmaps and images of flash memory have it. One look at each took 8 µs a byte, and split."""
    log = LedgerWriter(tmp_path, file_size=16 << 20)
    for _ in range(3):
        log.put(b"\xff" * 1_000_000)
    log.commit()
    opened = open_log(str(tmp_path))
    before = time.process_time()
    assert [opened.start_at(at) for at in (900_000, 1_900_000)] == log.offsets[1:]
    assert time.process_time() - before < 10  # it was 39
