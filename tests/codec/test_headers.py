"""Typed headers: the recorded ones read as recorded, and bad ones are refused with a reason."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec.headers import (
    Int32,
    Int64,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    PullSysFlag,
    QueryConsumerOffsetRequestHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    decode_header,
    encode_header,
)
from rmqha.codec.host import parse_host
from rmqha.codec.message_id import encode_message_id
from rmqha.codec.remoting import RemotingCommand, SerializeType, decode_frames, encode_ext_fields
from rmqha.codec.send_answers import SendMessageResponseEncoder, decode_send_response
from rmqha.codec.send_headers import (
    SendMessageRequestDecoder,
    SendMessageRequestEncoder,
    SendMessageRequestHeader,
)
from rmqha.errors import RemoteProtocolError

GOLDEN = Path(__file__).parent.parent / "golden" / "remoting"


def recorded(session: str, **wanted: Any) -> list[tuple[RemotingCommand, dict[str, Any]]]:
    frames = []
    for line in (GOLDEN / session / "frames.jsonl").read_text().splitlines():
        frame = json.loads(line)
        if all(frame.get(name) == value for name, value in wanted.items()):
            (connection,) = (GOLDEN / session).glob(f"conn-{frame['conn']}-*")
            raw = (connection / f"{frame['dir']}.bin").read_bytes()[frame["at"] : frame["at"] + frame["length"]]
            frames.append((decode_frames(raw)[0][0], frame))
    assert frames
    return frames


@pytest.mark.parametrize("session", ["push-consumer", "push-consumer-binary"])
def test_a_recorded_pull_request(session: str) -> None:
    command, frame = recorded(session, code=11)[0]
    header = decode_header(PullMessageRequestHeader, command)
    assert header.consumer_group == "CG_WORKERS_PUSH"
    assert header.topic == "TopicTest"
    assert header.max_msg_nums == 32
    assert header.sys_flag == PullSysFlag.SUSPEND
    assert header.suspend_timeout_millis == 15000
    assert header.subscription is None
    assert encode_header(header) == frame["extFields"]


def test_recorded_headers_of_other_kinds_are_written_as_they_were_read() -> None:
    for session, code, kind in (
        ("push-consumer", 15, UpdateConsumerOffsetRequestHeader),
        ("push-consumer", 14, QueryConsumerOffsetRequestHeader),
        ("push-consumer", 35, UnregisterClientRequestHeader),
    ):
        command, frame = recorded(session, code=code)[0]
        fields = {name: value for name, value in frame["extFields"].items() if name != "bname"}
        assert encode_header(decode_header(kind, command)) == fields


@dataclass(frozen=True, slots=True)
class EveryKind:
    """A header with each kind of field there is."""

    name: str
    offset: Int64
    queue_id: Int32
    client_i_d: str | None = None
    max_times: Int32 | None = None
    in_order: bool = False
    sub_version: Int64 = 5


def test_every_kind_of_field_is_written_as_it_is_read() -> None:
    whole = {
        "name": "n",
        "offset": str(-(1 << 63)),
        "queueId": "7",
        "clientID": "c",
        "maxTimes": "-1",
        "inOrder": "true",
    }
    header = decode_header(EveryKind, RemotingCommand(0, ext_fields={**whole, "unknown": "x"}))
    assert header == EveryKind("n", -(1 << 63), 7, "c", -1, in_order=True)
    assert encode_header(header) == {**whole, "subVersion": "5"}
    least = decode_header(EveryKind, RemotingCommand(0, ext_fields={"name": "", "offset": "0", "queueId": "0"}))
    assert least == EveryKind("", 0, 0)
    assert encode_header(least) == {"name": "", "offset": "0", "queueId": "0", "inOrder": "false", "subVersion": "5"}
    with pytest.raises(RemoteProtocolError, match="maxTimes is no int32"):
        decode_header(EveryKind, RemotingCommand(0, ext_fields={**whole, "maxTimes": str(1 << 31)}))


def test_trap_1_header_values_are_written_as_text() -> None:
    """Go's client cannot read a frame with a number or a truth value among them, and waits until its time is over."""
    fields = encode_header(EveryKind("n", 1, 2, "c", 3, in_order=True))
    header = json.loads(RemotingCommand(0, ext_fields=fields).encode()[8:])
    assert {type(value) for value in header["extFields"].values()} == {str}
    assert (header["extFields"]["offset"], header["extFields"]["inOrder"]) == ("1", "true")
    sent = SendMessageResponseEncoder().encode(SerializeType.JSON, 1, 0, "id", 2, 3)
    assert {type(value) for value in json.loads(sent[8:])["extFields"].values()} == {str}


def test_trap_42_answers_name_a_language_that_every_client_knows() -> None:
    """By its name: a number that Java does not know costs the connection, and Python's client needs the member."""
    encoder = SendMessageResponseEncoder()
    answers = [
        RemotingCommand(0, flag=1).encode(),
        encoder.encode_success(SerializeType.JSON, 1, 0, 0, 0),
        encoder.encode(SerializeType.JSON, 1, 12, "id", 0, 0),
    ]
    assert [json.loads(answer[8:])["language"] for answer in answers] == ["JAVA"] * 3
    binary = [
        RemotingCommand(0, flag=1, serialize=SerializeType.ROCKETMQ).encode(),
        encoder.encode_success(SerializeType.ROCKETMQ, 1, 0, 0, 0),
    ]
    assert [answer[10] for answer in binary] == [0, 0]


def test_an_absent_field_and_a_number_that_is_none_are_named() -> None:
    fields = encode_header(PullMessageResponseHeader(0, 1, 2, 3))
    del fields["minOffset"]
    with pytest.raises(RemoteProtocolError, match="minOffset is absent"):
        decode_header(PullMessageResponseHeader, RemotingCommand(0, ext_fields=fields))
    for text in ("x", "9" * 19, "1" * 5000):
        with pytest.raises(RemoteProtocolError, match="minOffset is no"):
            decode_header(PullMessageResponseHeader, RemotingCommand(0, ext_fields={**fields, "minOffset": text}))


@pytest.mark.parametrize("session", ["producer-json", "producer-binary"])
def test_recorded_sends(session: str) -> None:
    decoder = SendMessageRequestDecoder()
    for _ in range(3):  # the second and third round find the repeating parts remembered
        for command, frame in recorded(session, code=310):
            fields = frame["extFields"]
            assert decoder.decode(command) == SendMessageRequestHeader(
                fields["a"],
                fields["b"],
                fields["c"],
                int(fields["d"]),
                int(fields["e"]),
                int(fields["f"]),
                int(fields["g"]),
                int(fields["h"]),
                fields["i"].encode(),
                int(fields["j"]),
                fields["k"] == "true",
                None,
                fields["m"] == "true",
                fields["n"],
            )


def test_the_first_version_of_the_header_reads_alike() -> None:
    names = [
        "producerGroup",
        "topic",
        "defaultTopic",
        "defaultTopicQueueNums",
        "queueId",
        "sysFlag",
        "bornTimestamp",
        "flag",
    ]
    fields = dict(zip(names, ["g", "t", "TBW102", "4", "1", "0", "1700000000000", "7"], strict=True))
    header = SendMessageRequestDecoder().decode(RemotingCommand(10, ext_fields=fields))
    assert header[:8] == ("g", "t", "TBW102", 4, 1, 0, 1700000000000, 7)
    assert header[8:] == (b"", 0, False, None, False, None)


@pytest.mark.parametrize(("text", "batch"), [("1", True), ("true", True), ("0", False), ("false", False), ("", False)])
def test_what_the_cpp_client_says_is_a_batch_is_one(text: str, batch: bool) -> None:
    """It sends code 10, with 1 and 0 for its booleans."""
    names = ["producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag"]
    fields = dict(zip(names, ["g", "t", "TBW102", "4", "1", "0"], strict=True))
    fields |= {"bornTimestamp": "1700000000000", "flag": "0", "unitMode": "0", "batch": text}
    assert SendMessageRequestDecoder().decode(RemotingCommand(10, ext_fields=fields)).batch is batch


@pytest.mark.parametrize("session", ["producer-json", "producer-binary"])
def test_answers_are_the_recorded_ones_byte_for_byte(session: str) -> None:
    encoder = SendMessageResponseEncoder()
    for command, frame in recorded(session, answersTo="SEND_MESSAGE_V2"):
        fields = frame["extFields"]
        raw = encoder.encode(
            command.serialize,
            command.opaque,
            frame["code"],
            msg_id=fields["msgId"],
            queue_id=int(fields["queueId"]),
            queue_offset=int(fields["queueOffset"]),
        )
        assert raw == command.encode()
        assert decode_send_response(command).msg_id == fields["msgId"]


@pytest.mark.parametrize("serialize", SerializeType)
@pytest.mark.parametrize("host", ["127.0.0.1:10911", "[fe80::25]:65535"])
def test_a_success_is_written_as_any_other_answer(serialize: SerializeType, host: str) -> None:
    host_raw = parse_host(host)
    encoder = SendMessageResponseEncoder(host_raw, region='100 % "here"')
    for opaque in (0, 7, -1, 123_456_789, 2**31 - 1, -(2**31)):
        for offset, queue_id, queue_offset in ((0, 0, 0), (1 << 30, 7, 25), (2**63 - 1, 2**31 - 1, 2**62)):
            assert encoder.message_id(offset) == encode_message_id(host_raw, offset)
            assert encoder.encode_success(serialize, opaque, offset, queue_id, queue_offset) == encoder.encode(
                serialize, opaque, 0, encode_message_id(host_raw, offset), queue_id, queue_offset
            )


@pytest.mark.parametrize("serialize", SerializeType)
def test_an_answer_with_a_transaction(serialize: SerializeType) -> None:
    raw = SendMessageResponseEncoder().encode(
        serialize, 9, 0, msg_id="A,B", queue_id=0, queue_offset=5, transaction_id='x"'
    )
    (command,), _ = decode_frames(raw)
    assert command.opaque == 9
    assert decode_send_response(command) == ("A,B", 0, 5, 'x"')


@pytest.mark.parametrize("serialize", SerializeType)
def test_names_of_another_code_stay_unknown_however_often_they_came(serialize: SerializeType) -> None:
    decoder = SendMessageRequestDecoder()
    names = dict.fromkeys("abcdefghijkm", "1") | {"g": "1700000000000", "k": "false", "m": "false"}

    def decode(code: int) -> SendMessageRequestHeader:
        request = RemotingCommand(code, 1, ext_fields=names, serialize=serialize).encode()
        return decoder.decode(decode_frames(request)[0][0])

    assert [decode(310).topic for _ in range(4)] == ["1"] * 4
    with pytest.raises(RemoteProtocolError, match="required header field"):
        decode(10)


def encode_send(**changes: Any) -> RemotingCommand:
    arguments = {
        "opaque": 1,
        "queue_id": 2,
        "sys_flag": 1,
        "flag": -3,
        "properties": b"k\1v",
        "born_timestamp_ms": 1795176270095,
    }
    encoder = SendMessageRequestEncoder("PG", default_topic="TBW102", default_topic_queue_nums=4)
    (command,), _ = decode_frames(encoder.encode("T", b"body", **{**arguments, **changes}))
    return command


@pytest.mark.parametrize("batch", [False, True])
def test_what_our_producer_encodes_decodes_the_same_at_first_and_when_remembered(batch: bool) -> None:
    decoder = SendMessageRequestDecoder()
    for flag in (0, -3, 2147483647):
        command = encode_send(batch=batch, flag=flag)
        assert (command.code, command.body) == (320 if batch else 310, b"body")
        expected = ("PG", "T", "TBW102", 4, 2, 1, 1795176270095, flag, b"k\1v", 0, False, None, batch, None)
        assert decoder.decode(command) == expected
    assert encode_send(oneway=True).is_oneway


def test_a_group_that_looks_like_a_field_misleads_nobody() -> None:
    """The key of field g, and what follows it, inside the value of field a."""
    trap = "\0\1g\0\0\0\x0d1795176270095\0\1h\0\0\0\0019\0\1i\0\0\0\1z"
    encoder = SendMessageRequestEncoder(trap, default_topic="D", default_topic_queue_nums=4)
    raw = encoder.encode(
        "T", b"", opaque=1, queue_id=2, sys_flag=1, flag=5, properties=b"p", born_timestamp_ms=1795176270001
    )
    decoder = SendMessageRequestDecoder()
    for _ in range(3):
        header = decoder.decode(decode_frames(raw)[0][0])
        assert (header.producer_group, header.topic, header.flag, header.properties) == (trap, "T", 5, b"p")


def test_a_producer_remembers_nothing_of_a_header_that_differs_in_the_next() -> None:
    encoder = SendMessageRequestEncoder("PG", default_topic="D", default_topic_queue_nums=4)
    decoder = SendMessageRequestDecoder()
    for topic, queue_id, sys_flag in [("T", 0, 1), ("T", 0, 0), ("T", 1, 0), ("S", 0, 0), ("T", 0, 1)]:
        frame = encoder.encode(
            topic, b"", opaque=1, queue_id=queue_id, sys_flag=sys_flag, flag=0, properties=b"", born_timestamp_ms=10**12
        )
        header = decoder.decode(decode_frames(frame)[0][0])
        assert (header.topic, header.queue_id, header.sys_flag) == (topic, queue_id, sys_flag)


@pytest.mark.parametrize(("name", "value", "field"), [("g", "5", 6), ("h", "7", 7), ("i", "p", 8)])
def test_of_a_field_that_stands_twice_the_last_counts_each_time(name: str, value: str, field: int) -> None:
    decoder = SendMessageRequestDecoder()
    for _ in range(4):
        decoder.decode(encode_send(flag=0))
        command = encode_send(flag=0)
        command.ext_raw = (command.ext_raw or b"") + encode_ext_fields({name: value})
        assert decoder.decode(command)[field] == (value.encode() if name == "i" else int(value))


def test_properties_that_the_end_cuts_short_are_refused_each_time() -> None:
    decoder = SendMessageRequestDecoder()
    whole = encode_send(properties=b"k\1value", flag=0).ext_raw or b""
    end = whole.index(b"value") + len(b"value")
    for raw, is_whole in [(whole[:end], True), (whole[: end - 1], False)] * 3:
        command = encode_send()
        command.ext_raw = raw
        if is_whole:
            assert decoder.decode(command).properties == b"k\1value"
        else:
            with pytest.raises(RemoteProtocolError):
                decoder.decode(command)


def test_properties_are_stored_as_valid_text() -> None:
    decoder = SendMessageRequestDecoder()
    for _ in range(3):
        assert decoder.decode(encode_send(properties=b"k\1\xff")).properties == "k\1\ufffd".encode()


@given(st.data())
def test_damaged_send_headers_raise_only_our_error_and_leave_the_memory_sound(data: st.DataObject) -> None:
    decoder = SendMessageRequestDecoder()
    sound = encode_send()
    for _ in range(3):
        expected = decoder.decode(sound)
    raw = bytearray(sound.ext_raw or b"")
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=4)):
        raw[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    damaged = RemotingCommand(310, serialize=1, ext_raw=bytes(raw[:cut]))
    fresh: object
    try:
        fresh = SendMessageRequestDecoder().decode(RemotingCommand(310, serialize=1, ext_raw=bytes(raw[:cut])))
    except RemoteProtocolError:
        fresh = RemoteProtocolError
    for _ in range(2):
        try:
            assert decoder.decode(damaged) == fresh
        except RemoteProtocolError:
            assert fresh is RemoteProtocolError
    assert decoder.decode(sound) == expected


def test_strangers_cannot_fill_the_memory() -> None:
    decoder = SendMessageRequestDecoder()
    for n in range(1500):
        for serialize in SerializeType:
            fields = {**encode_send().ext_fields, "a": f"group-{n}", "b": "T" * (1 + n % 3 * 600), "n": str(n)}
            request, _ = decode_frames(RemotingCommand(310, ext_fields=fields, serialize=serialize).encode())
            assert decoder.decode(request[0]).producer_group == f"group-{n}"
    kept = [*decoder.heads, *decoder.tails]
    assert 0 < len(kept) <= 2048
    assert sum(len(str(key)) for key in kept) < 2048 * 1200


def test_an_answer_out_of_the_ordinary_is_read_all_the_same() -> None:
    fields = {"queueOffset": "7", "msgId": "A" * 32, "queueId": "1", "transactionId": "t"}
    usual = {"msgId": "A" * 32, "queueId": "1", "queueOffset": "7", "TRACE_ON": "true", "MSG_REGION": "DefaultRegion"}
    for serialize in SerializeType:
        for named, transaction_id in ((fields, "t"), (usual, None), ({**usual, "transactionId": "t"}, "t")):
            (command,), _ = decode_frames(RemotingCommand(0, ext_fields=named, serialize=serialize).encode())
            assert decode_send_response(command) == ("A" * 32, 1, 7, transaction_id)


@pytest.mark.parametrize("size", [-1, -6, -7, -8, -0x80000000])
def test_a_value_of_a_negative_size_leads_nowhere_back(size: int) -> None:
    raw = b"\0\1k" + size.to_bytes(4, signed=True) + b"value"
    with pytest.raises(RemoteProtocolError, match="leaves the header"):
        RemotingCommand(10, serialize=SerializeType.ROCKETMQ, ext_raw=raw).ext_fields  # noqa: B018 - decoded here
