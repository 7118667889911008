"""What a server grants its clients, and the account of what they take."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import trio

from rmqha.codec.remoting import FRAME_SIZE_MAX, HEADER_SIZE_MAX
from rmqha.codec.usual.decoder import RequestDecoder
from rmqha.codec.usual.sends import UsualSends
from rmqha.memory import new_buffer
from rmqha.remoting.large_answers import LargeAnswers
from rmqha.remoting.outgoing import OutgoingAccount
from rmqha.remoting.turns import REQUESTS_A_TURN, Turns


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotingLimits:
    """What a server grants its clients. Nothing a client does can make it hold more.

    What has no default has a key (config/broker_config.py), or is for tests to make small (broker/tuning.py).
    A request is in flight from its arrival until its answer is queued. Over a limit a server stops reading, and the
    client's own TCP window holds it back.
    """

    client_allow: tuple[str, ...]
    """Networks whose clients may connect, as ``10.0.0.0/8``; empty: any that can reach the port."""
    max_connections: int
    max_connections_per_address: int
    max_in_flight_bytes: int
    max_in_flight_bytes_per_connection: int
    in_flight_share_bytes: int = 64 * 1024
    """With ``max_in_flight_bytes`` of all clients together nothing more is read of those with so many."""
    connection_in_flight_requests_max: int = 32768
    connection_outgoing_bytes_max: int = 16 * 1024 * 1024
    """Reading pauses while more than this waits to be sent to a client."""
    outgoing_bytes_max: int = 256 * 1024 * 1024
    """The same for all clients together; then nothing more is read of those with more than their share."""
    outgoing_share_bytes: int = 64 * 1024
    large_answers_bytes_max: int = 128 * 1024 * 1024
    """Answers above that share that were made for clients and not taken; beyond it the oldest end their connections."""
    unfinished_bytes_max: int = 256 * 1024 * 1024
    """Requests that have begun to arrive, all clients together; beyond it the one begun first ends its connection."""
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


class Closable(Protocol):
    """A connection, as far as its account goes."""

    def close(self, reason: str) -> None:
        """End it now."""
        ...


class Capacity:
    """What all connections of a server share.

    Attributes:
        used_bytes: requests in flight, on all connections together.
        waiting: where connections wait for there being less.
        unfinished: requests that have begun to arrive.
        outgoing: answers that clients have not taken yet.
        large_answers: those of them that are no part of the log.
        turns: which connection is served next.
    """

    def __init__(self, limits: RemotingLimits) -> None:
        self._limits = limits
        self.used_bytes = 0
        self.waiting: dict[trio.lowlevel.ParkingLot, None] = {}
        self.outgoing = OutgoingAccount()
        self.large_answers = LargeAnswers(limits.large_answers_bytes_max, size_min=limits.outgoing_share_bytes)
        self.turns = Turns()
        self._usual = UsualSends()
        self.unfinished = UnfinishedFrames(limits.unfinished_bytes_max)

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


class UnfinishedFrames:
    """Bytes of frames that are not complete. An honest sender soon finishes its own; so the oldest gives way.

    Invariant: ``size <= bytes_max`` after each :meth:`note`; ``_sizes`` is in the order in which the frames began.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.size = 0
        self._sizes: dict[Closable, int] = {}

    def note(self, connection: Closable, size: int, *, begun_anew: bool) -> None:
        """``connection`` holds ``size`` bytes of a frame; ``begun_anew``: of another one than before."""
        before = self._sizes.get(connection, 0)
        if begun_anew or not size:
            self._sizes.pop(connection, None)
        if size:
            self._sizes[connection] = size
        self.size += size - before
        while self.size > self.bytes_max:
            oldest = next(iter(self._sizes))
            self.size -= self._sizes.pop(oldest)
            oldest.close(f"a request begun was not complete when {self.bytes_max} bytes of such requests were held")
