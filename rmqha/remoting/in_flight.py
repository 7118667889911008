"""InFlight: the requests of one connection that are not answered yet. Hot path."""

from typing import Final

import trio

from rmqha.remoting.limits import Capacity, RemotingLimits

LET_GO: Final = -1
"""The size of a request that has given back what it took: its answer takes nothing from the shares of others."""


class InFlight:
    """An account of requests, part of that of all connections.

    Each request gives back an equal share of the bytes, so that answering needs no table; with none left nothing is
    held.

    Attributes:
        requests: not answered yet, and one-way ones not dealt with yet.
        size: what they took on the wire, but for those that were let go.
    """

    __slots__ = ("_accounted", "_capacity", "_limits", "_released", "requests", "size")

    def __init__(self, limits: RemotingLimits, capacity: Capacity) -> None:
        self.requests = 0
        self.size = 0
        self._limits = limits
        self._capacity = capacity
        self._accounted = 0
        """So many of the requests are what ``size`` belongs to."""
        self._released = trio.lowlevel.ParkingLot()

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be read: there is too much of this connection, or of all and its share is taken."""
        limits, capacity, size = self._limits, self._capacity, self.size
        return (
            size >= limits.max_in_flight_bytes_per_connection
            or self.requests >= limits.connection_in_flight_requests_max
            or (size >= limits.in_flight_share_bytes and capacity.used_bytes >= limits.max_in_flight_bytes)
        )

    def add(self, requests: int, size: int) -> None:
        """So many have arrived together."""
        self.requests += requests
        self._accounted += requests
        self.size += size
        self._capacity.used_bytes += size

    def release(self, requests: int) -> None:
        """So many are answered."""
        if requests and self.requests:
            requests = min(requests, self.requests)
            self.requests -= requests
            if accounted := min(requests, self._accounted):
                share = self.size * accounted // self._accounted
                self._accounted -= accounted
                self.size -= share
                self._capacity.release(share)
            if self._released:
                self._released.unpark_all()

    def release_one(self, *, was_let_go: bool) -> None:
        """One is answered; if it was let go, it has nothing left to give back."""
        if not was_let_go:
            self.release(1)
        elif self.requests:
            self.requests -= 1
            if self._released:
                self._released.unpark_all()

    def let_go(self, size: int) -> None:
        """Nothing is kept of a request of this size, though it is not answered yet: :meth:`release_one` follows."""
        if self._accounted:
            self._accounted -= 1
            gone = min(size, self.size) if self._accounted else self.size
            self.size -= gone
            self._capacity.release(gone)

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
        self.requests = self.size = self._accounted = 0
        self._released.unpark_all()
