"""Watches the lines of replication: each frame begins where the one before it ended; what a slave said counts."""

from typing import TYPE_CHECKING, Final

from rmqha.codec.transfer import FRAME_HEADER_SIZE, ReportDecoder, decode_frame_header

if TYPE_CHECKING:
    from tests.sim.invariants import Checker
    from tests.sim.node import Process


class ReportWitness:
    """Sees a slave's reports as they leave it: what it once said counts, whatever becomes of its memory."""

    def __init__(self, slave: "Process") -> None:
        self._slave: Final = slave
        self._decoder: Final = ReportDecoder()

    def on_coming(self, data: bytes) -> None:
        """These bytes are next."""
        self._slave.said = max([self._slave.said, *self._decoder.receive_data(data)])


class StreamWitness:
    """Sees the bytes of one connection as they leave the master: RocketMQ's slaves would store whatever follows."""

    def __init__(self, checker: "Checker", slave: str) -> None:
        self._checker: Final = checker
        self._slave: Final = slave
        self._position = -1
        self._body_left = 0
        self._header = b""

    def on_coming(self, data: bytes) -> None:
        """These bytes are next."""
        at = 0
        while at < len(data):
            if self._body_left:
                size = min(self._body_left, len(data) - at)
                self._body_left -= size
            else:
                size = min(FRAME_HEADER_SIZE - len(self._header), len(data) - at)
                self._header += data[at : at + size]
                if len(self._header) == FRAME_HEADER_SIZE:
                    self._on_header(*decode_frame_header(self._header, 0))
                    self._header = b""
            at += size

    def _on_header(self, offset: int, size: int) -> None:
        if self._position not in {-1, offset} or size < 0:
            message = f"{self._slave} is sent a frame of {size} bytes at {offset}, where {self._position} has to follow"
            self._checker.violation("I2", message)
        self._position, self._body_left = offset + size, max(size, 0)
