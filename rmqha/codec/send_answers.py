"""SEND_MESSAGE's answer (codes 0, 10, 11 and 12), written and read. Hot path.

Source: spec: remoting §2.4; rocketmq-all-4.9.8 SendMessageResponseHeader.java.
"""

import re
import struct
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Final, NamedTuple

from rmqha.codec.headers import parse_int, required
from rmqha.codec.remoting import (
    FLAG_RESPONSE,
    VERSION,
    RemotingCommand,
    SerializeType,
    encode_binary_frame,
    encode_ext_fields,
)

_ROCKETMQ: Final = int(SerializeType.ROCKETMQ)
_SIZE: Final = struct.Struct(">i")
_PREFIX: Final = struct.Struct(">ii")
_USUAL_RESPONSE: Final = re.compile(
    rb"\x00\x05msgId\x00\x00\x00\x20([0-9A-F]{32})\x00\x07queueId\x00\x00\x00[\x01-\x0a](\d{1,10})"
    rb"\x00\x0bqueueOffset\x00\x00\x00[\x01-\x13](\d{1,19})"
    rb"(?:\x00\x08TRACE_ON\x00\x00\x00\x04true\x00\x0aMSG_REGION\x00\x00\x00.[^\x00]*)?\Z",
    re.DOTALL,
)
"""The answer to a single send as every broker of the 4.x line writes it in binary form."""


@lru_cache(maxsize=1024)
def _prefix_of(header_size: int) -> bytes:
    return _PREFIX.pack(4 + header_size, header_size)


class SendMessageResponseEncoder:
    """Encodes whole answers to sends whose message is stored (codes 0, 10, 11 and 12)."""

    def __init__(self, store_host: bytes = b"", *, region: str = "DefaultRegion", trace_on: bool = True) -> None:
        common = {"TRACE_ON": str(trace_on).lower(), "MSG_REGION": region}
        self._binary_tail: Final = encode_ext_fields(common)
        tail = "".join(f',"{name}":{encode_basestring(value)}' for name, value in common.items()).replace("%", "%%")
        self._json_header: Final = (
            f'{{"code":%d,"extFields":{{"queueId":"%d"{tail},"msgId":"%b","queueOffset":"%d"%b}},"flag":1,'
            f'"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
        ).encode()
        self._id_prefix: Final = store_host.hex().upper()  # what encode_message_id puts before the offset
        self._id_and_comma: Final = f"{self._id_prefix}%016X,"
        msg_id = f'"msgId":"{self._id_prefix}%016X"'.encode()
        self._json_success: Final = (
            self._json_header.replace(b'"code":%d', b'"code":0')
            .replace(b'"msgId":"%b"', msg_id)
            .replace(b'"queueOffset":"%d"%b', b'"queueOffset":"%d"')
        )

    def message_id(self, wrote_offset: int) -> str:
        """The offset id of the message that lies there in the log."""
        return f"{self._id_prefix}{wrote_offset:016X}"

    def message_ids(self, wrote_offsets: tuple[int, ...]) -> str:
        """The offset ids of the messages that lie there, as an answer has them."""
        return (self._id_and_comma * len(wrote_offsets) % wrote_offsets)[:-1]

    def encode_success(self, serialize: int, opaque: int, wrote_offset: int, queue_id: int, queue_offset: int) -> bytes:
        """As :meth:`encode` of a single message with code 0, which nearly all of them are; written at one go."""
        if serialize == _ROCKETMQ:
            return self.encode(serialize, opaque, 0, self.message_id(wrote_offset), queue_id, queue_offset)
        header = self._json_success % (queue_id, wrote_offset, queue_offset, opaque)
        return _prefix_of(len(header)) + header

    def encode(  # noqa: PLR0917 - positional, because the hot path calls it for each message
        self,
        serialize: int,
        opaque: int,
        code: int,
        msg_id: str,
        queue_id: int,
        queue_offset: int,
        transaction_id: str | None = None,
    ) -> bytes:
        """The frame that answers a request of this ``serialize`` and ``opaque``.

        ``msg_id`` is the offset id; for a batch all of them, joined by commas.
        """
        if serialize == _ROCKETMQ:
            queue, offset = b"%d" % queue_id, b"%d" % queue_offset
            ext = b"\0\5msgId%b%b\0\7queueId\0\0\0%c%b\0\x0bqueueOffset\0\0\0%c%b%b" % (
                _SIZE.pack(len(msg_id)),
                msg_id.encode(),
                len(queue),
                queue,
                len(offset),
                offset,
                self._binary_tail,
            )
            if transaction_id is not None:
                ext += encode_ext_fields({"transactionId": transaction_id})
            return encode_binary_frame(code, opaque, FLAG_RESPONSE, ext, b"")
        transaction = "" if transaction_id is None else f',"transactionId":{encode_basestring(transaction_id)}'
        changing = (code, queue_id, msg_id.encode(), queue_offset, transaction.encode(), opaque)
        header = self._json_header % changing
        return _PREFIX.pack(4 + len(header), len(header)) + header


class SendMessageResponseHeader(NamedTuple):
    """Where a message was stored; of a batch, where its first one was."""

    msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None


def decode_send_response(command: RemotingCommand) -> SendMessageResponseHeader:
    """The header of an answer with code 0, 10, 11 or 12.

    Raises:
        RemoteProtocolError: a required field is absent, or a number is none.
    """
    if command.ext_raw is not None:
        usual = _USUAL_RESPONSE.match(command.ext_raw)
        if usual is not None:
            msg_id, queue_id, queue_offset = usual.groups()
            return SendMessageResponseHeader(msg_id.decode(), int(queue_id), int(queue_offset), None)
    named = command.ext_fields
    return SendMessageResponseHeader(
        required(named, "msgId"),
        parse_int("queueId", required(named, "queueId"), bits=32),
        parse_int("queueOffset", required(named, "queueOffset"), bits=64),
        named.get("transactionId"),
    )
