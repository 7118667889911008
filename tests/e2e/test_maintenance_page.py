"""docs/maintenance.md, followed to the letter: what stands there in blocks is run, on a pair that takes sends."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.e2e.commands import rmqha, wait_status
from tests.e2e.conftest import SEGMENT_BYTES
from tests.e2e.pages import InstalledBroker, Shell, commands_of, write_program
from tests.e2e.processes import CHECKOUT, reaping

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
PAGE = "maintenance.md"


class Installed:
    """A pair as the page has it, and a shell on its machines, which are one."""

    def __init__(self, directory: Path) -> None:
        (directory / "conf").mkdir()
        patient = {"slaveTimeout": 60_000, "haHousekeepingInterval": 120_000}  # however slow the machine is
        common = {"mappedFileSizeCommitLog": SEGMENT_BYTES, **patient}
        self.master = InstalledBroker(directory / "master", {"brokerRole": "SYNC_MASTER", **common})
        self.slave = InstalledBroker(directory / "slave", {"brokerRole": "SLAVE", "brokerId": 1, **common})
        self.master.conf["haPeers"] = self.slave.ha_address
        self.slave.conf |= {"haMasterAddress": self.master.ha_address, "masterAddress": self.master.address}
        self.slave.conf["haPeers"] = self.master.ha_address
        self.data = directory / "data"
        self.names = {
            "MASTER": self.master.address,
            "SLAVE": self.slave.address,
            "CONF": directory / "conf",
            "DATA": self.data,
            "BACKUP": directory / "backup",
        }
        brokers = {"rmqha@master": self.master, "rmqha@slave": self.slave}
        self.shell = Shell(directory, brokers, self.names)
        self.opt = directory / "opt"
        write_program(self.opt / "bin" / "rmqha", self.shell.rmqha.read_text())
        write_program(self.opt / "bin" / "python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        for name, broker in (("master", self.master), ("slave", self.slave)):
            broker.move_store(self.data / name)
            broker.program = self.opt / "bin" / "rmqha"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Both serve, and systemctl does."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.shell.serve)
            await self.master.start()
            await self.slave.start()
            await self.send(100)
            await self.slave_knows()
            yield
            nursery.cancel_scope.cancel()

    async def slave_knows(self) -> None:
        """Return when the slave has all that its master told it: without that it gives a new master nothing."""
        code, _, err = await rmqha("status", "-b", self.slave.address, "--wait", "in-sync", "--timeout", "120")
        assert code == 0, err

    async def send(self, count: int) -> None:
        """Messages that both have: each is answered SEND_OK."""
        await wait_status(self.master, 0, says="in-sync")
        sent = ["send", "orders", "-b", self.master.address, "--count", str(count), "--timeout", "120"]
        code, out, err = await rmqha(*sent, "--format", "json")
        assert (code, json.loads(out)["statuses"]) == (0, {"SEND_OK": count}), err

    async def messages(self, broker: InstalledBroker) -> list[tuple[int, int]]:
        """The places of all messages that a broker gives consumers; a slave has topics some time after the log."""
        code, out, err = await rmqha("tail", "orders", "-b", broker.address, "--from", "start", "--format", "json")
        if "does not know topic orders" in err:
            return []
        assert code == 0, err
        return sorted((one["queueId"], one["queueOffset"]) for one in map(json.loads, out.splitlines()))

    async def check_has(self, count: int) -> None:
        """Both have so many messages, the same, each once; and sends are taken by both."""
        for _ in range(2):
            places = await self.messages(self.master)
            assert (len(places), len(set(places))) == (count, count)
            with trio.fail_after(120):
                while (shown := await self.messages(self.slave)) != places:
                    assert set(shown) < set(places), "what it acknowledged it shows a moment later"
                    await trio.sleep(0.1)
            await self.send(10)
            count += 10


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Installed]:
    pair = Installed(tmp_path)
    with reaping(pair.master, pair.slave):
        yield pair


def test_the_page_gives_values_to_all_names_that_it_uses(installed: Installed) -> None:
    text = (CHECKOUT / "docs" / PAGE).read_text()
    (first, *others) = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"^(\w+)=", first, re.MULTILINE)) == set(installed.names)
    given = set(re.findall(r"^([A-Z]+)=", text, re.MULTILINE))
    assert set(re.findall(r"\$([A-Z]+)", "".join(others))) == given


async def test_a_backup_is_made_and_restored(installed: Installed) -> None:
    async with installed.running():
        (backup,) = commands_of(PAGE, "Backup")
        assert "good: 100 records" in await installed.shell.run(backup)
        await installed.send(50)
        await installed.check_has(150)
        (restore,) = commands_of(PAGE, "Restore")
        await installed.shell.run(restore)
        await installed.check_has(100)


async def test_a_pair_is_restarted_under_load_and_nothing_is_lost(installed: Installed, tmp_path: Path) -> None:
    """The load ends when the pair is back, and its producer bridges what lies between."""
    (restart,) = commands_of(PAGE, "Rolling restart")
    receipts, bodies = tmp_path / "receipts", tmp_path / "bodies"
    stop = trio.Event()

    async def load() -> None:
        sent = 0
        while not stop.is_set():
            bodies.write_text("".join(f"message {number}\n" for number in range(sent, sent + 50)))
            retries = ["--retries", "1000", "--timeout", "120", "--receipts", str(receipts)]
            code, out, err = await rmqha("send", "load", "-b", address, "--file", str(bodies), *retries)
            if code == 3 and not receipts.read_text():
                continue  # it came while the master was away: what cannot connect at first does not try again
            assert code in {0, 1}, err
            answers = [json.loads(line)["status"] for line in receipts.read_text().splitlines()]
            assert set(answers) <= {"SEND_OK", "SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT"}, out + err
            sent += len(answers)
            assert len(answers) == 50
        total.append(sent)

    total: list[int] = []
    address = installed.master.address
    async with installed.running():
        before = [broker.running.pid for broker in (installed.master, installed.slave)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load)
            await installed.shell.run(restart)
            stop.set()
        assert not {installed.master.running.pid, installed.slave.running.pid} & set(before)
        await installed.check_has(100)
        code, out, err = await rmqha("tail", "load", "-b", address, "--from", "start", "--format", "json")
        assert code == 0, err
        stored = {json.loads(line)["body"] for line in out.splitlines()}
        assert stored == {f"message {number}" for number in range(total[0])}


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """Of this checkout; made of a copy, so that nothing is left in it."""
    source = tmp_path / "source"
    shutil.copytree(CHECKOUT, source, ignore=shutil.ignore_patterns(".*", "build", "tests", "__pycache__"))
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(source)]
    made = subprocess.run(command, check=False, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    (wheel,) = tmp_path.glob("*.whl")
    return wheel


async def test_a_pair_is_upgraded_and_the_way_back_is_open(installed: Installed, wheel: Path, tmp_path: Path) -> None:
    names, install, slave, master = commands_of(PAGE, "Upgrade")
    assert re.findall(r"^(\w+)=", names, re.MULTILINE) == ["OPT", "NEW", "WHEEL"]
    new = tmp_path / "opt-next"
    given = {"OPT": installed.opt, "NEW": new, "WHEEL": wheel, "PYTHONPATH": ""}
    async with installed.running():
        assert "rmqha, version" in await installed.shell.run(install, **given)
        await installed.shell.run(slave, **given)
        assert str(new) in command_line(installed.slave)
        assert str(new) not in command_line(installed.master)
        await installed.shell.run(master, **given)
        assert str(new) in command_line(installed.master)
        await installed.check_has(100)
        given["NEW"] = tmp_path / "opt-first"
        await installed.shell.run(slave, **given)
        await installed.shell.run(master, **given)
        assert str(new) not in command_line(installed.master) + command_line(installed.slave)
        await installed.check_has(120)


def command_line(broker: InstalledBroker) -> str:
    """By which a broker's process runs: the environment that its program is of."""
    return Path(f"/proc/{broker.running.pid}/cmdline").read_text()


async def test_a_slave_gets_a_new_disk(installed: Installed) -> None:
    stop, start, *_ = commands_of(PAGE, "A new disk")
    async with installed.running():
        await installed.shell.run(stop)
        shutil.rmtree(installed.slave.store)
        await installed.shell.run(start)
        await installed.check_has(100)


async def test_a_master_gets_a_new_disk(installed: Installed) -> None:
    *_, stop, start = commands_of(PAGE, "A new disk")
    async with installed.running():
        await installed.shell.run(stop)
        shutil.rmtree(installed.master.store)
        before = installed.master.conf_file.read_text()
        await installed.shell.run(start)
        assert "catch_up" in installed.master.running.output()
        assert installed.master.conf_file.read_text() == before
        await installed.check_has(100)


async def test_the_slave_is_made_master_and_the_master_its_slave(installed: Installed) -> None:
    name, stop, promote, rejoin = commands_of(PAGE, "Another master")
    assert re.findall(r"^(\w+)=", name, re.MULTILINE) == ["HA"]
    async with installed.running():
        await installed.shell.run(stop)
        await installed.shell.run(promote)
        await installed.shell.run(rejoin, HA=installed.slave.ha_address)
        installed.master, installed.slave = installed.slave, installed.master
        await installed.check_has(100)
