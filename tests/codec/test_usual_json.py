"""The short way through a Java producer's JSON headers says what the long way would, whatever the bytes."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec import json_header
from rmqha.codec.codes import LanguageCode
from rmqha.codec.remoting import decode_frames
from rmqha.codec.send_headers import SendMessageRequestDecoder
from rmqha.errors import RemoteProtocolError

FIELDS = {"a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "2", "f": "0", "g": "1795176270095", "h": "0"}
FIELDS |= {"i": "UNIQ_KEY\x01AB\x02WAIT\x01true\x02TAGS\x01é", "j": "0", "k": "false", "m": "false"}


def header(*, opaque: object = 5, code: int = 310, properties: str = "k\x01v", **fields: str) -> bytes:
    """As Java writes it."""
    members = {"code": code, "extFields": FIELDS | {"i": properties} | fields, "flag": 0, "language": "JAVA"}
    members |= {"opaque": opaque, "serializeTypeCurrentRPC": "JSON", "version": 395}
    return json.dumps(members, separators=(",", ":")).encode()


def frame(raw: bytes) -> bytes:
    return (4 + len(raw)).to_bytes(4, "big") + len(raw).to_bytes(4, "big") + raw


def read(raw: bytes, decoder: SendMessageRequestDecoder) -> object:
    """Everything a header says, or that it is refused."""
    try:
        ((command,), _) = decode_frames(frame(raw))
        return command.code, command.opaque, command.flag, command.language, command.version, decoder.decode(command)
    except RemoteProtocolError:
        return "refused"


def read_afresh(raw: bytes) -> object:
    """By somebody who remembers nothing, and to whom nothing is usual."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rmqha.codec.remoting.usual_header", lambda *_: None)
        return read(raw, SendMessageRequestDecoder())


def without_fields(text: str = "") -> bytes:
    """An answer's header; ``text`` takes the place of its opaque and what follows."""
    rest = text or '5,"serializeTypeCurrentRPC":"JSON","version":409}'
    return ('{"code":200,"flag":1,"language":"JAVA","opaque":' + rest).encode()


def say(raw: bytes) -> object:
    """Everything a header says that nobody has to decode any further, or that it is refused."""
    try:
        ((command,), _) = decode_frames(frame(raw))
    except RemoteProtocolError:
        return "refused"
    said = command.code, command.opaque, command.flag, command.language, command.version, command.remark
    return *said, command.ext_fields


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    json_header.remembered.clear()
    yield
    json_header.remembered.clear()


@pytest.mark.parametrize(
    "raw",
    [
        header(),
        header(properties=""),
        header(properties="UNIQ_KEY\x01AB\x02WAIT\x01true\x02TAGS\x01a"),
        header(properties='quotes " and \\ and \n'),
        header(properties="\\u0001"),
        header(properties="é"),
        header(properties="{}"),
        header(h="7"),
        header(g="17"),
        header(g="17951762700x5"),
        header(opaque=-5),
        header(opaque=2147483647),
        header(opaque=1 << 40),
        header(opaque="x"),
        header(a='",\\"g\\":\\"'),
        header(a="}", opaque=6),
        header(b="Ä"),
        header(n="broker-a"),
        header(i="", g="1"),
        header(code=10),
        header(code=320, m="true"),
        header().replace(b'"e":"2"', b'"b":"other","e":"2"'),
        header().replace(b'"k":"false"', b'"g":"7","k":"false"'),
        header().replace(b'"flag":0', b'"flag":0,"extFields":{"a":"b"}'),
        header().replace(b"JAVA", b"COBOL"),
        header().replace(b"\\u0001", b"\x01"),
        header().replace(b"k\\u0001v", b"\xff"),
    ],
)
def test_odd_headers(raw: bytes) -> None:
    decoder = SendMessageRequestDecoder()
    for known in (header(), header(properties="x" * 9), raw, raw):
        assert read(known, decoder) == read_afresh(known)


def test_a_header_without_fields_is_looked_up() -> None:
    for opaque in range(3):
        text = f'{opaque},"serializeTypeCurrentRPC":"JSON","version":409}}'
        assert say(without_fields(text)) == (200, opaque, 1, LanguageCode.JAVA, 409, None, {})
    assert len(json_header.remembered) == 1


@pytest.mark.parametrize(
    "raw",
    [
        without_fields(),
        without_fields('-5,"serializeTypeCurrentRPC":"JSON","version":409}'),
        without_fields('2147483648,"serializeTypeCurrentRPC":"JSON","version":409}'),
        without_fields('6,"remark":"}","serializeTypeCurrentRPC":"JSON","version":409}'),
        without_fields('6,"remark":"\\"opaque\\":7","serializeTypeCurrentRPC":"JSON","version":409}'),
        without_fields('6,"serializeTypeCurrentRPC":"JSON","version":409,"extFields":{"a":"b"}}'),
        without_fields('6,"opaque":7,"serializeTypeCurrentRPC":"JSON","version":409}'),
        without_fields('6,"serializeTypeCurrentRPC":"JSON","version":409}}'),
        without_fields('6,"serializeTypeCurrentRPC":"JSON","version":409} '),
        without_fields("6}"),
        b'{"code":200}',
        b"{}",
        b'{"opaque":',
    ],
)
def test_odd_headers_without_fields(raw: bytes) -> None:
    for known in (without_fields(), header(), raw, raw):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("rmqha.codec.remoting.usual_header", lambda *_: None)
            expected = say(known)
        assert say(known) == expected


@given(st.data())
def test_damaged_headers(data: st.DataObject) -> None:
    decoder = SendMessageRequestDecoder()
    sound = header(properties="UNIQ_KEY\x01AB\x02TAGS\x01a")
    expected = read_afresh(sound)
    for _ in range(3):
        assert read(sound, decoder) == expected
    raw = bytearray(sound)
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=3)):
        raw[at : at + data.draw(st.integers(0, 1))] = data.draw(
            st.one_of(st.sampled_from([b'"', b"{", b"}", b"\\", b",", b"0", b"\x01"]), st.binary(max_size=1))
        )
    assert read(bytes(raw), decoder) == read_afresh(bytes(raw))
    assert read(sound, decoder) == expected


def test_what_is_remembered_is_bounded() -> None:
    for version in range(3000):
        read(header(code=version).replace(b"395", b"%d" % version), SendMessageRequestDecoder())
    assert 0 < len(json_header.remembered) <= 1024
    assert max(sum(map(len, key)) for key in json_header.remembered) < 200
