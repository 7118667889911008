"""Groups of ``rmqha broker -c FILE`` processes on one DLedger log."""

from functools import partial
from pathlib import Path
from typing import Any

import trio

from rmqha.cli.ask import runtime_table
from rmqha.cli.errors import CliError
from rmqha.cli.verdict import judge, read_status
from rmqha.client.consumer import Consumer
from rmqha.errors import RmqhaError
from tests.e2e.dledger_groups import HEART_BEAT_MS
from tests.e2e.processes import Broker, Ports, RmqhaBroker, free_ports, give_back


class MemberBroker(RmqhaBroker):
    """One of them; its group's port is its HA port's number."""

    def argv(self) -> list[str]:
        """As an operator starts it: the file says what it is."""
        return [self.python, "-m", "rmqha", "broker", "-c", str(self.conf_file)]


class BrokerGroup:
    """Brokers n0, n1 and n2, whose files differ in id, port and directory only."""

    def __init__(self, directory: Path, size: int = 3, **conf: object) -> None:
        self._ports: dict[str, Ports] = {f"n{number}": free_ports() for number in range(size)}
        peers = ";".join(f"{name}-127.0.0.1:{ports.ha}" for name, ports in self._ports.items())
        common = {
            "brokerName": "raft",
            "enableDLegerCommitLog": "true",
            "dLegerGroup": "raft",
            "dLegerPeers": peers,
            "mappedFileSizeCommitLog": 1 << 20,
            "mappedFileSizeForEntryIndex": 32 << 10,
            "heartBeatTimeIntervalMs": HEART_BEAT_MS,
        }
        self.brokers: dict[str, Broker] = {
            name: MemberBroker(directory / name, {**common, **conf, "dLegerSelfId": name}, ports=ports)
            for name, ports in self._ports.items()
        }
        for broker in self.brokers.values():
            for key in ("haListenPort", "brokerId", "storePathCommitLog"):
                del broker.conf[key]

    async def start(self) -> None:
        """All of them, until one is master."""
        async with trio.open_nursery() as nursery:
            for broker in self.brokers.values():
                nursery.start_soon(broker.start)
        await self.master()

    @property
    def addresses(self) -> str:
        """For clients."""
        return ";".join(broker.address for broker in self.brokers.values())

    async def status(self, name: str) -> dict[str, Any]:
        """What a broker says of itself; empty if it does not answer."""
        ask = partial(runtime_table, self.brokers[name].address, timeout_s=5)
        try:
            facts = read_status(await trio.to_thread.run_sync(ask))
        except CliError:
            return {}
        return facts | {"verdict": judge(facts).level}

    async def master(self, *, besides: str = "") -> str:
        """Who takes messages, once somebody does."""
        with trio.fail_after(120):
            while True:
                for name, broker in self.brokers.items():
                    is_up = name != besides and broker.running.returncode is None
                    if is_up and (await self.status(name)).get("is_master"):
                        return name
                await trio.sleep(0.05)

    async def healthy(self) -> None:
        """Return when all is well with all of them, and each knows that the same entries are committed, and has them.

        Of a member that lacks up to a thousand the verdict is ``ok``, too. Who knows all that it has to be committed
        adds no entry when it is elected: the log stays, in whatever order they are stopped.
        """
        with trio.fail_after(120):
            while not _is_at_rest([await self.status(name) for name in self.brokers]):  # noqa: ASYNC110
                await trio.sleep(0.1)

    async def stop(self) -> list[int]:
        """End all, who leads last: nobody need be elected meanwhile. Their exit codes."""
        leader = await self.master()
        in_order = sorted(self.brokers, key=lambda name: name == leader)
        return [await self.brokers[name].stop() for name in in_order]

    def data_files(self, name: str) -> dict[str, bytes]:
        """The log of one, by file."""
        directory = self.brokers[name].store / f"dledger-{name}" / "data"
        return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}

    def close(self) -> None:
        """Leave nothing behind."""
        for broker in self.brokers.values():
            broker.reap()
            give_back(broker.ports)


def _is_at_rest(all_facts: list[dict[str, Any]]) -> bool:
    """Of what all members say of themselves."""
    if any(facts.get("verdict") != "ok" for facts in all_facts):
        return False
    logs = [facts["dledger"] for facts in all_facts]
    return len({log[key] for log in logs for key in ("end_index", "committed_index")}) == 1


class Reader:
    """Reads on, whatever happens to brokers, and notes what it got of each queue."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.seen: dict[int, list[int]] = {}
        self.numbers: set[int] = set()

    async def run(self) -> None:
        while True:
            try:
                messages = await self._consumer.poll(timeout_s=1)
            except RmqhaError:
                await trio.sleep(0.05)
                continue
            for message in messages:
                self.seen.setdefault(message.queue.queue_id, []).append(message.queue_offset)
                self.numbers.add(int(message.body))
