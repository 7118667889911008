"""PeerConnection: the way from this member to one other."""

import errno
from collections.abc import Callable
from typing import Final

import structlog
import trio

from rmqha.codec.dledger_wire import HANDLED
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import RemoteProtocolError, RemotingConnectError, RemotingTimeoutError
from rmqha.log_limit import LogLimit
from rmqha.remoting.client import RemotingClient, connect_remoting_client
from rmqha.remoting.response_table import Outcome
from rmqha.transport import Network

logger = structlog.get_logger()

RPC_TIMEOUT_S: Final = 3.0
NO_MEMBER: Final = (
    "what answers there is no member of a DLedger group: dLegerPeers names the group's own ports, not listenPort"
)
_RETRY_MIN_S: Final = 0.01
_RETRY_MAX_S: Final = 1.0

OnAnswer = Callable[[bytes | None], None]
"""Called with an answer's body; None: there is none. If the body is none either, it raises, and is called with None."""


class PeerConnection:
    """Connected for as long as somebody listens there.

    DLedger connects when it has something to say, so it does not learn of a peer's death before that.
    """

    def __init__(
        self,
        network: Network,
        peer: str,
        address: str,
        *,
        on_change: Callable[[str], None],
        on_gone: Callable[[str], None],
    ) -> None:
        """Nothing is connected here; :meth:`run` does.

        Args:
            network: the door to the peer.
            peer: its id.
            address: its ``host:port``.
            on_change: called with the id when it is connected, or not any more.
            on_gone: called with the id when the connection has ended, and nobody listens there any more.
        """
        self._network: Final = network
        self._peer: Final = peer
        self._address: Final = address
        self._on_change = on_change
        self._on_gone = on_gone
        self._client: RemotingClient | None = None
        self._lines = LogLimit(burst=3)
        self.since = trio.current_time()
        """When it was last connected, or the connection ended."""
        self.reason = "no attempt to connect has ended yet"
        """Why it is not connected; or what is wrong with who answers; empty if nothing is."""
        self._heard_at = self._connected_at = self.since

    @property
    def heard_at(self) -> float:
        """When the peer last sent anything; a process that stands still is connected to, and sends nothing."""
        client = self._client
        return self._heard_at if client is None or client.used_at <= self._connected_at else client.used_at

    @property
    def is_connected(self) -> bool:
        """Whether a question can be sent."""
        return self._client is not None and not self._client.closed

    async def run(self) -> None:
        """Connect, and again when the connection has ended, until cancelled."""
        pause_s, had_one = _RETRY_MIN_S, False
        while True:
            try:
                client = await connect_remoting_client(self._network, self._address, timeout_s=RPC_TIMEOUT_S)
            except RemotingConnectError as error:
                self.reason = str(error)
                if had_one and _is_refused(error):
                    had_one = False
                    told = {"peer": self._peer, "address": self._address, "next": "start it: a group needs a majority"}
                    self._lines.log(logger.warning, "dledger_peer.gone", **told)
                    self._on_gone(self._peer)
            else:
                had_one, since = True, trio.current_time()
                await self._serve(client)
                if trio.current_time() - since >= _RETRY_MAX_S:
                    pause_s = _RETRY_MIN_S
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, _RETRY_MAX_S)

    async def _serve(self, client: RemotingClient) -> None:
        self._client, self.since, self._connected_at = client, trio.current_time(), client.used_at
        self.reason = ""
        self._lines.log(logger.debug, "dledger_peer.connected", peer=self._peer, address=self._address)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.run)
            self._on_change(self._peer)
        self._heard_at = self.heard_at
        self._client, self.since, self.reason = None, trio.current_time(), "the connection has ended"
        self._lines.log(logger.debug, "dledger_peer.disconnected", peer=self._peer, address=self._address)
        self._on_change(self._peer)

    def note_answer(self, code: int) -> None:
        """With which code who listens there has answered a member's question."""
        if self.is_connected:
            self.reason = "" if code == HANDLED else NO_MEMBER

    def ask(self, code: int, body: bytes, on_answer: OnAnswer) -> None:
        """Send a question; what is sent until this task waits for anything goes out together."""
        client, asked_at = self._client, trio.current_time()
        if client is None or client.closed:
            on_answer(None)
            return

        def on_outcome(outcome: Outcome) -> None:
            if isinstance(outcome, RemotingCommand):
                self.note_answer(outcome.code)
                try:
                    on_answer(outcome.body if outcome.code == HANDLED and outcome.body else None)
                except RemoteProtocolError:  # which ends the connection
                    on_answer(None)
                    raise
                return
            if isinstance(outcome, RemotingTimeoutError) and client.used_at <= asked_at:
                client.close()  # nothing came back at all: a new connection may know a way
            on_answer(None)

        opaque = client.expect(asked_at + RPC_TIMEOUT_S, on_outcome)
        client.put(RemotingCommand(code, opaque, body=body).encode())


def _is_refused(error: RemotingConnectError) -> bool:
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno == errno.ECONNREFUSED
