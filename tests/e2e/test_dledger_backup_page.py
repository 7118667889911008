"""docs/dledger.md, "Backup and restore", followed to the letter by three brokers on one machine."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.e2e.commands import rmqha
from tests.e2e.dledger_groups import HEART_BEAT_MS
from tests.e2e.pages import InstalledBroker, Shell, commands_of, write_program
from tests.e2e.processes import free_ports, reaping

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


class Installed:
    """A group as the page has it, and a shell on its machines, which are one."""

    def __init__(self, directory: Path) -> None:
        (directory / "conf").mkdir()
        ports = {f"n{number}": free_ports() for number in range(3)}
        self.peers = ";".join(f"{name}-127.0.0.1:{one.ha}" for name, one in ports.items())
        conf = {
            "brokerName": "raft",
            "enableDLegerCommitLog": "true",
            "dLegerGroup": "raft",
            "dLegerPeers": self.peers,
            "mappedFileSizeCommitLog": 1 << 20,
            "mappedFileSizeForEntryIndex": 32 << 10,
            "heartBeatTimeIntervalMs": HEART_BEAT_MS,
        }
        self.brokers = {
            name: InstalledBroker(directory / name, conf | {"dLegerSelfId": name}, ports=one)
            for name, one in ports.items()
        }
        self.names = {
            "GROUP": "raft",
            "PEERS": self.peers,
            "MEMBER": self.brokers["n2"].address,
            "DATA": directory / "data",
            "BACKUP": directory / "backup",
        }
        self.shell = Shell(directory, {f"rmqha@{name}": one for name, one in self.brokers.items()}, self.names)
        write_program(directory / "opt" / "rmqha", self.shell.rmqha.read_text())
        for name, broker in self.brokers.items():
            broker.move_store(directory / "data" / name)
            broker.program = directory / "opt" / "rmqha"
            for key in ("haListenPort", "brokerId", "storePathCommitLog"):
                broker.conf.pop(key, None)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """All serve, n2 does not lead, and systemctl does what it is asked for."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.shell.serve)
            async with trio.open_nursery() as starting:
                for broker in self.brokers.values():
                    starting.start_soon(broker.start)
            await self.group("status", "--wait", "in-sync", "--timeout", "120")
            code, _, _ = await rmqha("dledger", "transfer", "-g", "raft", "-p", self.peers, "-t", "n0")
            assert code in {0, 1}
            await self.group("status", "--wait", "in-sync", "--timeout", "120")
            yield
            nursery.cancel_scope.cancel()

    async def group(self, command: str, *words: str) -> None:
        code, _, err = await rmqha("dledger", command, "-g", "raft", "-p", self.peers, *words)
        assert code == 0, err

    async def send(self, count: int) -> None:
        addresses = ";".join(broker.address for broker in self.brokers.values())
        sent = ["send", "orders", "-b", addresses, "--count", str(count), "--timeout", "120"]
        code, out, err = await rmqha(*sent, "--format", "json")
        assert (code, json.loads(out)["statuses"]) == (0, {"SEND_OK": count}), err

    async def count(self, broker: InstalledBroker) -> int:
        """Of the messages that it gives consumers."""
        code, out, err = await rmqha("tail", "orders", "-b", broker.address, "--from", "start", "--format", "json")
        assert code == 0, err
        places = [(one["queueId"], one["queueOffset"]) for one in map(json.loads, out.splitlines())]
        assert len(set(places)) == len(places)
        return len(places)


async def test_a_group_is_given_back_what_one_member_had(tmp_path: Path) -> None:
    names, backup, restore = commands_of("dledger.md", "Backup and restore")
    installed = Installed(tmp_path)
    assert set(re.findall(r"^(\w+)=", names, re.MULTILINE)) == set(installed.names)
    with reaping(*installed.brokers.values()):
        async with installed.running():
            await installed.send(100)
            assert "good: " in await installed.shell.run(backup)
            await installed.send(50)
            await installed.shell.run(restore)
            for broker in installed.brokers.values():
                with trio.fail_after(60):
                    while await installed.count(broker) != 100:  # noqa: ASYNC110 - it is asked
                        await trio.sleep(0.5)
            await installed.send(10)
