"""RequestDecoder: a client's bytes, as they come, into requests. Hot path."""

from math import inf
from typing import Final

from rmqha.codec.frame_decoder import StreamDecoder
from rmqha.codec.remoting import HEADERS_AT_ONCE, decode_frame
from rmqha.codec.usual.sends import Request, UsualSends
from rmqha.memory import BytesLike


class RequestDecoder(StreamDecoder[Request]):
    """Looks up the sends that are usual, and decodes everything else."""

    def __init__(
        self, usual: UsualSends, *, frame_size_max: int, header_size_max: int, commands_max: float = inf
    ) -> None:
        super().__init__(frame_size_max=frame_size_max, header_size_max=header_size_max, commands_max=commands_max)
        self._usual: Final = usual

    def _decode_frames(self, stream: BytesLike, frames_max: float) -> tuple[list[Request], int]:
        """As :func:`~rmqha.codec.remoting.decode_frames`.

        With ``frames_max`` no more than so many, and none after 64 KiB of headers that are not looked up, each
        as often as it was read: the rest is for another time.
        """
        frame_size_max, header_size_max, usual = self._frame_size_max, self._header_size_max, self._usual
        frames: list[Request] = []
        at, end = 0, len(stream)
        headers_left = inf if frames_max == inf else HEADERS_AT_ONCE
        while at < end and headers_left > 0:
            at = usual.take(stream, at, end, frames=frames, frames_max=frames_max, frame_size_max=frame_size_max)
            if len(frames) >= frames_max:
                break
            decoded = decode_frame(stream, at, end, frame_size_max=frame_size_max, header_size_max=header_size_max)
            if decoded is None:
                break
            command, header_size = decoded
            frames.append(command)
            headers_left -= header_size + usual.study(stream, at, command)
            at += command.size
        return frames, at
