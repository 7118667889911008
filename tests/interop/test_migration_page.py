"""docs/migration.md, followed to the letter: a pair of RocketMQ's becomes one of rmqha's, and goes back."""

import json
import re
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from rmqha.client import open_consumer
from tests.e2e.commands import rmqha
from tests.e2e.load import wait_in_sync
from tests.e2e.pages import InstalledBroker, Shell, commands_of, write_program
from tests.e2e.processes import CHECKOUT, Broker, Ports, free_ports, give_back, reaping
from tests.interop.feature_table import BROKER
from tests.interop.peers import JavaBroker, JavaNameServer

pytestmark = pytest.mark.timeout(900)
PAGE = "migration.md"


class StoppingJavaBroker(JavaBroker):
    """One that systemd, too, takes for stopped in order: a JVM ends with 143 then."""

    async def stop(self, *, timeout_s: float = 120) -> int:
        code = await super().stop(timeout_s=timeout_s)
        return 0 if code == 128 + signal.SIGTERM else code


class Moved:
    """Both brokers of a pair, each as RocketMQ's and as rmqha's, with one address; and a shell on their machines."""

    def __init__(self, directory: Path) -> None:
        ports = {"master": free_ports(), "slave": free_ports()}
        ha_address = f"127.0.0.1:{ports['master'].ha}"
        self.master = f"127.0.0.1:{ports['master'].listen}"
        self.slave = f"127.0.0.1:{ports['slave'].listen}"
        self.name_server = JavaNameServer(directory / "namesrv")
        common: dict[str, object] = {"mappedFileSizeCommitLog": 1 << 20, "namesrvAddr": self.name_server.address}
        confs: dict[str, dict[str, object]] = {
            "master": {"brokerRole": "SYNC_MASTER", **common},
            "slave": {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": ha_address, **common},
        }
        homes = directory / "rocketmq"
        self.java = {name: StoppingJavaBroker(homes / name, confs[name], ports=ports[name]) for name in confs}
        confs["slave"]["masterAddress"] = self.master
        self.rmqha = {name: self._installed(directory, name, confs[name], ports[name]) for name in confs}
        units: dict[str, Broker] = {f"rocketmq@{name}": broker for name, broker in self.java.items()}
        units |= {f"rmqha@{name}": broker for name, broker in self.rmqha.items()}
        self.copies = free_ports()
        self.names = {
            "MASTER": self.master,
            "SLAVE": self.slave,
            "HA": ha_address,
            "SLAVE_HA": f"127.0.0.1:{ports['slave'].ha}",
            "STORE": "of either",
            "CONF": directory / "conf",
            "DATA": directory / "data",
            "COPY": directory / "copy",
        }
        self.shell = Shell(directory, units, self.names)
        write_program(self.shell.rmqha.with_name("chown"), "#!/bin/sh\n")  # here all files are one user's
        for broker in self.rmqha.values():
            broker.program = self.shell.rmqha
        self.sent = 0

    @staticmethod
    def _installed(directory: Path, name: str, conf: dict[str, object], ports: Ports) -> InstalledBroker:
        (directory / "conf").mkdir(exist_ok=True)
        (directory / "data").mkdir(exist_ok=True)
        broker = InstalledBroker(directory / name, conf, ports=ports)
        broker.move_store(directory / "data" / name)
        broker.prepare()
        return broker

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """RocketMQ's pair serves, and systemctl does."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.shell.serve)
            for broker in self.java.values():
                await broker.start()
            await wait_in_sync(self.java["master"].ports.listen)
            yield
            nursery.cancel_scope.cancel()

    async def send(self) -> None:
        """A few messages, each answered SEND_OK; the first ones to a new master may find no slave yet."""
        numbers = range(self.sent, self.sent + 20)
        sent = [
            "send",
            "orders",
            "-b",
            self.name_server.address,
            "--format",
            "json",
            "--retries",
            "50",
            "--timeout",
            "120",
        ]
        code, out, err = await rmqha(*sent, stdin="".join(f"message {number}\n" for number in numbers))
        assert code == 0, out + err
        assert json.loads(out)["statuses"] == {"SEND_OK": 20}
        self.sent = numbers.stop

    async def consume(self, numbers: range) -> None:
        """A group takes these, and commits them."""
        bodies: list[bytes] = []
        wanted = sorted(b"message %d" % number for number in numbers)
        with trio.fail_after(60):
            async with open_consumer(self.name_server.address, "orders", group="billing") as consumer:
                while sorted(bodies) != wanted:
                    bodies += [message.body for message in await consumer.poll(timeout_s=1)]
                    assert set(bodies) <= set(wanted), "it went back, or began elsewhere"
                await consumer.commit()


@pytest.fixture
def moved(tmp_path: Path) -> Iterator[Moved]:
    both = Moved(tmp_path)
    with reaping(*both.java.values(), *both.rmqha.values()):
        yield both
    both.name_server.close()
    give_back(both.copies)


def test_the_page_gives_values_to_all_names_that_it_uses(moved: Moved) -> None:
    text = (CHECKOUT / "docs" / PAGE).read_text()
    first, *others = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"^(\w+)=", first, re.MULTILINE)) == set(moved.names)
    given = set(re.findall(r"^([A-Z_]+)=", text, re.MULTILINE))
    assert set(re.findall(r"\$([A-Z_]+)", "".join(others))) == given


@pytest.mark.tries(BROKER, "become rmqha's, and go back, by docs/migration.md")
async def test_a_pair_becomes_rmqhas_and_goes_back(moved: Moved) -> None:
    """Messages are sent and consumed at each step; a group goes on where it was."""
    (check,) = commands_of(PAGE, "The files")
    names, copy = commands_of(PAGE, "Try it beside the pair")
    (slave,), (master,) = commands_of(PAGE, "The slave"), commands_of(PAGE, "The master")
    master_back, slave_back = commands_of(PAGE, "The way back")
    assert re.findall(r"^(\w+)=", names, re.MULTILINE) == ["NAME", "CLUSTER", "LISTEN"]
    beside = {"NAME": "pair", "CLUSTER": "cluster", "LISTEN": f"127.0.0.1:{moved.copies.listen}"}
    stores = {name: {"STORE": broker.store} for name, broker in moved.java.items()}
    async with moved.running():
        await moved.send()
        await moved.consume(range(20))
        await moved.shell.run(check)
        told = await moved.shell.run(sized(copy), **beside)
        for shown in ("good: ", "orders ", "billing "):
            assert f"\n{shown}" in told
        assert "\ngood: " in await moved.shell.run(slave, **stores["slave"])
        await moved.send()
        await moved.consume(range(20, 40))
        await moved.shell.run(master, **stores["master"])
        await moved.send()
        await moved.consume(range(40, 60))
        await moved.shell.run(master_back, **stores["master"])
        await moved.send()
        await moved.shell.run(slave_back, **stores["slave"])
        await wait_in_sync(moved.java["master"].ports.listen)
        await moved.send()
        await moved.consume(range(60, 100))


def sized(block: str) -> str:
    """The same with the size of this pair's segments, of which the page speaks below the block."""
    assert block.count("rmqha slave ") == 1
    return block.replace("rmqha slave ", "rmqha slave --set mappedFileSizeCommitLog=1048576 ")
