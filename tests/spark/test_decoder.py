"""Damage, fake records and filters, on logs whose every byte is known."""

import random
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from rmqha.errors import ConfigError, CorruptLogError, StoreError
from rmqha.spark import CorruptRange, OnCorrupt, ReadOptions, ReadReport, decoder, iter_batches
from rmqha.spark.commit_log import open_log
from rmqha.spark.decoder import Split, decode
from tests.spark.logs import BLANK, LogWriter, record
from tests.spark.readers import offsets, read, split_offsets


@pytest.fixture
def log(tmp_path: Path) -> LogWriter:
    """200 messages of 1 to 900 bytes in files of 64 KiB."""
    writer, chance = LogWriter(tmp_path), random.Random(1)
    for _ in range(200):
        writer.append(chance.randbytes(chance.randint(1, 900)))
    return writer


def test_large_blocks_are_walked_by_lanes_to_the_same_records(tmp_path: Path) -> None:
    """Several MiB of small and large records: the lanes and the plain hop agree."""
    writer, chance = LogWriter(tmp_path, file_size=8 << 20), random.Random(2)
    for _ in range(3000):
        size = 300_000 if chance.random() < 0.005 else chance.randint(0, 2000)
        writer.append(chance.randbytes(size))
    assert offsets(tmp_path) == writer.offsets
    assert split_offsets(tmp_path, 100_003)[0] == writer.offsets


def test_bodies_full_of_magic_codes_are_only_slower(tmp_path: Path) -> None:
    """Every lane's opening holds thousands of false beginnings; none claims its own position."""
    writer = LogWriter(tmp_path, file_size=8 << 20)
    for size in range(0, 1600, 2):
        writer.append(bytes.fromhex("daa320a7") * size if size % 3 else b"\xda" * size)
    assert offsets(tmp_path) == writer.offsets


@pytest.mark.parametrize("body_size", [200, 70_000])
def test_a_record_inside_a_body_is_no_record(body_size: int, tmp_path: Path) -> None:
    """Even one that claims exactly the offset it lies at, ends where its host ends, and lies at a split's start."""
    writer = LogWriter(tmp_path, file_size=8 << 20)
    chance = random.Random(3)
    for _ in range(40):
        for _ in range(20):
            writer.append(chance.randbytes(chance.randint(1, 2000)))
        head = 88
        image_at = writer.end + head + 50
        image = record(image_at, bytes(body_size))
        writer.append(bytes(50) + image)
    assert offsets(tmp_path) == writer.offsets
    for split_bytes in (4099, 65_536):
        assert split_offsets(tmp_path, split_bytes)[0] == writer.offsets


@pytest.mark.parametrize("at", [0, 2, 4, 7, 84, 86], ids=lambda at: f"byte-{at}")
def test_a_record_inside_a_damaged_body_is_no_record(at: int, tmp_path: Path) -> None:
    """Whichever of its size, its magic code and its body's length is not what it was; a blank there is none, either."""
    writer = LogWriter(tmp_path, file_size=8 << 20)
    for number in range(40):
        image_at = writer.end + 88 + 50
        image = record(image_at, b"forged", topic=b"audit") if number % 4 else struct.pack(">II", 40, BLANK)
        writer.append(bytes(50) + image + bytes(300))
    victims = (10, 12, 21, 30)
    for victim in victims:
        start = writer.offsets[victim]
        byte = writer.path(start).read_bytes()[start + at]
        writer.write(start + at, bytes([byte ^ 1]))
    report = ReadReport()
    sound = [offset for number, offset in enumerate(writer.offsets) if number not in victims]
    assert offsets(tmp_path, report, on_corrupt=OnCorrupt.SKIP) == sound
    assert [damage[:2] for damage in report.corrupt] == [
        (writer.offsets[victim], writer.offsets[victim + 1]) for victim in victims
    ]


def test_no_path_is_none() -> None:
    """It would be the root of the file system."""
    with pytest.raises(ConfigError, match="the path is empty"):
        list(iter_batches(""))


def test_stale_records_behind_a_blank_are_not_read(log: LogWriter) -> None:
    """A log that was cut and rolled over keeps old, perfectly valid records after the blank's header."""
    stale_at = log.end + 200
    log.write(stale_at, record(stale_at, b"stale"))
    log.roll()
    log.append(b"next file")
    for split_bytes in (500, 7919, 1 << 20):
        assert split_offsets(log.root, split_bytes)[0] == log.offsets


@pytest.mark.parametrize("split_bytes", [997, 7919, 1 << 30])
@pytest.mark.parametrize("damaged", ["crc", "header", "size", "several"])
def test_damage_is_found_once_whatever_the_splits(log: LogWriter, split_bytes: int, damaged: str) -> None:
    """Skipping loses exactly the damaged records and reports exactly their bytes."""
    victims = {"crc": [57], "header": [57], "size": [57], "several": [56, 57, 58, 130]}[damaged]
    for victim in victims:
        at = log.offsets[victim]
        log.write(*{"crc": (at + 88, b"\xff\xfe"), "size": (at, bytes(4))}.get(damaged, (at + 4, b"\x00\x01")))
    found, report = split_offsets(log.root, split_bytes, on_corrupt=OnCorrupt.SKIP)
    good = [offset for index, offset in enumerate(log.offsets) if index not in victims]
    assert found == good
    ranges = sorted((damage.start, damage.end) for damage in report.corrupt)
    ends = dict(zip(log.offsets, log.offsets[1:], strict=False))
    if damaged == "several":
        assert ranges == [(log.offsets[56], log.offsets[59]), (log.offsets[130], log.offsets[131])]
    else:
        assert ranges == [(log.offsets[57], ends[log.offsets[57]])]
    assert report.records == len(good)


@pytest.mark.parametrize("topics", [None, frozenset({"t"})])
def test_a_topic_that_is_no_text_is_damage(tmp_path: Path, topics: frozenset[str] | None) -> None:
    log = LogWriter(tmp_path)
    for _ in range(20):
        log.append(bytes(600), topic=b"t")
    log.write(log.offsets[7] + 88 + 600 + 1, b"\xff")
    found, report = split_offsets(tmp_path, 1 << 30, on_corrupt=OnCorrupt.SKIP, topics=topics)
    assert found == [offset for offset in log.offsets if offset != log.offsets[7]]
    assert [(damage.start, damage.end) for damage in report.corrupt] == [(log.offsets[7], log.offsets[8])]
    with pytest.raises(CorruptLogError, match=str(log.offsets[7])):
        offsets(tmp_path, topics=topics)


@pytest.mark.parametrize("split_bytes", [997, 7919, 1 << 30])
def test_a_blank_in_the_body_of_a_damaged_record_hides_nothing(tmp_path: Path, split_bytes: int) -> None:
    log = LogWriter(tmp_path)
    for _ in range(20):
        log.append(bytes(600))
    at = log.append(bytes(3000))
    inside = at + 200
    log.write(inside, struct.pack(">II", log.file_size - inside, BLANK))
    for _ in range(20):
        log.append(bytes(600))
    log.write(at + 4, b"\0")
    found, report = split_offsets(tmp_path, split_bytes, on_corrupt=OnCorrupt.SKIP)
    assert found == [offset for offset in log.offsets if offset != at]
    assert [(damage.start, damage.end) for damage in report.corrupt] == [(at, log.offsets[21])]


def test_damage_fails_by_default_and_names_its_offset(log: LogWriter) -> None:
    log.write(log.offsets[57] + 88, b"\xff\xfe")
    with pytest.raises(CorruptLogError, match="BODYCRC") as caught:
        read(log.root)
    assert caught.value.offset == log.offsets[57]
    assert offsets(log.root, check_crc=False) == log.offsets


@pytest.mark.parametrize("on_corrupt", OnCorrupt)
@pytest.mark.parametrize("split_bytes", [997, 1 << 30])
def test_an_inner_batch_of_rocketmq_5_is_refused_and_never_passed_over(
    log: LogWriter, split_bytes: int, on_corrupt: OnCorrupt
) -> None:
    at = log.append(b"two messages", sys_flag=0xC0, properties=b"INNER_NUM\x012")
    log.append(b"behind it")
    with pytest.raises(StoreError, match=rf"an inner batch of RocketMQ 5.x .*physical offset {at}\)"):
        split_offsets(log.root, split_bytes, on_corrupt=on_corrupt)


def test_a_sender_s_bits_alone_make_no_inner_batch(log: LogWriter) -> None:
    """RocketMQ 4.9 stores them as they are sent."""
    log.append(b"one message", sys_flag=0xC0)
    assert offsets(log.root) == log.offsets


def test_stop_delivers_everything_before_the_damage(log: LogWriter) -> None:
    log.write(log.offsets[57] + 4, b"\x00")
    report = ReadReport()
    assert offsets(log.root, report, on_corrupt=OnCorrupt.STOP) == log.offsets[:57]
    assert (report.next, report.corrupt[0].start) == (log.offsets[57], log.offsets[57])


def test_what_lies_behind_a_damaged_body_is_not_reported_by_who_stops_there(log: LogWriter) -> None:
    log.write(log.offsets[57] + 88, b"\xff\xfe")
    report = ReadReport()
    assert offsets(log.root, report, on_corrupt=OnCorrupt.STOP) == log.offsets[:57]
    assert (report.next, report.records) == (log.offsets[57], 57)
    assert report.last == (log.offsets[56], log.offsets[57] - log.offsets[56])


def test_a_file_whose_head_is_damaged_is_searched_for_times(tmp_path: Path) -> None:
    """Where the first record's time cannot be read, the next one's counts; what is before the end is not left out."""
    log = LogWriter(tmp_path)
    for index in range(1000):
        log.append(bytes(300), stored_ms=1_700_000_000_000 + index)
    head = next(index for index, offset in enumerate(log.offsets) if offset == log.file_size)
    log.write(log.file_size, b"\xff" * 30)
    time_ms = 1_700_000_000_000 + head + 60
    found = offsets(tmp_path, ending_timestamp_ms=time_ms, on_corrupt=OnCorrupt.SKIP)
    assert found == log.offsets[:head] + log.offsets[head + 1 : head + 60]
    with pytest.raises(CorruptLogError):
        read(tmp_path, ending_timestamp_ms=time_ms)
    assert offsets(tmp_path, starting_timestamp_ms=time_ms) == log.offsets[head + 60 :]


def test_a_time_between_two_files_parts_the_log_there(tmp_path: Path) -> None:
    """All records of a file are older, and the next one begins later: that begin is wanted, not the log's end."""
    log = LogWriter(tmp_path)
    for index in range(1000):
        log.append(bytes(300), stored_ms=1_700_000_000_000 + 2 * index)
    heads = [index for index, offset in enumerate(log.offsets) if offset % log.file_size == 0]
    assert len(heads) > 3
    for head in heads:
        time_ms = 1_700_000_000_000 + 2 * head - 1
        assert offsets(tmp_path, starting_timestamp_ms=time_ms) == log.offsets[head:]
        assert offsets(tmp_path, ending_timestamp_ms=time_ms) == log.offsets[:head]


@pytest.mark.parametrize("damage", [(4, b"\x00"), (0, bytes(200))])
def test_damage_at_the_begin_of_a_range_is_met(log: LogWriter, damage: tuple[int, bytes]) -> None:
    """Who goes on where another reader ended must not jump over what is wrong there; a range before it is sound."""
    at = log.offsets[57]
    log.write(at + damage[0], damage[1])
    with pytest.raises(CorruptLogError) as caught:
        read(log.root, starting_offset=at)
    assert caught.value.offset == at
    report = ReadReport()
    assert offsets(log.root, report, ending_offset=at) == log.offsets[:57]
    assert (report.next, report.corrupt) == (at, [])


def test_any_offset_can_be_a_start(tmp_path: Path) -> None:
    """From within a record, of any size, or a blank, reading begins at the next one: that is no damage."""
    log = LogWriter(tmp_path, file_size=8 << 20)
    for size in (10, 6 << 20, 300, 4 << 20, 20):
        log.append(bytes(size))
    for index, at in enumerate(log.offsets[:-1]):
        for inside in (at + 1, at + 95, log.offsets[index + 1] - 1):
            assert offsets(tmp_path, starting_offset=inside) == log.offsets[index + 1 :]


@pytest.mark.parametrize("on_corrupt", list(OnCorrupt))
@pytest.mark.parametrize(("before", "after"), [(0, 1), (0, 0), (20, 0), (20, 9)])
def test_reading_never_goes_back(
    before: int, after: int, on_corrupt: OnCorrupt, log: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A split behind the log's end, which nobody should plan, is an error: no damage, and not read for ever."""
    looks = iter(range(1000))  # then it fails
    monkeypatch.setattr(decoder, "find_next", lambda *_, **__: next(looks) and None)
    held = open_log(str(log.root))
    segment, at = held.segments[-1], held.end + after
    split = Split(segment, at, segment.end, at, segment.end, held.end - before)
    batches = decode(held.filesystem, [split], ReadOptions(on_corrupt=on_corrupt), deleted={}, report=ReadReport())
    with pytest.raises(StoreError, match=rf"{at}, but .* ends at {held.end - before}: nothing lies there to be read"):
        list(batches)


def test_zeros_in_the_middle_are_damage(log: LogWriter) -> None:
    """A lost page is not the end of the log when records follow."""
    begin, end = log.offsets[190], log.offsets[195]
    log.write(begin, bytes(end - begin))
    report = ReadReport()
    found = offsets(log.root, report, on_corrupt=OnCorrupt.SKIP)
    assert found == [offset for offset in log.offsets if not begin <= offset < end]
    assert report.corrupt == [CorruptRange(begin, end, "nothing was written here")]


@pytest.mark.parametrize("first", [0, 100, 199])
def test_records_of_rocketmq_5_are_refused(log: LogWriter, first: int) -> None:
    """Also where it was upgraded, and where nothing else is there."""
    for at in log.offsets[first:]:
        log.write(at + 4, b"\xda\xa3\x20\xab")
    with pytest.raises(StoreError, match=r"5\.x"):
        read(log.root, on_corrupt=OnCorrupt.SKIP)


def test_what_was_stored_in_one_millisecond_stays_together(tmp_path: Path) -> None:
    """A busy broker stores hundreds of messages in one: a time leads to the first of them, in a file before, too."""
    log, start_ms = LogWriter(tmp_path, file_size=1 << 20), 1_700_000_000_000
    for index in range(6000):
        log.append(bytes(300), stored_ms=start_ms + index // 300)
    heads = [index for index, offset in enumerate(log.offsets) if offset % log.file_size == 0]
    assert len(heads) > 2
    assert any(head % 300 for head in heads)
    for nth in range(20):
        first, time_ms = nth * 300, start_ms + nth
        assert offsets(tmp_path, starting_timestamp_ms=time_ms) == log.offsets[first:]
        assert offsets(tmp_path, ending_timestamp_ms=time_ms) == log.offsets[:first]


def test_a_missing_file_is_an_error(log: LogWriter) -> None:
    log.append(bytes(60_000))
    log.append(bytes(60_000))
    log.path(65536).unlink()
    with pytest.raises(StoreError, match="gap"):
        read(log.root)


def test_filters(tmp_path: Path) -> None:
    """Each filter alone; a system topic is delivered when it is named or asked for."""
    writer = LogWriter(tmp_path)
    topics = [b"orders", b"%RETRY%group", b"SCHEDULE_TOPIC_XXXX", b"order|lines", b"audit"]
    for index in range(50):
        properties = b"KEYS\x01k%d shared\x02UNIQ_KEY\x01U%d\x02TAGS\x01t%d" % (index, index, index % 3)
        stored_ms = 1_700_000_000_000 + index
        topic = topics[index % 5]
        writer.append(b"x", topic=topic, properties=properties, stored_ms=stored_ms, queue_id=index % 4)

    def found(**options: Any) -> list[int]:
        return [writer.offsets.index(offset) for offset in offsets(tmp_path, **options)]

    everything = range(50)
    assert found() == [i for i in everything if i % 5 in (0, 3, 4)]
    assert found(include_system_topics=True) == list(everything)
    assert found(topics=("%RETRY%group", "audit")) == [i for i in everything if i % 5 in (1, 4)]
    assert found(topic_pattern="order.*") == [i for i in everything if i % 5 in (0, 3)]
    assert found(tags=("t1",)) == [i for i in everything if i % 5 in (0, 3, 4) and i % 3 == 1]
    assert found(keys=("k3", "U4", "k999")) == [3, 4]
    assert found(queues=(2,)) == [i for i in everything if i % 5 in (0, 3, 4) and i % 4 == 2]
    begin, end = 1_700_000_000_010, 1_700_000_000_020
    assert found(starting_timestamp_ms=begin, ending_timestamp_ms=end) == [
        i for i in range(10, 20) if i % 5 in (0, 3, 4)
    ]
    assert found(starting_offset=writer.offsets[45], include_system_topics=True) == [45, 46, 47, 48, 49]
    assert found(ending_offset=writer.offsets[3] + 1) == [0, 3]
    assert found(topics=()) == []
    assert found(tags=()) == []
    for empty in ("topics", "keys", "tags"):
        with pytest.raises(ConfigError, match="is empty, as an unset variable is"):
            found(**{empty: ("orders", "")})


@pytest.mark.parametrize(("place", "column"), [(48, "bornHost"), (64, "storeHost")])
def test_hosts_that_share_an_address_or_a_port_are_told_apart(place: int, column: str, tmp_path: Path) -> None:
    """As producers on one machine are, and machines that one image was put on."""
    for number, hosts in enumerate(
        [
            [(b"\x0a\0\0\x01", port) for port in (5001, 5001, 5002, 65_535, 5001)],
            [(bytes([10, 0, 0, last]), 10911) for last in (1, 1, 2, 255, 1)],
        ]
    ):
        log = LogWriter(tmp_path / str(number))
        for address, port in hosts:
            log.write(log.append(b"x") + place, address + port.to_bytes(4, "big"))
        wanted = [f"{'.'.join(map(str, address))}:{port}" for address, port in hosts]
        assert [row[column] for row in read(log.root)] == wanted


def test_only_wanted_columns_are_made(log: LogWriter) -> None:
    assert set(read(log.root, columns=("topic", "physicalOffset"))[0]) == {"topic", "physicalOffset"}
    with pytest.raises(ConfigError, match="unknown column 'payload'"):
        read(log.root, columns=("payload",))


def test_contradicting_bounds_are_refused(log: LogWriter) -> None:
    with pytest.raises(ConfigError, match="not both"):
        read(log.root, starting_offset=0, starting_timestamp_ms=1)
    with pytest.raises(ConfigError, match="empty"):
        read(log.root, starting_offset=5, ending_offset=4)


def test_a_bomb_stays_compressed(tmp_path: Path) -> None:
    """A body that would inflate beyond the bound is delivered as stored, flagged and counted."""
    writer, report = LogWriter(tmp_path), ReadReport()
    stored = zlib.compress(bytes(1 << 20))
    writer.append(stored, sys_flag=1)
    (row,) = read(tmp_path, report, decompress=True, inflated_bytes_max=1000)
    assert (row["body"], row["sysFlag"], report.not_inflated) == (stored, 1, 1)


@pytest.mark.parametrize("batch_bytes", [1, 3000, 1 << 30])
def test_bombs_are_counted_once_in_however_many_batches(
    batch_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bodies that grow large come in several batches: every row in one of them, in order, as flagged."""
    monkeypatch.setattr("rmqha.spark.bodies._BATCH_BYTES_MAX", batch_bytes)
    writer, report = LogWriter(tmp_path), ReadReport()
    sizes = [500, 5000, 800, 6000, 7000, 100, 900, 900, 8000, 10]
    for number, size in enumerate(sizes):
        writer.append(zlib.compress(bytes([number]) * size), sys_flag=1)
    rows = read(tmp_path, report, decompress=True, inflated_bytes_max=1000)
    bodies = [bytes([number]) * size for number, size in enumerate(sizes)]
    assert [row["physicalOffset"] for row in rows] == writer.offsets
    assert [row["sysFlag"] for row in rows] == [int(size > 1000) for size in sizes]
    found = [zlib.decompress(row["body"]) if row["sysFlag"] else row["body"] for row in rows]
    assert found == bodies
    assert (report.messages, report.not_inflated) == (10, 4)
