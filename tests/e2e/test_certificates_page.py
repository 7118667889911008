"""The recipe for certificates in docs/security.md, followed to the letter; and renewed ones, taken by SIGHUP."""

import re
import shutil
import signal
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio

from tests.e2e.commands import wait_status
from tests.e2e.conftest import Pair
from tests.e2e.monitoring import port_of
from tests.e2e.name_servers import RmqhaNameServer
from tests.e2e.pages import InstalledBroker, Shell, commands_of
from tests.e2e.processes import WITHOUT_TERMINAL, Child, reaping

pytest.importorskip("h11", reason="h11 is in the extra [web]")
pytest.importorskip("prometheus_client", reason="prometheus-client is in the extra [web]")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl"),
]
NAMES = ("broker-a", "broker-b", "client")


class Recipe:
    """What the page has one do, for brokers of a test."""

    def __init__(self, directory: Path, brokers: Mapping[str, InstalledBroker]) -> None:
        self.certs = directory / "tls"
        self.shell = Shell(directory, brokers, {"CERTS": self.certs, "ADDRESS": "127.0.0.1"})
        page = commands_of("security.md", "TLS")
        self.names, self.authority, self.issue, self.renew = page

    async def make(self) -> None:
        """An authority, and a certificate for each name."""
        await self.shell.run(self.authority)
        for name in NAMES:
            assert f"{name}.pem: OK" in await self.shell.run(self.issue, NAME=name)

    def conf(self, name: str, *prefixes: str) -> dict[str, str]:
        """A broker's keys for these kinds of ports."""
        files = {"CertPath": f"{name}.pem", "KeyPath": f"{name}.key", "TrustCertPath": "ca.pem"}
        conf = {f"{prefix}{key}": str(self.certs / file) for prefix in prefixes for key, file in files.items()}
        return conf | {f"{prefix}Mode": "enforcing" for prefix in prefixes}

    async def shown(self, port: int) -> str:
        """The number of the certificate that a port shows to a client of this authority."""
        context = ssl.create_default_context(cafile=str(self.certs / "ca.pem"))
        context.load_cert_chain(self.certs / "client.pem", self.certs / "client.key")
        with trio.fail_after(120):
            stream = trio.SSLStream(await trio.open_tcp_stream("127.0.0.1", port), context, server_hostname="127.0.0.1")
            await stream.do_handshake()
            shown = stream.getpeercert()
            await trio.aclose_forcefully(stream)
        return str(shown["serialNumber"])


async def wait_once(child: Child, event: str) -> None:
    """Until the log has it, once."""
    await child.wait_output(re.escape(event))
    assert child.output().count(event) == 1


async def test_a_pair_takes_renewed_certificates_on_all_ports_and_keeps_them_when_bad_ones_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").mkdir()
    master = InstalledBroker(tmp_path / "master", {"brokerRole": "SYNC_MASTER", "metricsListen": "0"})
    patient: dict[str, object] = {"haHousekeepingInterval": 120_000}  # no connection ends because the machine is slow
    slave = InstalledBroker(tmp_path / "slave", {"brokerRole": "SLAVE", "brokerId": 1, "masterAddress": master.address})
    slave.conf["haMasterAddress"] = master.ha_address
    with reaping(master, slave):
        recipe = Recipe(tmp_path, {"rmqha@master": master})
        await recipe.make()
        for name, broker in zip(NAMES, (master, slave), strict=False):
            broker.conf |= {**recipe.conf(name, "tls", "haTls"), **patient}
            broker.program, broker.prefix = recipe.shell.rmqha, WITHOUT_TERMINAL
            await broker.start()
        for name, path in zip(("CERT", "KEY", "TRUST"), ("client.pem", "client.key", "ca.pem"), strict=True):
            monkeypatch.setenv(f"RMQHA_TLS_{name}", str(recipe.certs / path))
        await wait_status(master, 0, says="in-sync")
        ports = [*master.ports, int((await port_of(master.running)).rpartition(":")[2])]
        first = {await recipe.shown(port) for port in ports}
        async with trio.open_nursery() as nursery:
            await nursery.start(recipe.shell.serve)
            await recipe.shell.run(recipe.renew, NAME="broker-a")
            await wait_once(master.running, "certificates.read")
            second = {await recipe.shown(port) for port in ports}
            assert (len(first), len(second), len(first | second)) == (1, 1, 2)
            (recipe.certs / "broker-a.pem").write_text("no certificate")
            await recipe.shell.run("systemctl reload rmqha@master")
            await wait_once(master.running, "certificates.kept")
            assert {await recipe.shown(port) for port in ports} == second
            await wait_status(master, 1, says="broker-a.pem cannot be used")
            await recipe.shell.run(recipe.renew, NAME="broker-a")
            await wait_status(master, 0, says="in-sync")
            nursery.cancel_scope.cancel()
        assert "ha_connection.closed" not in master.running.output(), "who is connected stays so"
        assert await master.stop() == 0


async def test_a_name_server_takes_renewed_certificates(tmp_path: Path) -> None:
    recipe = Recipe(tmp_path, {})
    await recipe.make()
    server = RmqhaNameServer(tmp_path / "namesrv", recipe.conf("broker-a", "tls"))
    server.prefix = WITHOUT_TERMINAL
    try:
        await server.start()
        assert server.child is not None
        port = int(server.address.rpartition(":")[2])
        first = await recipe.shown(port)
        await recipe.shell.run(recipe.issue, NAME="broker-a")
        await recipe.shell.run(f"kill -HUP {server.child.pid}")
        await wait_once(server.child, "certificates.read")
        assert await recipe.shown(port) != first
        assert await server.child.stop() == 0
    finally:
        server.close()


async def test_without_tls_a_hangup_changes_nothing(pair: Pair) -> None:
    pair.master.prefix = WITHOUT_TERMINAL
    await pair.master.start()
    pair.master.running.signal(signal.SIGHUP)
    await wait_once(pair.master.running, "certificates.read")
    assert await pair.master.stop() == 0
