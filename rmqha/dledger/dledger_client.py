"""DLedgerClient: finds a group's leader, and asks it.

Source: spec: dledger §5.8; dledger-all-0.3.1.2 DLedgerClient.java.
"""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

import trio

from rmqha.codec.dledger_entry import BODY_OFFSET, ENTRY_SIZE_MAX
from rmqha.codec.dledger_usual import decode_append_answer, encode_append
from rmqha.codec.dledger_wire import (
    HANDLED,
    AppendEntryRequest,
    AppendEntryResponse,
    Base,
    DLedgerRequestCode,
    GetEntriesRequest,
    GetEntriesResponse,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    MetadataRequest,
    MetadataResponse,
    decode,
    decode_metadata,
    encode,
)
from rmqha.codec.remoting import RemotingCommand
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.vote import HeartBeatRequest, HeartBeatResponse
from rmqha.errors import MQBrokerError, RemoteProtocolError, RemotingConnectError, RemotingError, RemotingTimeoutError
from rmqha.remoting.background import open_background_nursery
from rmqha.remoting.connections import Connections
from rmqha.transport import Network, TcpNetwork

_WAITS_FOR_A_LEADER_S: Final = 1.5
_ASKS_AGAIN_AFTER_S: Final = 0.1
_RPC_TIMEOUT_S: Final = 3.0
_TRANSFER_TIMEOUT_S: Final = 10.0
_CONNECT_TIMEOUT_S: Final = 3.0
_PEERS_MAX: Final = 64
"""Members that answers may add: more are a mistake, or malice."""
_Code = DLedgerResponseCode
Answer = TypeVar("Answer")
LeadersAnswer = TypeVar("LeadersAnswer", AppendEntryResponse, GetEntriesResponse)


@dataclass(slots=True)
class _Search:
    """A search for the leader, and what many who wait for it get; ``is_done``: it was not cancelled."""

    is_over: trio.Event = field(default_factory=trio.Event)
    is_done: bool = False
    leader_id: str | None = None
    error: RemotingConnectError | None = None

    def found(self) -> str | None:
        if self.error is not None:
            raise self.error
        return self.leader_id


class DLedgerClient:
    """Asks the leader; who that is, it asks all members (METADATA) when it does not know.

    As Java's client it waits 1.5 s for a leader and asks a second one once, if the first says that it does not lead.
    Here the second is also asked if the first cannot be connected to, and a leader counts only if it says so itself.
    """

    def __init__(self, connections: Connections, *, group: str, peers: Mapping[str, str]) -> None:
        """Of the group of that name; ``peers`` are ids and addresses of its members, or of some."""
        self.group: Final = group
        self.peers: Final = dict(peers)
        """Those that it was given, and those that their answers named."""
        self.leader_id: str | None = None
        """Whom it asks first."""
        self._connections: Final = connections
        self._search: _Search | None = None

    async def append(self, body: bytes) -> AppendEntryResponse:
        """Append an entry; the answer's code says how that ended.

        METADATA_ERROR: nobody leads. TIMEOUT and NETWORK_ERROR: the leader did not answer; the entry may be there.
        UNEXPECTED_ARGUMENT: the body has more than an entry can, and is not sent, or more than a data file of theirs.

        Raises:
            RemotingConnectError: no member can be reached.
            MQBrokerError: the leader cannot read the request.
        """
        if len(body) > ENTRY_SIZE_MAX - BODY_OFFSET:
            return AppendEntryResponse(_Code.UNEXPECTED_ARGUMENT)
        request = AppendEntryRequest(body)
        return await self._ask_leader(DLedgerRequestCode.APPEND, request, AppendEntryResponse)

    async def get(self, index: int) -> GetEntriesResponse:
        """Read the entry at ``index``; codes and errors are those of :meth:`append`."""
        return await self._ask_leader(DLedgerRequestCode.GET, GetEntriesRequest(index), GetEntriesResponse)

    async def metadata(self, member_id: str, *, timeout_s: float = _RPC_TIMEOUT_S) -> MetadataResponse:
        """What a member says of itself and of who leads; also adds the members that it names.

        Raises:
            RemotingError: it does not answer.
            MQBrokerError: what answers is no member.
            RemoteProtocolError: its answer is none.
        """
        code = DLedgerRequestCode.METADATA
        told = await self._ask(member_id, code, MetadataRequest(), MetadataResponse, timeout_s=timeout_s)
        for peer_id, address in (told.peers or {}).items() if told.code == _Code.SUCCESS else ():
            if len(self.peers) < _PEERS_MAX:
                self.peers.setdefault(peer_id, address)
        return told

    async def term_of(self, member_id: str) -> int | None:
        """The term of a member that does not tell it in its metadata: Java's; None if it cannot be learned.

        A heartbeat of an outdated term changes nothing, and is answered with the present one (spec: dledger §4.5).

        Raises:
            RemotingError, MQBrokerError, RemoteProtocolError: as :meth:`metadata`.
        """
        other = next((peer for peer in self.peers if peer != member_id), None)
        if other is None:
            return None
        beat = HeartBeatRequest(other, -1)
        code = DLedgerRequestCode.HEART_BEAT
        answer = await self._ask(member_id, code, beat, HeartBeatResponse, timeout_s=_RPC_TIMEOUT_S)
        return answer.term if answer.code == _Code.EXPIRED_TERM else None

    async def transfer_leadership(self, leader_id: str, transferee_id: str, *, term: int) -> LeadershipTransferResponse:
        """Ask ``leader_id``, which leads in ``term``, to hand over.

        Raises:
            RemotingError, MQBrokerError, RemoteProtocolError: as :meth:`metadata`; it may hand over all the same.
        """
        request = LeadershipTransferRequest(term, leader_id, transferee_id)
        code = DLedgerRequestCode.LEADERSHIP_TRANSFER
        return await self._ask(leader_id, code, request, LeadershipTransferResponse, timeout_s=_TRANSFER_TIMEOUT_S)

    async def find_leader(self) -> str | None:
        """Who says of itself that it leads; None if nobody has said so within 1.5 s. Many who ask search once.

        Raises:
            RemotingConnectError: no member answers.
        """
        while self._search is not None:
            search = self._search
            await search.is_over.wait()
            if search.is_done:
                return search.found()
        self._search = search = _Search()
        try:
            search.leader_id = await self._find_leader()
            search.is_done = True
        except RemotingConnectError as error:
            search.error = error
            search.is_done = True
        finally:
            self._search = None
            search.is_over.set()
        return search.found()

    async def _find_leader(self) -> str | None:
        answers: dict[str, MetadataResponse] = {}
        errors: dict[str, RemotingError] = {}
        has_heard = False
        with trio.move_on_after(_WAITS_FOR_A_LEADER_S):
            while True:
                known = len(self.peers)
                await self._ask_all(answers, errors)
                has_heard = has_heard or bool(answers)
                self.leader_id = _leader_in(answers)
                if self.leader_id is not None:
                    return self.leader_id
                if len(errors) == len(self.peers):
                    break
                if len(self.peers) == known:
                    await trio.sleep(_ASKS_AGAIN_AFTER_S)
        self.leader_id = _leader_in(answers)
        if self.leader_id is None and not answers and not has_heard:
            told = [str(errors[peer]) for peer in self.peers if peer in errors]
            raise RemotingConnectError(f"group {self.group}", "; ".join(told) or "no answer in time")
        return self.leader_id

    async def _ask_all(self, answers: dict[str, MetadataResponse], errors: dict[str, RemotingError]) -> None:
        """Until all have answered, or failed, or more than half name one that names itself."""
        answers.clear()
        errors.clear()

        async def ask(member_id: str) -> None:
            try:
                answers[member_id] = await self.metadata(member_id)
            except RemotingError as error:
                errors[member_id] = error
            except (MQBrokerError, RemoteProtocolError) as error:
                errors[member_id] = RemotingConnectError(self.peers[member_id], str(error))
            leader_id = _leader_in(answers)
            naming_it = sum(answer.leader_id == leader_id for answer in answers.values())
            if leader_id is not None and naming_it > len(self.peers) // 2:
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for member_id in list(self.peers):
                nursery.start_soon(ask, member_id)

    async def _ask_leader(self, code: DLedgerRequestCode, request: Any, kind: type[LeadersAnswer]) -> LeadersAnswer:
        asked = self.leader_id or await self.find_leader()
        answer = kind(_Code.METADATA_ERROR) if asked is None else await self._try(asked, code, request, kind)
        if answer is None or answer.code == _Code.NOT_LEADER:
            second = self.leader_id or await self.find_leader()
            if second is not None:
                answer = await self._try(second, code, request, kind)
        return kind(_Code.NETWORK_ERROR) if answer is None else answer

    async def _try(
        self, member_id: str, code: DLedgerRequestCode, request: Any, kind: type[LeadersAnswer]
    ) -> LeadersAnswer | None:
        """The answer; None if the request was never sent."""
        try:
            answer = await self._ask(member_id, code, request, kind, timeout_s=_RPC_TIMEOUT_S)
        except RemotingConnectError:
            self._forget(member_id)
            return None
        except RemotingError as error:
            self._forget(member_id)
            return kind(_Code.TIMEOUT if isinstance(error, RemotingTimeoutError) else _Code.NETWORK_ERROR)
        if answer.code == _Code.NOT_LEADER:
            self._forget(member_id)
        return answer

    def _forget(self, member_id: str) -> None:
        """It does not lead any more; who does may have been found meanwhile."""
        if self.leader_id == member_id:
            self.leader_id = None

    async def _ask(
        self, member_id: str, code: DLedgerRequestCode, message: Any, kind: type[Answer], *, timeout_s: float
    ) -> Answer:
        base = Base(self.group, remote_id=member_id)
        body = encode_append(message, base) if type(message) is AppendEntryRequest else encode(message, base)
        request = RemotingCommand(code, body=body)
        response = await self._connections.invoke(self.peers[member_id], request, timeout_s=timeout_s)
        if response.code != HANDLED:
            raise MQBrokerError(response.code, response.remark or "what listens there is no member of a DLedger group")
        if kind is AppendEntryResponse:
            return cast("Answer", decode_append_answer(response.body))
        if kind is MetadataResponse:
            return cast("Answer", decode_metadata(response.body))
        return decode(kind, response.body)[1]


def _leader_in(answers: Mapping[str, MetadataResponse]) -> str | None:
    """Of those who name themselves, whom most name: one that was cut off may not know yet that it leads no more."""
    named = Counter(answer.leader_id for answer in answers.values())
    claiming = [member_id for member_id, answer in answers.items() if answer.leader_id == member_id]
    return max(claiming, key=lambda member_id: named[member_id], default=None)


@asynccontextmanager
async def open_dledger_client(
    *, group: str, peers: Mapping[str, str], network: Network | None = None
) -> AsyncIterator[DLedgerClient]:
    """A client for as long as the block runs; connections are made when somebody is asked."""
    async with open_background_nursery() as nursery:
        connections = Connections(network or TcpNetwork(), nursery, connect_timeout_s=_CONNECT_TIMEOUT_S)
        yield DLedgerClient(connections, group=group, peers=peers)
