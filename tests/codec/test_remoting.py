"""Frames recorded from Java peers, every chopping of them, and hostile bytes."""

import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec.codes import LanguageCode
from rmqha.codec.json_header import FIELDS_MAX
from rmqha.codec.remoting import (
    FRAME_SIZE_MAX,
    RemotingCommand,
    SerializeType,
    decode_ext_fields,
    decode_frames,
    encode_binary_frame,
)
from rmqha.errors import LocalProtocolError, RemoteProtocolError

GOLDEN = Path(__file__).parent.parent / "golden" / "remoting"
SESSIONS = sorted(path.name for path in GOLDEN.iterdir())


def frames_of(session: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / session / "frames.jsonl").read_text().splitlines()]


def stream_of(session: str, frame: dict[str, Any]) -> bytes:
    (connection,) = (GOLDEN / session).glob(f"conn-{frame['conn']}-*")
    return (connection / f"{frame['dir']}.bin").read_bytes()


@pytest.mark.parametrize("session", SESSIONS)
def test_every_recorded_frame_decodes_as_the_reference_decoded_it(session: str) -> None:
    for expected in frames_of(session):
        raw = stream_of(session, expected)[expected["at"] : expected["at"] + expected["length"]]
        (command,), taken = decode_frames(raw)
        assert taken == command.size == expected["length"]
        assert command.code == expected["code"]
        assert command.flag == expected["flag"]
        assert command.opaque == expected["opaque"]
        assert command.version == expected["version"]
        assert command.language.name == expected["language"]
        assert command.remark == expected.get("remark")
        assert command.ext_fields == expected.get("extFields", {})
        assert SerializeType(command.serialize).name == expected["serialize"]
        assert len(command.body) == expected["bodyLength"]
        if command.body:
            assert hashlib.sha256(command.body).hexdigest() == expected["bodySha256"]


@pytest.mark.parametrize("session", SESSIONS)
def test_every_recorded_frame_is_encoded_again_byte_for_byte(session: str) -> None:
    for expected in frames_of(session):
        raw = stream_of(session, expected)[expected["at"] : expected["at"] + expected["length"]]
        (command,), _ = decode_frames(raw)
        assert command.encode() == raw
        assert command.ext_fields is not None  # now decoded: encoding must not depend on the kept raw pairs
        assert command.encode() == raw


def test_the_route_request_of_the_specification() -> None:
    """Vector of spec: remoting §7."""
    vector = "00000025010000210069000199000000010000000000000000000000" + "0c0005746f7069630000000154"
    request = RemotingCommand(105, 1, ext_fields={"topic": "T"}, serialize=SerializeType.ROCKETMQ)
    assert request.encode().hex() == vector


def test_a_number_names_the_language_and_numbers_serve_as_fields() -> None:
    header = b'{"code":1,"language":3,"extFields":{"a":5,"b":true,"c":null,"d":"x"},"unknown":[1]}'
    frame = (4 + len(header)).to_bytes(4) + len(header).to_bytes(4) + header
    (command,), _ = decode_frames(frame)
    assert command.language is LanguageCode.PYTHON
    assert command.ext_fields == {"a": "5", "b": "true", "d": "x"}
    assert command.opaque == command.flag == 0


def test_the_last_of_equal_keys_counts_and_what_is_no_text_is_replaced() -> None:
    assert decode_ext_fields(b"\0\1\xff\0\0\0\1x") == {"\ufffd": "x"}
    pairs = b"\0\1a\0\0\0\1x" + b"\0\1a\0\0\0\1y" + b"\0\1n\0\0\0\0" + b"\0\0\0\0\0\1v"
    assert decode_ext_fields(pairs) == {"a": "y"}


def test_a_header_has_only_so_many_fields() -> None:
    """Each takes ten times its bytes in memory, once it is decoded."""
    fields = dict.fromkeys(map(str, range(FIELDS_MAX)), "x")
    more = fields | {"more": "x"}
    for serialize in SerializeType:
        (command,), _ = decode_frames(RemotingCommand(1, ext_fields=fields, serialize=serialize).encode())
        assert command.ext_fields == fields
        with pytest.raises(RemoteProtocolError, match="1025 fields"):
            decode_frames(RemotingCommand(1, ext_fields=more, serialize=serialize).encode())[0][0].ext_fields  # noqa: B018
    header = json.dumps({"code": 1, "extFields": more}).encode()
    with pytest.raises(RemoteProtocolError, match="1025 fields"):
        decode_frames((4 + len(header)).to_bytes(4) + len(header).to_bytes(4) + header)


def test_an_unknown_language_is_other() -> None:
    frame = RemotingCommand(1, serialize=SerializeType.ROCKETMQ).encode()
    (command,), _ = decode_frames(frame[:10] + b"\xc8" + frame[11:])
    assert command.language is LanguageCode.OTHER


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"\xff\xff\xff\xff\0\0\0\0", "frame of -1 bytes"),
        (b"\0\0\0\3\0\0\0\0", "frame of 3 bytes"),
        (b"\1\0\0\0\0\0\0\0", "frame of 16777216 bytes"),
        (b"\0\0\0\4\0\0\0\1", "header of 1 bytes"),
        (b"\0\x10\0\0\0\5\0\0", "header of 327680 bytes"),
        (b"\0\0\0\4\2\0\0\0", "serialize type 2"),
        (b"\0\0\0\6\0\0\0\2{]", "does not parse"),
        (b"\0\0\0\6\0\0\0\2[]", "no object"),
        (b"\0\0\0\x0d\0\0\0\x09" + b'{"code":]', "does not parse"),
        (b"\0\0\0\x10\0\0\0\x0c" + b'{"code":1.5}', "is no int32"),
        (b"\0\0\0\x19\0\0\0\x15" + b'{"remark":"x\\uD800y"}', "does not parse: .*surrogates not allowed"),
        (b"\0\0\0\x15\0\0\0\x11" + b'{"extFields":[1]}', "extFields"),
        (b"\0\0\0\5\1\0\0\1x", "at least 21"),
        (b"\0\0\0\x19\1\0\0\x15" + bytes(13) + b"\0\0\0\1" + bytes(4), "remark of 1 bytes"),
        (b"\0\0\0\x19\1\0\0\x15" + bytes(13) + b"\xff\xff\xff\xff" + bytes(4), "remark of -1 bytes"),
        (b"\0\0\0\x19\1\0\0\x15" + bytes(17) + b"\0\0\0\1", "fields of 1 bytes"),
    ],
)
def test_a_stream_that_cannot_be_followed_says_why(frame: bytes, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        decode_frames(frame)


def test_deep_nesting_is_an_error_like_any_other() -> None:
    header = b'{"extFields":' + b"[" * 100_000
    frame = (4 + len(header)).to_bytes(4) + len(header).to_bytes(4) + header
    with pytest.raises(RemoteProtocolError):
        decode_frames(frame)


@pytest.mark.parametrize("raw", [b"\0", b"\0\1a\0\0\0\2x", b"\0\1a\xff\xff\xff\xff"])
def test_bad_pairs_of_a_binary_header_are_refused(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_ext_fields(raw)


def _in_one_go(size: int) -> bytes:
    """As what is sent most often is encoded."""
    return encode_binary_frame(1, 0, 0, b"", bytes(size))


def _in_form(serialize: SerializeType, size: int) -> bytes:
    return RemotingCommand(1, serialize=serialize, body=bytes(size)).encode()


@pytest.mark.parametrize("encode", [_in_one_go, *(partial(_in_form, serialize) for serialize in SerializeType)])
def test_the_largest_frame_that_is_sent_is_the_largest_that_is_taken(encode: Callable[[int], bytes]) -> None:
    """RocketMQ's peers take none that is a byte larger: they end the connection."""
    room = FRAME_SIZE_MAX - len(encode(0))
    frame = encode(room)
    assert len(frame) == FRAME_SIZE_MAX
    (command,), taken = decode_frames(frame)
    assert (len(command.body), taken) == (room, FRAME_SIZE_MAX)
    with pytest.raises(LocalProtocolError, match=str(FRAME_SIZE_MAX)):
        encode(room + 1)


def test_what_no_peer_would_accept_is_not_sent() -> None:
    with pytest.raises(LocalProtocolError, match="exceeds"):
        RemotingCommand(1, body=bytes(FRAME_SIZE_MAX)).encode()
    with pytest.raises(LocalProtocolError, match="does not fit"):
        RemotingCommand(40000, serialize=SerializeType.ROCKETMQ).encode()


@given(st.binary(max_size=200))
def test_hostile_bytes_raise_only_our_error(data: bytes) -> None:
    try:
        commands, taken = decode_frames(data)
        assert taken <= len(data)
        for command in commands:
            _ = command.ext_fields
    except RemoteProtocolError:
        pass


@given(
    st.integers(0, 5),
    st.binary(max_size=64),
    st.sampled_from([s for s in SESSIONS if s.startswith("producer")]),
    st.data(),
)
def test_a_damaged_recording_raises_only_our_error(
    frames: int, noise: bytes, session: str, data: st.DataObject
) -> None:
    stream = bytearray((GOLDEN / session / "conn-2-master" / "client_to_server.bin").read_bytes())
    at = data.draw(st.integers(0, len(stream)))
    stream[at : at + len(noise)] = noise
    try:
        for command in decode_frames(stream)[0]:
            _ = command.ext_fields
    except RemoteProtocolError:
        pass


fields = st.dictionaries(
    st.text(min_size=1, max_size=20).filter(str.isascii), st.text(st.characters(codec="utf-8"), min_size=1), max_size=8
)


@given(
    st.integers(-(2**15), 2**15 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from(LanguageCode),
    st.none() | st.text(st.characters(codec="utf-8"), min_size=1),
    fields,
    st.binary(max_size=100),
    st.sampled_from(SerializeType),
)
def test_what_is_encoded_decodes_to_the_same(
    code: int,
    opaque: int,
    language: LanguageCode,
    remark: str | None,
    ext_fields: dict[str, str],
    body: bytes,
    serialize: SerializeType,
) -> None:
    command = RemotingCommand(code, opaque, 1, 409, language, remark, ext_fields, body, serialize)
    (back,), _ = decode_frames(command.encode())
    assert (back.code, back.opaque, back.flag, back.version) == (code, opaque, 1, 409)
    assert (back.language, back.remark, back.ext_fields, back.body) == (language, remark, ext_fields, body)
    assert back.is_response
    assert not back.is_oneway


def test_a_pair_of_surrogates_is_one_character() -> None:
    (command,), _ = decode_frames(b"\0\0\0\x1d\0\0\0\x19" + b'{"remark":"\\ud83d\\uDE80"}')
    assert command.remark == "\U0001f680"
