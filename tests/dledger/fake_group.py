"""A group whose members do what a test says, behind the real RemotingServer: who leads, a shared log, other answers."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio.testing

from rmqha.codec.dledger_entry import DLedgerEntry
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
    MemberStatus,
    MetadataRequest,
    MetadataResponse,
    decode,
    encode,
    refuse,
)
from rmqha.codec.remoting import RemotingCommand
from rmqha.dledger.dledger_client import DLedgerClient, open_dledger_client
from rmqha.dledger.vote import HeartBeatRequest, HeartBeatResponse
from rmqha.remoting.background import open_background_nursery
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.server import RemotingServer
from tests.fakes import MemoryNetwork
from tests.settings import remoting_limits

IDS = ("n0", "n1", "n2")
PEERS = {member_id: f"10.0.0.1:{20911 + at}" for at, member_id in enumerate(IDS)}
Asked = tuple[str, str]
"""Member and request."""


@dataclass
class Group:
    """What its members share."""

    network: MemoryNetwork = field(default_factory=MemoryNetwork)
    leader_id: str | None = "n0"
    term: int = 3
    log: list[DLedgerEntry] = field(default_factory=list)
    tells_status: bool = True
    """As members of ours do; Java's do not."""
    asked: list[Asked] = field(default_factory=list)
    members: dict[str, "Member"] = field(default_factory=dict)
    on_transfer: Callable[[LeadershipTransferRequest], int] | None = None

    def asked_for(self, what: str) -> list[str]:
        """Who was asked that."""
        return [member_id for member_id, request in self.asked if request == what]


class Member(RequestDispatcher):
    """Answers as the group says, unless :attr:`says` has another leader for it."""

    def __init__(self, group: Group, member_id: str) -> None:
        super().__init__()
        self.group = group
        self.member_id = member_id
        self.says: str | None = None
        self.codes: list[int] = []
        """For the next appends and reads, instead of doing them."""
        self.is_silent = False
        self.remark: str | None = None
        """Answer the next append with an error of remoting."""
        self.server = RemotingServer(self, limits=remoting_limits())
        handlers: dict[DLedgerRequestCode, tuple[type, Callable[[Any], object]]] = {
            DLedgerRequestCode.METADATA: (MetadataRequest, self.metadata),
            DLedgerRequestCode.APPEND: (AppendEntryRequest, self.append),
            DLedgerRequestCode.GET: (GetEntriesRequest, self.get),
            DLedgerRequestCode.HEART_BEAT: (HeartBeatRequest, self.heart_beat),
            DLedgerRequestCode.LEADERSHIP_TRANSFER: (LeadershipTransferRequest, self.transfer),
        }
        for code, (kind, handle) in handlers.items():
            self.register(code, self._processor(code.name, kind, handle))

    def _processor(self, name: str, kind: type, handle: Callable[[Any], object]) -> Any:
        def process(_: Connection, command: RemotingCommand) -> RemotingCommand | None:
            self.group.asked.append((self.member_id, name))
            base, request = decode(kind, command.body)  # type: ignore[var-annotated]
            if self.is_silent:
                return None
            if self.remark and name == "APPEND":
                return RemotingCommand(1, remark=self.remark)
            answer = handle(request)
            if base.remote_id != self.member_id:
                body = refuse(type(answer), base, code=401, leader_id=self.leader_id)
            else:
                body = encode(answer, Base(base.group))
            return RemotingCommand(HANDLED, body=body)

        return process

    @property
    def leader_id(self) -> str | None:
        return self.says or self.group.leader_id

    def metadata(self, _: MetadataRequest) -> MetadataResponse:
        role = "LEADER" if self.leader_id == self.member_id else "FOLLOWER"
        end = len(self.group.log) - 1
        status = MemberStatus(role, self.group.term, min(end, 0), end, end, end, version="1")
        return MetadataResponse(200, self.leader_id, PEERS, status if self.group.tells_status else None)

    def _refusal(self) -> int:
        if self.codes:
            return self.codes.pop(0)
        return 200 if self.group.leader_id == self.member_id else 404

    def append(self, request: AppendEntryRequest) -> AppendEntryResponse:
        code = self._refusal()
        if code != 200:
            return AppendEntryResponse(code, leader_id=self.leader_id)
        log = self.group.log
        pos = log[-1].pos + log[-1].size if log else 0
        body = request.body or b""
        log.append(DLedgerEntry(body, len(log), self.group.term, pos, size=48 + len(body)))
        return AppendEntryResponse(200, self.group.term, self.member_id, log[-1].index, pos)

    def get(self, request: GetEntriesRequest) -> GetEntriesResponse:
        code = self._refusal()
        found = self.group.log[request.begin_index : request.begin_index + 1]
        if code == 200 and not found:
            code = 410
        return GetEntriesResponse(code, self.leader_id, tuple(found) if code == 200 else ())

    def heart_beat(self, request: HeartBeatRequest) -> HeartBeatResponse:
        assert request.term < 0, "it would change something"
        assert request.leader_id != self.member_id
        return HeartBeatResponse(403, self.group.term)

    def transfer(self, request: LeadershipTransferRequest) -> LeadershipTransferResponse:
        if self.group.on_transfer is not None:
            return LeadershipTransferResponse(self.group.on_transfer(request))
        if (self.member_id, self.group.term) != (self.group.leader_id, request.term):
            return LeadershipTransferResponse(407 if self.group.term != request.term else 404)
        self.group.leader_id = request.transferee_id
        self.group.term += 1
        return LeadershipTransferResponse(200, self.group.term)


@asynccontextmanager
async def running(group: Group, *ids: str) -> AsyncIterator[None]:
    """These members serve, or all."""
    async with open_background_nursery() as nursery:
        for member_id in ids or IDS:
            member = group.members[member_id] = Member(group, member_id)
            port = int(PEERS[member_id].rpartition(":")[2])
            nursery.start_soon(member.server.serve, await group.network.listen("10.0.0.1", port))
        await trio.testing.wait_all_tasks_blocked()
        yield


@asynccontextmanager
async def client_of(group: Group, *ids: str, running_ids: tuple[str, ...] = IDS) -> AsyncIterator[DLedgerClient]:
    """A client that was given these members, or all."""
    peers = {member_id: PEERS[member_id] for member_id in ids or IDS}
    async with (
        running(group, *running_ids),
        open_dledger_client(group="g", peers=peers, network=group.network) as client,
    ):
        yield client
