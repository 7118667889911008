r"""RemotingCommand: one request or response, and the frames that carry it. Hot path.

    at  size  field          meaning
     0     4  total_length   bytes after this field: 4 + header + body
     4     1  serialize      0 JSON header, 1 ROCKETMQ binary header
     5     3  header_length  unsigned, at most total_length - 4
     8     n  header         below, or a JSON object
    ..     m  body           opaque; no bytes means no body

The binary header (all integers big-endian; a length of 0 means null):

     0     2  code           int16
     2     1  language       LanguageCode
     3     2  version        int16
     5     4  opaque         int32, pairs a response with its request
     9     4  flag           bit 0: response, bit 1: one-way request
    13   4+n  remark         int32 length, UTF-8
    ..   4+m  ext_fields     int32 length of all pairs; then (int16 length, key, int32 length, value)...

Source: spec: remoting §1.1-1.4; rocketmq-all-4.9.8 RemotingCommand.java, RocketMQSerializable.java.
"""

import struct
from enum import IntEnum
from json.encoder import encode_basestring
from math import inf
from typing import Final

from rmqha.codec.codes import LanguageCode
from rmqha.codec.json_header import FIELDS_MAX, json_fields, json_header, json_object, json_remark, usual_header
from rmqha.codec.properties import decode_utf8
from rmqha.errors import LocalProtocolError, RemoteProtocolError
from rmqha.memory import BytesLike

VERSION: Final = 409
"""The protocol version of RocketMQ 4.9.8, which every frame of ours carries."""

FRAME_SIZE_MAX: Final = 16 * 1024 * 1024
"""Largest frame, length field included, that a RocketMQ peer accepts."""

HEADER_SIZE_MAX: Final = 128 * 1024
"""Largest header a server accepts: 32767 bytes of short properties still fit in their escaped JSON form."""

HEADERS_AT_ONCE: Final = 64 * 1024
"""Bytes of headers that are decoded at once: what else is in a frame costs no time."""

FLAG_RESPONSE: Final = 1
FLAG_ONEWAY: Final = 2

_PREFIX: Final = struct.Struct(">iI")
_BINARY: Final = struct.Struct(">hBhiii")
_WHOLE_FRAME: Final = struct.Struct(">iIhBhiiii")
_FIRST_BYTES_SIZE: Final = 16
_PAIR_KEY: Final = struct.Struct(">H")
_INT32: Final = struct.Struct(">i")
assert _WHOLE_FRAME.size == _PREFIX.size + _BINARY.size + 4

_JSON_NUMBERS: Final = ("code", "opaque", "flag", "version")
_LANGUAGES: Final = tuple(LanguageCode)
_LANGUAGE_NAMES: Final = tuple(language.name for language in LanguageCode)
_LANGUAGE_BY_NAME: Final = {language.name: language for language in LanguageCode}


class SerializeType(IntEnum):
    """How a header is written. A response uses the form of its request."""

    JSON = 0
    ROCKETMQ = 1


_JSON: Final = int(SerializeType.JSON)
_ROCKETMQ: Final = int(SerializeType.ROCKETMQ)


class NoFrameError(RemoteProtocolError):
    """The bytes begin no frame.

    Attributes:
        first_bytes: some of them, if nothing came before them; they may show the protocol (see codec/strangers.py).
    """

    def __init__(self, message: str, first_bytes: bytes) -> None:
        self.first_bytes: Final = first_bytes
        super().__init__(message)


class RemotingCommand:
    """One request or response.

    Attributes:
        code: a RequestCode or a ResponseCode, depending on ``is_response``.
        opaque: int32 chosen by the sender of the request; the answer repeats it.
        remark: human text, the reason in an answer that says no.
        ext_raw: the fields as they came, undecoded: pairs of a binary header, or a JSON object; None if they are
            decoded, or absent. Hot decoders read it directly.
        body: no bytes means no body.
        serialize: a SerializeType (kept as a plain int).
        size: bytes the frame took on the wire; 0 for a command that was not decoded.
    """

    __slots__ = (
        "_ext",
        "body",
        "code",
        "ext_raw",
        "flag",
        "language",
        "opaque",
        "remark",
        "serialize",
        "size",
        "version",
    )

    def __init__(  # noqa: PLR0917 - positional, because the hot decoder builds one for each frame
        self,
        code: int,
        opaque: int = 0,
        flag: int = 0,
        version: int = VERSION,
        language: LanguageCode = LanguageCode.JAVA,
        remark: str | None = None,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
        serialize: int = _JSON,
        ext_raw: bytes | None = None,
        size: int = 0,
    ) -> None:
        self.code = code
        self.opaque = opaque
        self.flag = flag
        self.version = version
        self.language = language
        self.remark = remark
        self._ext = ext_fields
        self.body = body
        self.serialize = serialize
        self.ext_raw = ext_raw
        self.size = size

    @property
    def ext_fields(self) -> dict[str, str]:
        """The header's own fields by name; empty when there are none.

        Raises:
            RemoteProtocolError: the fields do not parse.
        """
        if self._ext is None:
            if not self.ext_raw:
                return {}
            raw = self.ext_raw
            self._ext = decode_ext_fields(raw) if self.serialize == _ROCKETMQ else json_fields(json_header(raw)) or {}
        return self._ext

    def replace_ext_fields(self, fields: dict[str, str]) -> None:
        """From now on the header has these fields, and nobody sees those that came."""
        self._ext, self.ext_raw = fields, None

    @property
    def command(self) -> "RemotingCommand":
        """This one: what arrives may also be one that is decoded when somebody asks for it."""
        return self

    @property
    def is_response(self) -> bool:
        """Whether this answers a request of the receiver."""
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """Whether the sender expects no answer."""
        return self.flag & FLAG_ONEWAY != 0

    def to_answer(self, size: int = 0) -> "RemotingCommand":
        """What the answer needs of this request, and no more; ``size``: so many bytes are still kept for it."""
        return RemotingCommand(self.code, self.opaque, self.flag, serialize=self.serialize, size=size)

    def encode(self) -> bytes:
        """The whole frame.

        Raises:
            LocalProtocolError: a value does not fit its field, or the frame exceeds 16 MiB.
        """
        return self.encode_header(len(self.body)) + self.body

    def encode_header(self, body_size: int) -> bytes:
        """Prefix and header of the frame, for a caller that sends a body of ``body_size`` bytes behind it itself."""
        header = self._binary_header() if self.serialize == _ROCKETMQ else self._json_header()
        return encode_prefix(len(header), body_size, serialize=self.serialize) + header

    def _json_header(self) -> bytes:
        """Members in the order of their names and without nulls, as fastjson writes them."""
        ext = "" if self._ext is None and not self.ext_raw else f'"extFields":{json_object(self.ext_fields)},'
        remark = "" if self.remark is None else f'"remark":{encode_basestring(self.remark)},'
        return (
            f'{{"code":{int(self.code)},{ext}"flag":{self.flag},"language":"{_LANGUAGE_NAMES[self.language]}",'
            f'"opaque":{self.opaque},{remark}"serializeTypeCurrentRPC":"JSON","version":{self.version}}}'
        ).encode(errors="replace")

    def _binary_header(self) -> bytes:
        remark = self.remark.encode(errors="replace") if self.remark else b""
        ext = self.ext_raw if self._ext is None else encode_ext_fields(self._ext)
        try:
            fixed = _BINARY.pack(self.code, self.language, self.version, self.opaque, self.flag, len(remark))
        except struct.error as error:
            raise LocalProtocolError(f"a value of {self!r} does not fit a binary header: {error}") from None
        return b"".join((fixed, remark, _INT32.pack(len(ext or b"")), ext or b""))

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "request"
        return f"<RemotingCommand {kind} code={int(self.code)} opaque={self.opaque} body={len(self.body)} bytes>"


def encode_prefix(header_size: int, body_size: int, *, serialize: int) -> bytes:
    """The 8 bytes before a header.

    Raises:
        LocalProtocolError: the frame would exceed 16 MiB, which every RocketMQ peer refuses.
    """
    total = 4 + header_size + body_size
    if total + 4 > FRAME_SIZE_MAX:
        raise LocalProtocolError(f"a frame of {total + 4} bytes exceeds {FRAME_SIZE_MAX}: send less at once")
    return _PREFIX.pack(total, serialize << 24 | header_size)


def encode_binary_frame(code: int, opaque: int, flag: int, ext: bytes, body: bytes) -> bytes:
    """A binary frame without a remark, in one pack and one concatenation: hot path.

    Raises:
        LocalProtocolError: it exceeds 16 MiB.
    """
    total = 25 + len(ext) + len(body)
    if total + 4 > FRAME_SIZE_MAX:
        raise LocalProtocolError(f"a message of {len(body)} bytes does not fit a frame of {FRAME_SIZE_MAX} bytes")
    return (
        _WHOLE_FRAME.pack(total, _ROCKETMQ << 24 | 21 + len(ext), code, 0, VERSION, opaque, flag, 0, len(ext))
        + ext
        + body
    )


def encode_ext_fields(fields: dict[str, str]) -> bytes:
    """The pairs of a binary header, without the length before them."""
    parts: list[bytes] = []
    for name, value in fields.items():
        key, text = name.encode(errors="replace"), value.encode(errors="replace")
        parts += (_PAIR_KEY.pack(len(key)), key, _INT32.pack(len(text)), text)
    return b"".join(parts)


def decode_ext_fields(raw: bytes) -> dict[str, str]:
    """The pairs of a binary header; the last of equal keys counts, nulls are left out, bad UTF-8 is replaced.

    Raises:
        RemoteProtocolError: a length points outside, or there are too many.
    """
    fields: dict[str, str] = {}
    at, end = 0, len(raw)
    try:
        while at < end:
            value_at = at + 6 + _PAIR_KEY.unpack_from(raw, at)[0]
            (value_size,) = _INT32.unpack_from(raw, value_at - 4)
            next_at = value_at + value_size
            if not value_at <= next_at <= end:
                raise RemoteProtocolError(f"header field of {value_size} bytes at {at} of {end} leaves the header")
            if value_size and value_at > at + 6:
                fields[decode_utf8(raw[at + 2 : value_at - 4])] = decode_utf8(raw[value_at:next_at])
            at = next_at
    except struct.error as error:
        raise RemoteProtocolError(f"header fields do not parse at {at} of {end}: {error}") from None
    if len(fields) > FIELDS_MAX:
        raise RemoteProtocolError(f"a header with {len(fields)} fields: at most {FIELDS_MAX} are taken")
    return fields


def decode_frames(
    buffer: BytesLike,
    *,
    frame_size_max: int = FRAME_SIZE_MAX,
    header_size_max: int = HEADER_SIZE_MAX,
    commands_max: float = inf,
) -> tuple[list[RemotingCommand], int]:
    """Whole frames at the start of ``buffer``, and how many bytes they took. They keep nothing of ``buffer``.

    With ``commands_max`` no more than so many, and none after 64 KiB of headers: the rest is for another time.

    Raises:
        RemoteProtocolError: the stream cannot be followed any further; close the connection.
    """
    commands: list[RemotingCommand] = []
    at, end = 0, len(buffer)
    headers_left = inf if commands_max == inf else HEADERS_AT_ONCE
    while at < end and len(commands) < commands_max and headers_left > 0:
        decoded = decode_frame(buffer, at, end, frame_size_max=frame_size_max, header_size_max=header_size_max)
        if decoded is None:
            break
        command, header_size = decoded
        commands.append(command)
        at += command.size
        headers_left -= header_size
    return commands, at


def decode_frame(
    buffer: BytesLike, at: int, end: int, *, frame_size_max: int, header_size_max: int
) -> tuple[RemotingCommand, int] | None:
    """The frame that begins at ``at`` and the size of its header; None if it does not end before ``end``.

    Raises:
        RemoteProtocolError: the stream cannot be followed any further; close the connection.
    """
    if end - at < _PREFIX.size:
        return None
    total, word = _PREFIX.unpack_from(buffer, at)
    header_size = word & 0xFFFFFF
    if not 4 <= total <= frame_size_max - 4 or header_size > total - 4 or header_size > header_size_max:
        reason = _bad_lengths(total, header_size, frame_size_max, header_size_max)
        raise NoFrameError(reason, b"" if at else bytes(buffer[:_FIRST_BYTES_SIZE]))
    if word >> 24 > _ROCKETMQ:
        reason = f"serialize type {word >> 24} is neither 0 (JSON) nor 1 (ROCKETMQ)"
        raise NoFrameError(reason, b"" if at else bytes(buffer[:_FIRST_BYTES_SIZE]))
    frame_end = at + 4 + total
    if frame_end > end:
        return None
    decode = _decode_binary if word >> 24 else _decode_json
    body_at = at + 8 + header_size
    return decode(bytes(buffer[at + 8 : body_at]), bytes(buffer[body_at:frame_end]), 4 + total), header_size


def decode_header(header: bytes, serialize: int) -> RemotingCommand:
    """What a header says, as a command without a body. Raises RemoteProtocolError: it cannot be read."""
    decode = _decode_binary if serialize == _ROCKETMQ else _decode_json
    return decode(header, b"", 0)


def _bad_lengths(total: int, header_size: int, frame_size_max: int, header_size_max: int) -> str:
    return (
        f"frame of {total} bytes with a header of {header_size} bytes; "
        f"at most {frame_size_max} and {header_size_max} are accepted and a header lies inside its frame"
    )


def _decode_binary(header: bytes, body: bytes, size: int) -> RemotingCommand:
    if len(header) < _BINARY.size + 4:
        raise RemoteProtocolError(f"binary header of {len(header)} bytes; at least 21 are needed")
    code, language, version, opaque, flag, remark_size = _BINARY.unpack_from(header)
    ext_at = _BINARY.size + remark_size + 4
    if remark_size < 0 or ext_at > len(header):
        raise RemoteProtocolError(f"remark of {remark_size} bytes leaves the header")
    (ext_size,) = _INT32.unpack_from(header, ext_at - 4)
    if ext_size < 0 or ext_at + ext_size > len(header):
        raise RemoteProtocolError(f"header fields of {ext_size} bytes leave the header")
    return RemotingCommand(
        code,
        opaque,
        flag,
        version,
        _LANGUAGES[language] if language < len(_LANGUAGES) else LanguageCode.OTHER,
        decode_utf8(header[_BINARY.size : ext_at - 4]) if remark_size else None,
        None,
        body,
        _ROCKETMQ,
        header[ext_at : ext_at + ext_size],
        size,
    )


def _decode_json(raw: bytes, body: bytes, size: int) -> RemotingCommand:
    usual = usual_header(raw)
    if usual is not None:
        (code, flag, language, version), opaque, fields = usual
        return RemotingCommand(code, opaque, flag, version, language, None, None, body, _JSON, fields, size)
    header = json_header(raw)
    code, opaque, flag, version = map(header.get, _JSON_NUMBERS, (0, 0, 0, 0))
    if not type(code) is type(opaque) is type(flag) is type(version) is int or not (
        -0x80000000 <= min(code, opaque, flag, version) <= max(code, opaque, flag, version) <= 0x7FFFFFFF
    ):
        raise RemoteProtocolError("code, opaque, flag or version of a JSON header is no int32")
    return RemotingCommand(
        code,
        opaque,
        flag,
        version,
        _json_language(header.get("language")),
        json_remark(header.get("remark")),
        json_fields(header.get("extFields")),
        body,
        _JSON,
        None,
        size,
    )


def _json_language(value: object) -> LanguageCode:
    """By name, or by number as pyrocketmq writes it (spec: remoting §1.6)."""
    if type(value) is str:
        return _LANGUAGE_BY_NAME.get(value, LanguageCode.OTHER)
    return _LANGUAGES[value] if type(value) is int and 0 <= value < len(_LANGUAGES) else LanguageCode.OTHER
