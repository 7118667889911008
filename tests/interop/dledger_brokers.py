"""Groups of brokers on one DLedger log: RocketMQ's, rmqha's, or both."""

import json
import struct
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any, Final

import trio

from rmqha.cli.dledger_transfer import hand_over
from rmqha.cli.errors import CliError
from rmqha.codec.record.layout import BARRIER_TOPIC
from rmqha.config.dledger_peers import parse_peers
from rmqha.dledger.dledger_client import DLedgerClient, open_dledger_client
from rmqha.errors import RemotingError, RmqhaError
from tests.e2e.commands import rmqha
from tests.e2e.commitlog import decode_record
from tests.e2e.dledger_brokers import BrokerGroup
from tests.e2e.processes import Broker
from tests.interop.dledger_groups import JAVA
from tests.interop.peers import JavaBroker

_QUEUE_UNIT: Final = struct.Struct(">qiq")
"""Place in the log, size, hash of the tag."""


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
        """All that do not run yet, until one leads."""
        async with trio.open_nursery() as nursery:
            for broker in self.brokers.values():
                if broker.child is None:
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

    async def at_rest(self) -> None:
        """Return when all have the same log, and all of it in their queues. Each request has been answered before.

        The last entries reach followers, and queues, some time after that.
        """
        with trio.fail_after(240):
            while not await self._is_at_rest():  # noqa: ASYNC110 - other processes
                await trio.sleep(0.2)

    async def _is_at_rest(self) -> bool:
        queues, *other_queues = [self.queue_files(name) for name in self.brokers]
        if any(other != queues for other in other_queues):
            return False
        log, *other_logs = [await self.dump(name) for name in self.brokers]
        if any(other != log for other in other_logs):
            return False
        return _newest_in(queues) == self._newest_message("n0", [line for line in log if "index" in line])

    def _newest_message(self, name: str, entries: list[dict[str, Any]]) -> int:
        """Where it lies in the log; the entry with which a leader of ours begins is in no queue."""
        files = {int(file): data for file, data in self.data_files(name).items()}
        for entry in reversed(entries):
            start = max(start for start in files if start <= entry["pos"])
            end = entry["pos"] + entry["size"] - start
            record = decode_record(files[start][end - entry["bodyLength"] : end])
            if record.topic != BARRIER_TOPIC:
                return record.physical_offset
        raise AssertionError(f"{name} has no message")

    def queue_files(self, name: str) -> dict[str, bytes]:
        """See :func:`queue_files_of`."""
        return queue_files_of(self.brokers[name])


def queue_files_of(broker: Broker) -> dict[str, bytes]:
    """The consume queues of one, by file, as far as they are filled."""
    directory = broker.store / "consumequeue"
    files = {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    return {str(path): data.rstrip(b"\0") for path, data in files.items() if data.rstrip(b"\0")}


def _newest_in(queues: dict[str, bytes]) -> int:
    """The greatest place of a message in any of these files of consume queues."""
    padded = [data.ljust(-(-len(data) // _QUEUE_UNIT.size) * _QUEUE_UNIT.size, b"\0") for data in queues.values()]
    units = [unit for data in padded for unit in _QUEUE_UNIT.iter_unpack(data)]
    return max((place for place, size, _ in units if size), default=-1)


async def _named_by(client: DLedgerClient, name: str) -> str | None:
    """Who leads, as this member says."""
    try:
        return (await client.metadata(name)).leader_id
    except RmqhaError:
        return None


def _java(broker: Broker) -> JavaBroker:
    return JavaBroker(broker.directory, broker.conf, ports=broker.ports)
