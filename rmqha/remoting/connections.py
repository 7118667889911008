"""Connections: at most one live connection to each address."""

from dataclasses import dataclass, field

import trio

from rmqha.codec.acl import SessionCredentials
from rmqha.codec.codes import ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import RemotingConnectError
from rmqha.remoting.client import RemotingClient, connect_remoting_client
from rmqha.transport import Network

_STALE_AFTER_S = 100.0
"""Brokers drop a connection that is idle for 120 s: one nearly as old is not asked any more."""


@dataclass(slots=True)
class _Attempts:
    """To connect to one address, one at a time."""

    lock: trio.Lock = field(default_factory=trio.Lock)
    failures: int = 0
    reason: str = ""
    """Why the last one failed."""


class Connections:
    """Connects when somebody asks, and again after a connection has ended. Connections end with the nursery.

    One over which nothing comes any more is not asked again, but what it was asked may still be answered: after a
    broken line TCP tries for as long again as that lasted, and a new connection knows the way at once.
    """

    def __init__(
        self,
        network: Network,
        nursery: trio.Nursery,
        *,
        connect_timeout_s: float,
        credentials: SessionCredentials | None = None,
    ) -> None:
        self._credentials = credentials
        self._network = network
        self._nursery = nursery
        self._connect_timeout_s = connect_timeout_s
        self._clients: dict[str, RemotingClient] = {}
        self._attempts: dict[str, _Attempts] = {}

    def live(self, address: str, *, now: float) -> RemotingClient | None:
        """The connection, if there is one now that can be asked."""
        client = self._clients.get(address)
        if client is None or client.closed:
            return None
        if now > client.used_at + _STALE_AFTER_S and not client.in_flight:
            client.close()
            return None
        if client.is_silent:
            del self._clients[address]
            self._nursery.start_soon(client.close_when_idle)
            return None
        return client

    async def get(self, address: str) -> RemotingClient:
        """The connection, made now if need be; callers that ask meanwhile wait for the same one, or fail with it.

        Raises:
            RemotingConnectError: there is none to be had.
        """
        client = self.live(address, now=trio.current_time())
        if client is not None:
            return client
        attempts = self._attempts.setdefault(address, _Attempts())
        failures = attempts.failures
        async with attempts.lock:
            client = self.live(address, now=trio.current_time())
            if client is None and attempts.failures > failures:
                raise RemotingConnectError(address, attempts.reason)
            return client or await self._connect(address, attempts)

    async def _connect(self, address: str, attempts: _Attempts) -> RemotingClient:
        try:
            client = await connect_remoting_client(
                self._network, address, timeout_s=self._connect_timeout_s, credentials=self._credentials
            )
        except RemotingConnectError as error:
            attempts.failures += 1
            attempts.reason = error.reason
            raise
        self._clients[address] = client
        self._nursery.start_soon(client.run)
        return client

    async def invoke(self, address: str, request: RemotingCommand, *, timeout_s: float) -> RemotingCommand:
        """Ask one address.

        Raises:
            RemotingError: no answer, or that of a broker that is only starting, or already stopping.
        """
        client = await self.get(address)
        response = await client.invoke(request, timeout_s=timeout_s)
        if response.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            raise RemotingConnectError(address, response.remark or "it does not serve at present")
        return response
