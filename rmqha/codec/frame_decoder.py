"""StreamDecoder: a connection's bytes, as they come, into commands. Hot path."""

import struct
from abc import ABC, abstractmethod
from math import inf
from typing import Final, Generic, TypeVar

from rmqha.codec.remoting import FRAME_SIZE_MAX, HEADER_SIZE_MAX, RemotingCommand, decode_frames
from rmqha.memory import BytesLike

_PREFIX_SIZE: Final = 8
_LENGTH: Final = struct.Struct(">i")


Frame = TypeVar("Frame")


class StreamDecoder(ABC, Generic[Frame]):
    """Cuts a byte stream into commands, however it was chopped. Knows no socket and no clock.

    Holds at most one incomplete frame, in not much more memory than its bytes. To receive without a copy,
    read into :meth:`space` of a buffer, which may be shared with others, and call :meth:`on_received` at once after it;
    bytes that are there already go to :meth:`receive_data`.

    With ``commands_max`` no more commands are decoded at once; while there is :attr:`more`, nothing else is received.
    """

    def __init__(
        self,
        *,
        frame_size_max: int = FRAME_SIZE_MAX,
        header_size_max: int = HEADER_SIZE_MAX,
        commands_max: float = inf,
    ) -> None:
        self._frame_size_max = frame_size_max
        self._header_size_max = header_size_max
        self._commands_max = commands_max
        self._rest = bytearray()
        self._wanted = _PREFIX_SIZE

    @property
    def pending_size(self) -> int:
        """Bytes of a frame that has begun and is not complete, and of what is not decoded yet."""
        return len(self._rest)

    @property
    def more(self) -> bool:
        """Whether :meth:`decode_more` may find commands in what is held."""
        return len(self._rest) >= self._wanted

    def space(self, buffer: memoryview) -> memoryview:
        """Where in ``buffer`` the next bytes belong: behind room for what is held, unless that is half of it."""
        held = len(self._rest)
        return buffer[held:] if 2 * held <= len(buffer) else buffer

    def on_received(self, buffer: memoryview, count: int) -> list[Frame]:
        """The commands that ``count`` bytes at the beginning of :meth:`space` complete.

        Raises:
            RemoteProtocolError: the stream cannot be followed any further; close the connection.
        """
        held = len(self._rest)
        if held + count < self._wanted or 2 * held > len(buffer):
            return self.receive_data(self.space(buffer)[:count])
        buffer[:held] = self._rest
        return self._decode(buffer[: held + count])

    def put_off(self, buffer: memoryview, count: int) -> None:
        """As :meth:`on_received`, but only hold the bytes, for :meth:`decode_more`."""
        self._rest += self.space(buffer)[:count]

    def decode_more(self, commands_max: float = inf) -> list[Frame]:
        """So many of the next commands of what is held. Raises RemoteProtocolError as :meth:`on_received` does."""
        commands, taken = self._decode_frames(self._rest, min(commands_max, self._commands_max))
        del self._rest[:taken]
        self._note_wanted()
        return commands

    def receive_data(self, data: BytesLike) -> list[Frame]:
        """The commands that ``data`` completes.

        Raises:
            RemoteProtocolError: the stream cannot be followed any further; close the connection.
        """
        if len(self._rest) + len(data) < self._wanted:
            self._rest += data
            return []
        return self._decode(b"".join((self._rest, data)) if self._rest else data)

    def _decode(self, stream: BytesLike) -> list[Frame]:
        """Decode what was held and what came; hold what is left."""
        commands, taken = self._decode_frames(stream, self._commands_max)
        if self._rest or taken < len(stream):
            self._rest = bytearray(stream[taken:])
            self._note_wanted()
        return commands

    @abstractmethod
    def _decode_frames(self, stream: BytesLike, frames_max: float) -> tuple[list[Frame], int]:
        """Whole frames at the start of ``stream``, of which they keep nothing, and how many bytes they took."""

    def _note_wanted(self) -> None:
        self._wanted = 4 + _LENGTH.unpack_from(self._rest)[0] if len(self._rest) >= _PREFIX_SIZE else _PREFIX_SIZE


class FrameDecoder(StreamDecoder[RemotingCommand]):
    """Decodes every frame."""

    def _decode_frames(self, stream: BytesLike, frames_max: float) -> tuple[list[RemotingCommand], int]:
        return decode_frames(
            stream,
            frame_size_max=self._frame_size_max,
            header_size_max=self._header_size_max,
            commands_max=frames_max,
        )
