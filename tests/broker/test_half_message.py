"""What comes of half messages, against the bytes that RocketMQ wrote and sent."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from rmqha.broker.transaction.check_listener import check_request
from rmqha.broker.transaction.half_message import (
    HALF_TOPIC,
    OP_TOPIC,
    checked_once_more,
    committed,
    half_properties,
    is_committed_by,
    key_of,
    mark_in,
    moved,
    number_property,
    place_of,
    put_off,
    real_destination,
    removal_mark,
)
from rmqha.codec.crc import crc32
from rmqha.codec.headers import decode_header, encode_header
from rmqha.codec.properties import parse_properties
from rmqha.codec.record.encoder import PreparedRecord
from rmqha.codec.record.message import StoredMessage, decode_message
from rmqha.codec.remoting import RemotingCommand, decode_frames
from rmqha.codec.transaction_headers import EndTransactionRequestHeader
from rmqha.errors import RemoteProtocolError
from rmqha.store.status import AppendResult, PutMessageStatus
from tests.stores import GOLDEN, expected_messages, unpack

TOPICS = (HALF_TOPIC, OP_TOPIC, "transfers")
SESSION = GOLDEN / "remoting" / "producer-transaction"


@cache
def recorded() -> tuple[RemotingCommand, ...]:
    """What went between a producer of RocketMQ's and its broker, in order of time."""
    frames = []
    for line in (SESSION / "frames.jsonl").read_text().splitlines():
        frame: dict[str, Any] = json.loads(line)
        (connection,) = SESSION.glob(f"conn-{frame['conn']}-*")
        raw = (connection / f"{frame['dir']}.bin").read_bytes()[frame["at"] : frame["at"] + frame["length"]]
        frames += decode_frames(raw)[0]
    return tuple(frames)


def of_code(code: int) -> list[RemotingCommand]:
    return [command for command in recorded() if command.code == code]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> list[StoredMessage]:
    """The records of transactions in a store of RocketMQ's, in order."""
    commit_log = unpack("basic", tmp_path_factory.mktemp("basic")) / "commitlog"
    log = b"".join(path.read_bytes() for path in sorted(commit_log.iterdir()))
    begin = int(min(path.name for path in commit_log.iterdir()))
    offsets = [
        m["physicalOffset"] for m in expected_messages("basic") if m["topic"] in (HALF_TOPIC, OP_TOPIC, "transfers")
    ]
    return [decode_message(log, offset - begin) for offset in offsets]


def bytes_of(record: PreparedRecord, at: StoredMessage) -> bytes:
    return record.pack(
        queue_offset=at.queue_offset,
        physical_offset=at.physical_offset,
        store_timestamp_ms=at.store_timestamp_ms,
    )


def halves_in(stored: list[StoredMessage]) -> dict[int, StoredMessage]:
    return {message.queue_offset: message for message in stored if message.topic == HALF_TOPIC}


def test_marks_are_rocketmqs_byte_for_byte(stored: list[StoredMessage]) -> None:
    marks = [message for message in stored if message.topic == OP_TOPIC]
    assert len(marks) == 6
    for mark in marks:
        queue_offset, (offset,), _ = mark_in(memoryview(mark.encode()))
        assert queue_offset == mark.queue_offset
        record = removal_mark(offset, store_host=mark.store_host_raw, born_timestamp_ms=mark.born_timestamp_ms)
        assert bytes_of(record, mark) == mark.encode()


def test_committed_messages_are_rocketmqs_byte_for_byte(stored: list[StoredMessage]) -> None:
    halves = {half.physical_offset: half for half in halves_in(stored).values()}
    messages = [message for message in stored if message.prepared_transaction_offset]
    assert len(messages) == 4
    for message in messages:
        half = halves[message.prepared_transaction_offset]
        assert bytes_of(committed(half, store_host=message.store_host_raw), message) == message.encode()


def test_half_messages_are_written_again_as_rocketmq_does(stored: list[StoredMessage]) -> None:
    halves = halves_in(stored)
    for first, again in ((3, 7), (5, 9), (7, 10), (9, 11), (11, 12)):
        ours = decode_message(
            bytes_of(checked_once_more(halves[first], store_host=halves[first].store_host_raw), halves[again])
        )
        noted = {"TRAN_PREPARED_QUEUE_OFFSET": str(first)}
        assert ours.properties == halves[again].properties | noted
        size = ours.store_size - len("\x02TRAN_PREPARED_QUEUE_OFFSET\x01") - len(str(first))
        assert (size, ours.body_crc) == (halves[again].store_size, halves[again].body_crc)


def test_a_half_message_knows_where_it_belongs(stored: list[StoredMessage]) -> None:
    for half in halves_in(stored).values():
        topic, queue_id = real_destination(half)
        assert half_properties(half.properties_raw, topic=topic, queue_id=queue_id).count(b"REAL_") == 2
        assert topic == "transfers"


def test_trap_31_a_question_is_rocketmqs_byte_for_byte() -> None:
    """39 names the place where the half message lies now, in its header as in the record."""
    (question,) = of_code(39)
    message = decode_message(question.body)
    assert int(question.ext_fields["commitLogOffset"]) > int(of_code(37)[2].ext_fields["commitLogOffset"])
    longer = len(HALF_TOPIC) - len(message.topic)
    half = replace(message, topic=HALF_TOPIC, queue_id=0, store_size=message.store_size + longer)
    asked = check_request(half)
    assert (asked.ext_fields, asked.body) == (question.ext_fields, question.body)


def test_a_question_is_about_the_new_place(stored: list[StoredMessage]) -> None:
    half = halves_in(stored)[7]
    record = checked_once_more(half, store_host=half.store_host_raw)
    asked = check_request(moved(half, record, AppendResult(PutMessageStatus.PUT_OK, 4711, queue_offset=10)))
    message = decode_message(asked.body)
    assert (message.physical_offset, message.queue_offset) == (4711, 10)
    assert message.properties == halves_in(stored)[10].properties | {"TRAN_PREPARED_QUEUE_OFFSET": "7"}
    assert (message.topic, message.store_timestamp_ms) == ("transfers", half.store_timestamp_ms)


def test_what_a_producer_says_at_the_end() -> None:
    ends = [decode_header(EndTransactionRequestHeader, command) for command in of_code(37)]
    assert [(end.commit_or_rollback, end.from_transaction_check) for end in ends] == [
        (8, False), (12, False), (0, False), (8, True)
    ]  # fmt: skip
    for end, command in zip(ends, of_code(37), strict=True):
        assert encode_header(end).items() <= command.ext_fields.items()


def test_trap_30_the_recorded_producer_names_what_its_send_was_answered() -> None:
    answers = [command for command in recorded() if "queueOffset" in command.ext_fields]
    for answer, end in zip(answers, of_code(37), strict=False):
        assert answer.ext_fields["queueOffset"] == end.ext_fields["tranStateTableOffset"]
        assert int(answer.ext_fields["msgId"][-16:], 16) == int(end.ext_fields["commitLogOffset"])


def test_the_first_place_is_kept_however_often_it_is_put_off(stored: list[StoredMessage]) -> None:
    half = halves_in(stored)[5]
    once = decode_message(bytes_of(put_off(half, store_host=half.store_host_raw), halves_in(stored)[9]))
    twice = decode_message(bytes_of(put_off(once, store_host=half.store_host_raw), halves_in(stored)[12]))
    assert (number_property(once, "TRAN_PREPARED_QUEUE_OFFSET"), once.queue_offset) == (5, 9)
    assert number_property(twice, "TRAN_PREPARED_QUEUE_OFFSET") == 5


@pytest.mark.parametrize(
    ("body", "offsets"),
    [(b"17", [17]), (b"1,2,3,", [1, 2, 3]), (b"", []), (b"-1", []), (b"9" * 30, []), (b"1, 2", [1])],
)
def test_a_mark_may_be_of_several_or_of_none(stored: list[StoredMessage], body: bytes, offsets: list[int]) -> None:
    """RocketMQ 5 gathers marks."""
    mark = next(message for message in stored if message.topic == OP_TOPIC)
    record = removal_mark(0, store_host=mark.store_host_raw, born_timestamp_ms=0)
    other = record._replace(body=body, size=record.size - 1 + len(body), crc=crc32(body) & 0x7FFFFFFF)
    assert mark_in(memoryview(bytes_of(other, mark))).half_offsets == offsets
    assert mark_in(memoryview(bytes_of(other._replace(crc=1), mark))).half_offsets == []


def test_a_mark_may_be_of_hosts_with_long_addresses(stored: list[StoredMessage]) -> None:
    mark = next(message for message in stored if message.topic == OP_TOPIC)
    record = removal_mark(4711, store_host=bytes(15) + b"\x01" + mark.store_host_raw[4:], born_timestamp_ms=0)
    assert len(record.born_host_raw) == 20
    assert mark_in(memoryview(bytes_of(record, mark))) == (mark.queue_offset, [4711], mark.physical_offset)


def test_what_is_no_half_message_belongs_nowhere(stored: list[StoredMessage]) -> None:
    mark = next(message for message in stored if message.topic == OP_TOPIC)
    with pytest.raises(RemoteProtocolError, match="where it belongs"):
        committed(mark, store_host=mark.store_host_raw)


def test_properties_are_set_once() -> None:
    sent = b"TAGS\x01a\x02REAL_TOPIC\x01mine\x02broken\x02TRANSACTION_CHECK_TIMES\x015\x02\xff\x01\xfe"
    raw = half_properties(sent, topic="t", queue_id=3)
    assert raw == b"TAGS\x01a\x02REAL_TOPIC\x01t\x02\xff\x01\xfe\x02REAL_QID\x013"
    assert parse_properties(raw)["REAL_TOPIC"] == "t"


def test_a_copy_has_the_key_of_what_it_was_made_of(stored: list[StoredMessage]) -> None:
    """Also where the unique key holds a NUL character, which no copy has."""
    half = halves_in(stored)[min(halves_in(stored))]
    odd = replace(half, properties_raw=half.properties_raw + b"\x02UNIQ_KEY\x01a\0b")
    copy = decode_message(memoryview(bytes_of(put_off(odd, store_host=bytes(8)), odd)))
    assert b"a b" in copy.properties_raw
    assert key_of(copy) == key_of(odd) is not None


PLACED = {"UNIQ_KEY": "K", "PGROUP": "ab", "REAL_TOPIC": "cd", "REAL_QID": "1"}


def with_properties(half: StoredMessage, **properties: str) -> StoredMessage:
    raw = "\x02".join(f"{name}\x01{value}" for name, value in (PLACED | properties).items())
    return replace(half, properties_raw=raw.encode())


def test_each_half_message_has_a_key_of_its_own(stored: list[StoredMessage]) -> None:
    """One message object sent again, to two topics or by two groups, is two: the end of one would be that of both."""
    half = with_properties(halves_in(stored)[min(halves_in(stored))])
    others = [
        half,
        with_properties(half, UNIQ_KEY="L"),
        with_properties(half, PGROUP="other"),
        with_properties(half, REAL_TOPIC="other"),
        with_properties(half, REAL_QID="2"),
        with_properties(half, PGROUP="abc", REAL_TOPIC="d"),
        with_properties(half, PGROUP="", REAL_TOPIC="abcd"),
        with_properties(half, REAL_TOPIC="cd1", REAL_QID=""),
        replace(half, born_timestamp_ms=half.born_timestamp_ms + 1),
        replace(half, body_crc=half.body_crc ^ 1),
        replace(half, body=half.body + b"x"),
    ]
    keys = [key_of(one) for one in others]
    assert None not in keys
    assert len(set(keys)) == len(others)
    assert key_of(with_properties(half, PREPARED_QUEUE_OFFSET="7", TRANSACTION_CHECK_TIMES="3")) == keys[0]
    assert key_of(replace(half, queue_offset=half.queue_offset + 1, physical_offset=12345)) == keys[0]
    assert key_of(with_properties(half, UNIQ_KEY="")) is None
    for one in others[:8]:
        assert place_of(memoryview(one.encode())).key == key_of(one), "read with its body, or without"


def test_what_commits_one_half_message_commits_no_other(stored: list[StoredMessage]) -> None:
    half = with_properties(halves_in(stored)[min(halves_in(stored))])
    commit = decode_message(memoryview(bytes_of(committed(half, store_host=bytes(8)), half)))
    assert is_committed_by(half, commit)
    assert is_committed_by(with_properties(half, PREPARED_QUEUE_OFFSET="7", TRANSACTION_CHECK_TIMES="3"), commit)
    for other in (
        with_properties(half, UNIQ_KEY="L"),
        with_properties(half, REAL_TOPIC="other"),
        replace(half, born_timestamp_ms=half.born_timestamp_ms + 1),
        replace(half, body=half.body + b"x"),
    ):
        assert not is_committed_by(other, commit)


def test_a_key_takes_no_room_however_long_it_is(stored: list[StoredMessage]) -> None:
    """A new master remembers 131,072 of them: with keys of 32 KB these were gigabytes."""
    half = halves_in(stored)[min(halves_in(stored))]
    keys = {
        key_of(replace(half, properties_raw=half.properties_raw + b"\x02UNIQ_KEY\x01" + bytes([97 + number]) * 20_000))
        for number in range(3)
    }
    assert [len(key or b"") for key in keys] == [16] * 3
