"""What a server grants its clients, and the account of what they take."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import trio

from rmqha.codec.remoting import FRAME_SIZE_MAX, HEADER_SIZE_MAX
from rmqha.codec.usual.decoder import RequestDecoder
from rmqha.codec.usual.sends import UsualSends
from rmqha.memory import new_buffer
from rmqha.remoting.owed import SHARE_BYTES, Owed
from rmqha.remoting.turns import REQUESTS_A_TURN, Turns

UNSENT_BYTES_MAX: Final = 256 * 1024
"""What the kernel keeps of answers for one client: of 4 MiB each a thousand fill the memory that it has for TCP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotingLimits:
    """What a server grants its clients. Nothing a client does can make it hold more.

    What has no default has a key (config/broker_config.py), or is for tests to make small (broker/tuning.py).
    A request is in flight from its arrival until its answer is queued: it waits for the server, which stops reading
    over a limit, so that the client's own TCP window holds it back. What has not arrived, or not been taken, waits for
    the client, whose connection ends when that is too much.
    """

    client_allow: tuple[str, ...]
    """Networks whose clients may connect, as ``10.0.0.0/8``; empty: any that can reach the port."""
    max_connections: int
    max_connections_per_address: int
    max_in_flight_bytes: int
    max_in_flight_bytes_per_connection: int
    in_flight_share_bytes: int = SHARE_BYTES
    """With ``max_in_flight_bytes`` of all clients together nothing more is read of those with so many."""
    connection_outgoing_bytes_max: int = 16 * 1024 * 1024
    """Reading pauses while more than this waits to be sent to a client."""
    outgoing_bytes_max: int = 256 * 1024 * 1024
    """With so much owed by all clients together nothing more is read of those with more than their share to take."""
    outgoing_share_bytes: int = SHARE_BYTES
    owed_bytes_max: int = 512 * 1024 * 1024
    """Answers to be taken, and requests that have begun to arrive; see :class:`~rmqha.remoting.owed.Owed`."""
    frame_size_max: int = FRAME_SIZE_MAX
    header_size_max: int = HEADER_SIZE_MAX
    receive_size: int
    """Bytes of requests received at once."""
    server_channel_max_idle_time_s: float
    """Neither side sent anything for this long (spec: remoting §1.8)."""
    frame_timeout_s: float = 10.0
    """A frame that has begun must be complete within this time."""
    write_timeout_s: float = 30.0
    """A client must take up to 1 MiB within this time."""


class Capacity:
    """What all connections of a server share.

    Attributes:
        used_bytes: requests in flight, on all connections together, and what was received and is not decoded yet.
        waiting: where connections wait for there being less.
        owed: requests that have begun to arrive, and answers that clients have not taken yet.
        turns: which connection is served next.
    """

    def __init__(self, limits: RemotingLimits) -> None:
        self._limits = limits
        self.used_bytes = 0
        self.waiting: dict[trio.lowlevel.ParkingLot, None] = {}
        self.owed = Owed(limits.owed_bytes_max)
        self.turns = Turns()
        self._usual = UsualSends()

    @cached_property
    def receive_buffer(self) -> memoryview:
        """One for all: what a stream puts there is taken out before any other task runs.

        So a connection that only sits there costs no buffer.
        """
        return new_buffer(self._limits.receive_size)

    def new_decoder(self) -> RequestDecoder:
        """For one connection; what it learns of usual sends, all know."""
        limits = self._limits
        return RequestDecoder(
            self._usual,
            frame_size_max=limits.frame_size_max,
            header_size_max=limits.header_size_max,
            commands_max=REQUESTS_A_TURN,
        )

    def release(self, size: int) -> None:
        """Give back, and wake the readers that wait for it."""
        self.used_bytes -= size
        if self.waiting and self.used_bytes < self._limits.max_in_flight_bytes:
            waiting, self.waiting = self.waiting, {}
            for lot in waiting:
                lot.unpark_all()
