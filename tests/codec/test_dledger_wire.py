"""DLedger's messages against those that its own classes and fastjson wrote (tests/interop/Wire.java)."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.codec.dledger_json import decode_bytes
from rmqha.codec.dledger_usual import decode_append, decode_append_answer, encode_append, encode_append_answer
from rmqha.codec.dledger_wire import (
    AppendEntryRequest,
    AppendEntryResponse,
    Base,
    DLedgerRequestCode,
    GetEntriesRequest,
    GetEntriesResponse,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    MemberStatus,
    MetadataRequest,
    MetadataResponse,
    decode,
    encode,
    refuse,
)
from rmqha.codec.remoting import RemotingCommand, decode_frames
from rmqha.dledger.push_entry import PushEntryRequest, PushEntryResponse, PushType
from rmqha.dledger.push_wire import decode_push, decode_push_answer, encode_push, encode_push_answer
from rmqha.dledger.vote import HeartBeatRequest, HeartBeatResponse, VoteRequest, VoteResponse, VoteResult
from rmqha.errors import RemoteProtocolError

GOLDEN = Path(__file__).parent.parent / "golden" / "dledger" / "wire.txt"
FRAMES = {
    (name, header): bytes.fromhex(frame) for name, header, frame in map(str.split, GOLDEN.read_text().splitlines())
}
HEADERS = ("JSON", "ROCKETMQ")


def entry(index: int) -> DLedgerEntry:
    return DLedgerEntry(f"hello{index}".encode(), index=index, term=1, pos=54 * index, size=54)


GROUP = Base("g1")
OF_N0 = Base("g1", remote_id="n1", local_id="n0", leader_id="n0")
MESSAGES: dict[str, tuple[Any, Base]] = {
    "METADATA": (MetadataRequest(), Base("g1", remote_id="n1")),
    "METADATA.ok": (MetadataResponse(200, "n0", {"n0": "127.0.0.1:1000", "n1": "127.0.0.1:1001"}), GROUP),
    "APPEND": (AppendEntryRequest(b"hello0"), Base("g1", remote_id="n0")),
    "APPEND.ok": (AppendEntryResponse(200, 1, "n0", 0, 0), GROUP),
    "GET": (GetEntriesRequest(7), Base("g1", remote_id="n0")),
    "GET.ok": (GetEntriesResponse(200, None, (entry(7),)), GROUP),
    "VOTE": (VoteRequest("n0", 1, -1, -1), OF_N0),
    "VOTE.ok": (VoteResponse(VoteResult.ACCEPT, 1), OF_N0),
    "HEART_BEAT": (HeartBeatRequest("n0", 3), OF_N0),
    "HEART_BEAT.ok": (HeartBeatResponse(200), Base()),
    "HEART_BEAT.refused": (HeartBeatResponse(403, 5), Base()),
    "LEADERSHIP_TRANSFER": (LeadershipTransferRequest(2, "n0", "n1"), Base("g1", remote_id="n0")),
    "LEADERSHIP_TRANSFER.take": (LeadershipTransferRequest(2, "n0", "n1", 54), OF_N0),
    "LEADERSHIP_TRANSFER.ok": (LeadershipTransferResponse(200, 3), Base()),
}
PUSHES = {
    "PUSH": PushEntryRequest(PushType.APPEND, 1, "n0", 0, (entry(1),)),
    "PUSH.batch": PushEntryRequest(PushType.APPEND, 1, "n0", 1, (entry(2), entry(3))),
    "PUSH.commit": PushEntryRequest(PushType.COMMIT, 1, "n0", 5),
    "PUSH.compare": PushEntryRequest(PushType.COMPARE, 1, "n0", 0, (entry(1),)),
    "PUSH.truncate": PushEntryRequest(PushType.TRUNCATE, 1, "n0", 0, (entry(1),)),
}
PUSH_ANSWERS = {
    "PUSH.ok": PushEntryResponse(200, 1, 1, 1, 0, 1),
    "PUSH.commit.ok": PushEntryResponse(200, 1, -1, 0, 0, 5),
}
REFUSED = {"APPEND.refused": (AppendEntryResponse, 404, "n2"), "GET.refused": (GetEntriesResponse, 410, "n0")}


def recorded(name: str, header: str = "JSON") -> RemotingCommand:
    [command], size = decode_frames(FRAMES[name, header])
    assert size == len(FRAMES[name, header])
    return command


def test_every_recorded_message_is_tried() -> None:
    assert {name for name, _ in FRAMES} == MESSAGES.keys() | PUSHES.keys() | PUSH_ANSWERS.keys() | REFUSED.keys()


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_is_written_and_read_as_java_does(name: str, header: str) -> None:
    """Seed checklist: protocol classes; group, remoteId, localId, code, leaderId, term, body (spec: dledger §5.5)."""
    message, base = MESSAGES[name]
    body = recorded(name, header).body
    assert encode(message, base).decode() == body.decode()
    read_base, read = decode(type(message), body)
    assert read == message
    assert (read_base.group, read_base.remote_id, read_base.local_id) == (base.group, base.remote_id, base.local_id)


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("name", PUSHES)
def test_a_push_is_written_and_read_as_java_does(name: str, header: str) -> None:
    body = recorded(name, header).body
    assert encode_push(PUSHES[name], group="g1", remote_id="n2").decode() == body.decode()
    assert decode_push(body) == (Base("g1", "n2", "n0", 200, "n0", 1), PUSHES[name])


@pytest.mark.parametrize("name", PUSH_ANSWERS)
def test_the_answer_to_a_push_is_written_and_read_as_java_does(name: str) -> None:
    body = recorded(name).body
    assert encode_push_answer(PUSH_ANSWERS[name], group="g1").decode() == body.decode()
    assert decode_push_answer(body) == decode(PushEntryResponse, body)[1] == PUSH_ANSWERS[name]


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_repeats_what_was_asked_of_whom(name: str) -> None:
    kind, code, leader_id = REFUSED[name]
    base, _ = decode(MetadataRequest, recorded(name.removesuffix(".refused")).body)
    assert refuse(kind, base, code=code, leader_id=leader_id).decode() == recorded(name).body.decode()


@pytest.mark.parametrize("code", DLedgerRequestCode)
def test_a_code_wraps_in_a_binary_header(code: DLedgerRequestCode) -> None:
    if code is DLedgerRequestCode.PULL:
        return  # no class of Java's sends it
    assert recorded(code.name, "JSON").code == code
    assert recorded(code.name, "ROCKETMQ").code == code.in_binary_header


def test_status_travels_beside_what_java_reads() -> None:
    told = MetadataResponse(200, None, None, MemberStatus("LEADER", 3, 0, 9, 8, 7, write_error="EIO"))
    body = encode(told, GROUP)
    assert decode(MetadataResponse, body)[1] == told
    assert json.loads(body)["rmqhaStatus"] == {
        "role": "LEADER", "term": 3, "beginIndex": 0, "endIndex": 9, "committedIndex": 8, "flushedIndex": 7,
        "writeError": "EIO",
    }  # fmt: skip


def test_absent_keys_leave_their_defaults_and_unknown_ones_are_passed_over() -> None:
    raw = b'{"group":null,"news":[{"a":1.5}],"peers":{}}'
    assert decode(MetadataResponse, raw) == (Base(), MetadataResponse(peers={}))
    assert decode_push(b"{}") == (Base(), PushEntryRequest(PushType.APPEND, -1, "", -1))
    assert decode(VoteRequest, b"{}")[1] == VoteRequest("", -1, -1, -1)


@pytest.mark.parametrize("blank", [" ", "\n", ""])
def test_blanks_around_a_message_are_passed_over(blank: str) -> None:
    assert decode(HeartBeatRequest, f'{blank}{{"term":3}}{blank}'.encode())[1] == HeartBeatRequest("", 3)


def test_what_repeats_itself_is_read_once_and_what_is_long_is_not_kept() -> None:
    name, many = "n" * 40, "n" * 1024
    for leader_id, is_kept in ((name, True), (many, False)):
        body = encode(HeartBeatRequest(leader_id, 3), Base("g1"))
        first, again = decode(HeartBeatRequest, body), decode(HeartBeatRequest, body)
        assert first == again == (Base("g1", leader_id=leader_id, term=3), HeartBeatRequest(leader_id, 3))
        assert (first[1] is again[1]) == is_kept


@pytest.mark.parametrize(("text", "result"), [('"REJECT_ALREADY_VOTED"', 5), ("5", 5), ('"NEWER"', 0), ("99", 0)])
def test_an_enum_is_read_by_name_and_by_ordinal(text: str, result: int) -> None:
    assert decode(VoteResponse, f'{{"voteResult":{text}}}'.encode())[1].result is VoteResult(result)


def test_a_push_is_known_by_name_and_by_ordinal_and_never_guessed() -> None:
    assert decode_push(b'{"type":1}')[1].type is PushType.COMMIT
    for unknown in ('"INSTALL_SNAPSHOT"', "4", "-1", "[]", '""'):
        with pytest.raises(RemoteProtocolError, match="no push of type"):
            decode_push(f'{{"type":{unknown}}}'.encode())


@given(st.binary(max_size=100))
def test_bytes_travel_as_base64_and_as_numbers(data: bytes) -> None:
    [_base, request] = decode(AppendEntryRequest, encode(AppendEntryRequest(data), Base()))
    assert request.body == data
    assert decode_bytes([byte - 256 if byte > 127 else byte for byte in data]) == data


@pytest.mark.parametrize(
    "value", ["QQ", "QQ=", "Q===", "====", "Q-==", "_-_-", "QQ==QQ==", "QUJD\n", "Q Q=", "é", [128], [-129], ["1"], 1]
)
def test_what_is_no_base64_is_refused(value: object) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_bytes(value)


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"null", b"[]", b'"a"', b"{", b'{"a":}', b'{"a"', b"{}x", b"{}{}", b'{"a":NaN}', b'{"a":1e999}',
        b"\xff", b'{"term":1,"term":2}',
        b'{"term":9223372036854775808}', b'{"term":' + b"9" * 5000 + b"}", b'{"term":1.0}', b'{"term":"1"}',
        b'{"term":true}', b'{"code":2147483648}', b'{"group":1}', b'{"group":"\\ud800"}', b'{"beginIndex":[]}',
        b'{"entries":{}}', b'{"entries":[1]}', b'{"entries":[{}]}', b'{"entries":[{"body":"","index":"1"}]}',
        b'{"entries":[{"body":"","magic":2147483648}]}', b'{"a":' * 100_000, b"[" * 200_000, b'"",' * 600_000,
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused_in_words(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(GetEntriesResponse, raw.replace(b"beginIndex", b"code"))
    with pytest.raises(RemoteProtocolError):
        decode(GetEntriesRequest, raw.replace(b"entries", b"beginIndex"))


@pytest.mark.parametrize("part", [b'"%d":1.3e5', b'"%d":{}', b'"x%d"'])
def test_what_would_take_long_to_read_is_refused(part: bytes) -> None:
    """4 MB of names and numbers held a member, and the broker on it, up for 0.2 s; one after the other for good."""
    parts = b",".join(part % number for number in range(100_000))
    raw = b"{%b}" % parts if b":" in part else b'{"x":[%b]}' % parts
    with pytest.raises(RemoteProtocolError, match="more parts"):
        decode(GetEntriesRequest, raw)


def test_a_large_batch_in_an_unusual_form_is_read() -> None:
    entries = b",".join(b'{"body":"","index":%d,"magic":1,"pos":0,"size":48,"term":1}' % n for n in range(10_000))
    assert len(decode_push(b'{"batchEntry":[%b]}' % entries)[1].entries) == 10_000


def test_a_batch_is_consecutive() -> None:
    body = encode_push(PushEntryRequest(PushType.APPEND, 1, "n0", 0, (entry(2), entry(4))), group="g", remote_id="n1")
    with pytest.raises(RemoteProtocolError, match="entry 4 where 3 belongs"):
        decode_push(body)


@pytest.mark.parametrize("raw", [b'{"entry":[]}', b'{"batchEntry":{"a":1}}', b'{"commitIndex":"1"}', b"[]"])
def test_what_is_no_push_is_refused_in_words(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_push(raw)


def test_names_are_escaped_in_the_templates() -> None:
    push = PushEntryRequest(PushType.COMMIT, 1, 'n"0\n', 5)
    base, read = decode_push(encode_push(push, group='g"\\', remote_id="ü"))
    assert (read, base.group, base.remote_id) == (push, 'g"\\', "ü")


def outcome(body: bytes) -> tuple[Base, PushEntryRequest] | None:
    try:
        return decode_push(body)
    except RemoteProtocolError:
        return None


ENTRIES = st.builds(
    DLedgerEntry, st.binary(max_size=9), st.just(7), *[st.integers(-(1 << 31), (1 << 31) - 1) for _ in range(4)]
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


@given(st.lists(ENTRIES, min_size=1, max_size=3), st.integers(-(1 << 63), (1 << 63) - 1), NAMES, NAMES)
def test_any_push_comes_back(entries: list[DLedgerEntry], term: int, leader_id: str, group: str) -> None:
    for index, one in enumerate(entries):
        one.index = 7 + index
    push = PushEntryRequest(PushType.APPEND, term, leader_id, -1, tuple(entries))
    base, read = decode_push(encode_push(push, group=group, remote_id="n1"))
    assert (read, base) == (push, Base(group, "n1", leader_id, 200, leader_id, term))


@given(st.sampled_from(["PUSH", "PUSH.batch"]), st.integers(0, 999), st.sampled_from(b'0-9a"\\{}[],:=/ _'))
def test_the_usual_form_means_what_json_means(name: str, at: int, byte: int) -> None:
    """A blank in front makes a body unusual, and changes nothing of what it says."""
    body = bytearray(recorded(name).body)
    body[at % len(body)] = byte
    assert outcome(bytes(body)) == outcome(b" " + bytes(body))


@given(st.integers(0, 999), st.sampled_from(b'0-9a"\\{}[],:=/ _'))
def test_the_usual_append_means_what_json_means(at: int, byte: int) -> None:
    def read(body: bytes) -> object:
        try:
            return decode_append(body)
        except RemoteProtocolError:
            return None

    body = bytearray(recorded("APPEND").body)
    body[at % len(body)] = byte
    assert read(bytes(body)) == read(b" " + bytes(body))


@pytest.mark.parametrize("name", ["APPEND.ok", "APPEND.refused"])
def test_the_answer_to_an_append_is_written_and_read_as_java_does(name: str) -> None:
    body = recorded(name).body
    response = decode_append_answer(body)
    assert response == decode(AppendEntryResponse, body)[1]
    if name == "APPEND.ok":
        assert encode_append_answer(response, group="g1").decode() == body.decode()
    nobody = AppendEntryResponse(503, 1)
    assert encode_append_answer(nobody, group="g1") == encode(nobody, GROUP)


def test_an_append_is_written_as_java_does() -> None:
    request, base = MESSAGES["APPEND"]
    assert encode_append(request, base).decode() == recorded("APPEND").body.decode()
    assert encode_append(AppendEntryRequest(), base) == encode(AppendEntryRequest(), base)
