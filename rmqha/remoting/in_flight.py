"""InFlight: the requests of one connection that are not answered yet. Hot path."""

from typing import Final

import trio

from rmqha.remoting.limits import Capacity, RemotingLimits

REQUEST_BYTES: Final = 2048
"""What a request takes until it is answered, beside its bytes: a pull that is held, or an answer without a body."""


class InFlight:
    """An account of requests, part of that of all connections: what waits for the server.

    Each request takes its bytes, until it is answered or let go, and :data:`REQUEST_BYTES` until it is answered. It
    gives back its own; with no request left nothing is held.

    Attributes:
        requests: not answered yet, and one-way ones not dealt with yet.
        size: what they take.
    """

    __slots__ = ("_capacity", "_limits", "_released", "requests", "size")

    def __init__(self, limits: RemotingLimits, capacity: Capacity) -> None:
        self.requests = 0
        self.size = 0
        self._limits = limits
        self._capacity = capacity
        self._released = trio.lowlevel.ParkingLot()

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be read: there is too much of this connection, or of all and its share is taken."""
        limits, capacity, size = self._limits, self._capacity, self.size
        return size >= limits.max_in_flight_bytes_per_connection or (
            size >= limits.in_flight_share_bytes and capacity.used_bytes >= limits.max_in_flight_bytes
        )

    def add(self, requests: int, size: int) -> None:
        """So many have arrived together, of so many bytes."""
        size += requests * REQUEST_BYTES
        self.requests += requests
        self.size += size
        self._capacity.used_bytes += size

    def release(self, requests: int, size: int) -> None:
        """So many are answered, of so many bytes without those that were let go."""
        if requests and self.requests:
            self.requests = max(0, self.requests - requests)
            self.let_go(size + requests * REQUEST_BYTES if self.requests else self.size)
            if self._released:
                self._released.unpark_all()

    def let_go(self, size: int) -> None:
        """So many bytes of requests are not kept any more, though these are not answered yet."""
        size = min(size, self.size)
        self.size -= size
        self._capacity.release(size)

    async def wait_released(self) -> None:
        """Wait until some are answered, or there is room for all connections again, or the connection ends."""
        self._capacity.waiting[self._released] = None
        try:
            await self._released.park()
        finally:
            self._capacity.waiting.pop(self._released, None)

    def forget(self) -> None:
        """The connection has ended: nothing will be answered."""
        self._capacity.release(self.size)
        self.requests = self.size = 0
        self._released.unpark_all()
