"""A group of DLedgerServers in one event loop, on a simulated network and simulated disks."""

import random
from collections.abc import Callable
from typing import Any

import trio

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.codec.dledger_wire import AppendEntryResponse, GetEntriesResponse
from rmqha.codec.host import join_address
from rmqha.dledger.dledger_client import DLedgerClient, open_dledger_client
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.dledger_server import DLedgerServer
from rmqha.dledger.elector_options import ElectorOptions
from rmqha.dledger.leadership_transfer import TransferOptions
from rmqha.dledger.open_store import open_store
from rmqha.dledger.server_options import ServerOptions
from rmqha.errors import errors_in
from tests.dledger.defaults import default, pusher_options, store_config
from tests.dledger.members import all_of
from tests.sim.journal import NodeDied
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_net import SimNet

PORT = 20911
DATA_SIZE, INDEX_SIZE = 4096, 960
STORE = "/store"


class Member:
    """One machine, and the process on it, if one runs."""

    def __init__(self, name: str, group: "ServerGroup") -> None:
        self.name = name
        self.group = group
        self.disk = SimDisk(random.Random(name), latency_s=(0.0005, 0.002))
        self.host = group.net.host(group.addresses[name])
        self.server: DLedgerServer | None = None
        self._scope = trio.CancelScope()

    @property
    def running(self) -> DLedgerServer:
        assert self.server is not None, f"{self.name} is down"
        return self.server

    async def start(self) -> None:
        await self.group.nursery.start(self._run)

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        mount, network = self.disk.mount(), self.host.mount()
        options, server = self.group.options_of(self.name), None
        self._scope = trio.CancelScope()
        try:
            with self._scope:
                store = await open_store(options.store, mount)
                server = self.server = DLedgerServer(
                    options, store, mount, network, now_ms=self.group.now_ms, random=random.Random(self.name).random
                )
                await server.run(task_status=task_status)
        except (NodeDied, BaseExceptionGroup) as raised:
            errors_in(raised, NodeDied)
        if self.server is server:
            self.server = None

    def kill(self) -> None:
        """As ``kill -9``."""
        self.disk.kill()
        self.host.kill()
        self._scope.cancel()
        self.server = None

    def cut_power(self) -> None:
        self.disk.power_cut()
        self.host.power_cut()
        self._scope.cancel()
        self.server = None


class ServerGroup:
    """Members ``n0``, ``n1``... and a client of theirs."""

    def __init__(self, nursery: trio.Nursery, *, size: int = 3, network: str = "10.0.0.", **options: Any) -> None:
        self.nursery = nursery
        self.net = SimNet(random.Random(1))
        self.addresses = {f"n{number}": f"{network}{number + 1}" for number in range(size)}
        self.lists: dict[str, list[str]] = {}
        """With whom a member runs, if not with all."""
        self.places: dict[str, dict[str, str]] = {}
        """Where a member looks for another, if not at its address."""
        self.pusher = pusher_options(**options)
        self.transfer = default(TransferOptions)
        self.members = {name: Member(name, self) for name in self.addresses}
        self.client: DLedgerClient
        nursery.start_soon(self._keep_client)
        self._has_client = trio.Event()
        self.acknowledged: dict[int, bytes] = {}

    async def _keep_client(self) -> None:
        peers = {name: join_address(address, PORT) for name, address in self.addresses.items()}
        async with open_dledger_client(
            group="g", peers=peers, network=self.net.host("10.0.1.1").mount()
        ) as self.client:
            self._has_client.set()
            await trio.sleep_forever()

    def options_of(self, name: str) -> ServerOptions:
        places = self.addresses | self.places.get(name, {})
        return ServerOptions(
            group="g",
            peers={peer: (places[peer], PORT) for peer in self.lists.get(name, self.addresses)},
            store=store_config(
                STORE,
                name,
                mapped_file_size_for_entry_data=DATA_SIZE,
                mapped_file_size_for_entry_index=INDEX_SIZE,
                acks_flushed=self.pusher.acks_flushed,
            ),
            elector=default(ElectorOptions),
            pusher=self.pusher,
            transfer=self.transfer,
        )

    def now_ms(self) -> int:
        """No two processes are started at one time."""
        return int(1000 * trio.current_time())

    async def start(self, *names: str) -> None:
        """These members, or all."""
        await self._has_client.wait()
        for name in names or self.members:
            await self.members[name].start()

    @property
    def leaders(self) -> list[str]:
        """Who serves as a leader."""
        return [name for name, member in self.members.items() if member.server and member.server.pusher.checker]

    async def wait_leader(self) -> str:
        await self.wait(lambda: len(self.leaders) == 1)
        return self.leaders[0]

    async def wait(self, condition: Callable[[], bool], *, limit_s: float = 60) -> None:
        with trio.fail_after(limit_s):
            while not condition():  # noqa: ASYNC110 - what it asks tells nobody
                await trio.sleep(0.005)

    async def append(self, *bodies: bytes) -> list[AppendEntryResponse]:
        """Each of them until it is acknowledged."""
        answers = []
        for body in bodies:
            with trio.fail_after(60):
                answer = await self.client.append(body)
                while answer.code != DLedgerResponseCode.SUCCESS:
                    await trio.sleep(0.01)
                    answer = await self.client.append(body)
            self.acknowledged[answer.index] = body
            answers.append(answer)
        return answers

    async def get(self, index: int) -> GetEntriesResponse:
        """Ask until a leader that knows answers."""
        known = {DLedgerResponseCode.SUCCESS, DLedgerResponseCode.INDEX_OUT_OF_RANGE}
        with trio.fail_after(60):
            answer = await self.client.get(index)
            while answer.code not in known:
                await trio.sleep(0.01)
                answer = await self.client.get(index)
        return answer

    async def wait_same(self) -> list[DLedgerEntry]:
        """All that run have one log, committed to its end, and the same bytes; returns it."""
        with trio.fail_after(60):
            while (log := self._log()) is None:  # noqa: ASYNC110 - likewise
                await trio.sleep(0.05)
        for index, body in self.acknowledged.items():
            assert log[index].body == body, f"what was acknowledged at {index} is lost"
        return log

    def _log(self) -> list[DLedgerEntry] | None:
        running = [member for member in self.members.values() if member.server]
        logs = [all_of(member.running.store) for member in running]
        ends = {member.running.store.committed_index for member in running}
        if any(log != logs[0] for log in logs) or ends != {len(logs[0]) - 1}:
            return None
        files = [
            {
                path.partition("/data/")[2]: bytes(inode.cache)
                for path, inode in member.disk.files.items()
                if "/data/" in path
            }
            for member in running
        ]
        assert all(one == files[0] for one in files)
        return logs[0]


def _data_of(disk: SimDisk) -> dict[str, bytes]:
    files = {path.partition("/data/")[2]: bytes(inode.cache) for path, inode in disk.files.items()}
    return {name: content for name, content in files.items() if name}
