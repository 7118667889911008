"""recover_commit_log under power cuts that lose and tear sectors, and under random damage."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec.checkpoint import Checkpoint
from rmqha.codec.record.encoder import prepare
from rmqha.codec.record.layout import BLANK_SIZE_MIN, encode_blank
from rmqha.codec.record.message import decode_scanned
from rmqha.codec.record.scan import scan_records
from rmqha.errors import CorruptLogError
from rmqha.store.log_recovery import DurableKnowledge, recover_commit_log
from rmqha.store.mapped_file_queue import MappedFileQueue
from rmqha.store.os_disk import OsDisk

FILE_SIZE = 2048
SECTOR = 64
"""Smaller than a disk's, so that few records make many."""
HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])


def log_of(body_sizes: list[int]) -> tuple[bytes, list[int]]:
    """A log of such records, with the blanks between segments, and where each record or blank ends."""
    log, ends = b"", [0]
    for number, size in enumerate(body_sizes):
        prepared = prepare(
            "T",
            bytes([number % 255 + 1]) * size,
            queue_id=0,
            born_timestamp_ms=1,
            born_host_raw=HOST,
            store_host_raw=HOST,
        )
        free = FILE_SIZE - len(log) % FILE_SIZE
        if prepared.size + BLANK_SIZE_MIN > free:
            log += encode_blank(free).ljust(free, b"\0")
            ends.append(len(log))
        log += prepared.pack(queue_offset=number, physical_offset=len(log), store_timestamp_ms=1_000 + number)
        ends.append(len(log))
    return log, ends


def write(directory: Path, log: bytes) -> None:
    for offset in range(0, max(len(log), 1), FILE_SIZE):
        (directory / f"{offset:020d}").write_bytes(log[offset : offset + FILE_SIZE].ljust(FILE_SIZE, b"\0"))


def read(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.iterdir()))


def recover(directory: Path, known: DurableKnowledge) -> int:
    queue = MappedFileQueue(OsDisk(), str(directory), file_size=FILE_SIZE)
    queue.load()
    try:
        return recover_commit_log(queue, known=known).end
    finally:
        queue.close()


def places_and_bodies(log: bytes, end: int) -> list[tuple[int, bytes]]:
    """What checks cover of each record; the other fields of an unflushed one may be torn without anybody noticing."""
    found, at = [], 0
    while at < end:
        scan = scan_records(log, at, end, phy_offset_base=0)
        while at < scan.end:
            message = decode_scanned(memoryview(log), at)
            found.append((at, message.body))
            at += message.store_size
        at += -at % FILE_SIZE
    return found


BODIES = st.lists(st.integers(0, 900), min_size=1, max_size=12)


@given(data=st.data())
def test_after_a_power_cut_the_log_is_a_prefix_that_holds_all_that_was_durable(data: st.DataObject) -> None:
    log, ends = log_of(data.draw(BODIES))
    durable = data.draw(st.sampled_from(ends))
    mark = data.draw(st.sampled_from([end for end in ends if end <= durable]))  # what the checkpoint knows of it
    after = bytearray(log)
    for at in range(durable - durable % SECTOR, len(log), SECTOR):
        kept = data.draw(st.one_of(st.sampled_from([SECTOR, SECTOR, 0]), st.integers(0, SECTOR)))
        lost_from, lost_to = max(durable, at + kept), min(at + SECTOR, len(log))
        after[lost_from:lost_to] = bytes(max(0, lost_to - lost_from))
    known = DurableKnowledge(clean=False, checkpoint=Checkpoint(), durable_offset=mark, is_blank=True)
    with TemporaryDirectory() as name:
        directory = Path(name)
        write(directory, bytes(after))
        end = recover(directory, known)
        found = read(directory)
        assert end >= durable
        assert end in ends
        assert found[:durable] == log[:durable]
        assert places_and_bodies(found, end) == places_and_bodies(log, end)
        assert not any(found[end:])
        assert (recover(directory, known), read(directory)) == (end, found)


@given(
    bodies=BODIES,
    damage=st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=80)), max_size=2),
    clean=st.booleans(),
    piece_bytes=st.integers(1, 2_000),
)
def test_the_size_of_the_pieces_in_which_it_is_verified_changes_nothing(
    bodies: list[int], damage: list[tuple[float, bytes]], clean: bool, piece_bytes: int
) -> None:
    log, _ = log_of(bodies)
    damaged = bytearray(log)
    for place, noise in damage:
        at = int(place * len(log))
        damaged[at : at + len(noise)] = noise
    known = DurableKnowledge(clean=clean, checkpoint=Checkpoint())
    outcomes = []
    for size in (1 << 20, piece_bytes):
        with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
            patched.setattr("rmqha.store.log_recovery.SCAN_BYTES", size)
            write(Path(name), bytes(damaged))
            try:
                outcomes.append((str(recover(Path(name), known)), read(Path(name))))
            except CorruptLogError as error:
                outcomes.append((str(error).replace(name, ""), read(Path(name))))
    assert outcomes[0] == outcomes[1]


@given(
    bodies=BODIES,
    damage=st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=80)), min_size=1, max_size=3),
    clean=st.booleans(),
    durable=st.floats(0, 1),
)
def test_any_damage_is_refused_unchanged_or_cut_once_and_for_all(
    bodies: list[int], damage: list[tuple[float, bytes]], clean: bool, durable: float
) -> None:
    log, _ = log_of(bodies)
    broken = bytearray(log)
    for place, noise in damage:
        at = int(place * (len(log) - 1))
        broken[at : at + len(noise)] = noise[: len(log) - at]
    known = DurableKnowledge(clean=clean, checkpoint=Checkpoint(), durable_offset=int(durable * len(log)))
    with TemporaryDirectory() as name:
        directory = Path(name)
        write(directory, bytes(broken))
        before = read(directory)
        try:
            end = recover(directory, known)
        except CorruptLogError:
            assert read(directory) == before
            return
        assert end >= known.durable_offset
        found = read(directory)
        assert not any(found[end:])
        assert (recover(directory, known), read(directory)) == (end, found)


def test_zeros_before_what_is_cut_are_cut_with_it() -> None:
    """Found by fuzzing: a record that ends in zeros was kept before garbage, and cut by the next recovery."""
    good, torn = (
        prepare("T", b"x", queue_id=0, born_timestamp_ms=1, born_host_raw=HOST, store_host_raw=HOST, properties_raw=p)
        for p in (b"A\x01b", b"TAGS\x01a")
    )
    log = good.pack(queue_offset=0, physical_offset=0, store_timestamp_ms=1_000)
    end = len(log)
    log += torn.pack(queue_offset=1, physical_offset=end, store_timestamp_ms=1_001)[:-1] + b"\0"
    log += b"\x90\xda\xa3\x20" * 20
    known = DurableKnowledge(clean=False, checkpoint=Checkpoint())
    with TemporaryDirectory() as name:
        write(Path(name), log)
        assert recover(Path(name), known) == end
        assert recover(Path(name), known) == end
        assert read(Path(name)) == log[:end].ljust(FILE_SIZE, b"\0")
