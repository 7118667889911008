"""Groups of brokers on one DLedger log: RocketMQ's, rmqha's, or both."""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import trio

from rmqha.cli.dledger_transfer import hand_over
from rmqha.cli.errors import CliError
from rmqha.config.dledger_peers import parse_peers
from rmqha.dledger.dledger_client import DLedgerClient, open_dledger_client
from rmqha.errors import RemotingError, RmqhaError
from tests.e2e.commands import rmqha
from tests.e2e.dledger_brokers import BrokerGroup
from tests.e2e.processes import Broker
from tests.interop.dledger_groups import JAVA
from tests.interop.peers import JavaBroker


class MixedBrokers(BrokerGroup):
    """Brokers of these kinds. The heartbeat is RocketMQ's, which has no key for it."""

    def __init__(self, directory: Path, kinds: Sequence[str], **conf: object) -> None:
        super().__init__(directory, len(kinds), heartBeatTimeIntervalMs=2_000, **conf)
        self.kinds = dict(zip(self.brokers, kinds, strict=True))
        for name, kind in self.kinds.items():
            if kind == JAVA:
                self.brokers[name] = _java(self.brokers[name])
        self._peers = parse_peers(str(self.brokers["n0"].conf["dLegerPeers"]))

    async def start(self) -> None:
        """All of them, until one leads."""
        async with trio.open_nursery() as nursery:
            for broker in self.brokers.values():
                nursery.start_soon(broker.start)
        await self.leader()

    def _client(self) -> AbstractAsyncContextManager[DLedgerClient]:
        return open_dledger_client(group="raft", peers=self._peers)

    async def leader(self, *, besides: str = "") -> str:
        """Who leads, once a majority follows it; a broker of RocketMQ's is master some time later."""
        with trio.fail_after(120):
            async with self._client() as client:
                while True:
                    named = Counter([await _named_by(client, name) for name in self.brokers])
                    leader, followers = named.most_common(1)[0]
                    if leader not in {None, besides} and followers > len(self.brokers) // 2:
                        return str(leader)
                    await trio.sleep(0.1)

    async def hand_over(self, name: str) -> None:
        """That broker is to lead. A member of RocketMQ's may be asked too early (409), or another be faster (418)."""
        with trio.fail_after(120):
            while (leader := await self.leader()) != name:
                async with self._client() as client:
                    with suppress(RemotingError, CliError):
                        await hand_over(client, name, leader_id=leader, term=None)

    async def dump(self, name: str) -> list[dict[str, Any]]:
        """The entries of one's log, without their bodies."""
        code, out, err = await rmqha("dledger", "dump", str(self.brokers[name].store / f"dledger-{name}"))
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]

    async def wait_dispatched(self) -> None:
        """All have the same in their queues: the last messages reach followers some time later."""
        with trio.fail_after(120):
            while len({str(self.queue_files(name)) for name in self.brokers}) > 1:  # noqa: ASYNC110 - other processes
                await trio.sleep(0.2)

    def queue_files(self, name: str) -> dict[str, bytes]:
        """The consume queues of one, by file, as far as they are filled."""
        directory = self.brokers[name].store / "consumequeue"
        files = {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
        return {str(path): data.rstrip(b"\0") for path, data in files.items() if data.rstrip(b"\0")}


async def _named_by(client: DLedgerClient, name: str) -> str | None:
    """Who leads, as this member says."""
    try:
        return (await client.metadata(name)).leader_id
    except RmqhaError:
        return None


def _java(broker: Broker) -> JavaBroker:
    return JavaBroker(broker.directory, broker.conf, ports=broker.ports)
