"""Real brokers behind certificates, and on addresses beyond loopback."""

import os
import socket
from pathlib import Path

import pytest
import trio

from rmqha.client import Message, ProducerOptions, SendStatus, TlsOptions, open_consumer, open_producer, tls_network
from rmqha.codec.codes import ResponseCode
from rmqha.errors import RmqhaError
from rmqha.remoting.client import RemotingClient, open_remoting_client
from rmqha.transport import TcpNetwork
from tests.broker.machines import pull_request, send_request
from tests.e2e.commands import rmqha
from tests.e2e.commitlog import wait_identical
from tests.e2e.conftest import Pair
from tests.e2e.load import wait_in_sync
from tests.e2e.processes import RmqhaBroker, has_ipv6, reaping
from tests.e2e.strangers import many_descriptors

trustme = pytest.importorskip("trustme", reason="trustme is in the extra [dev]")

NAMES = ("broker-a", "broker-b")


class Pki:
    """One authority; a certificate a name."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ca = trustme.CA()
        self.trust = directory / "ca.pem"
        self.ca.cert_pem.write_to_path(self.trust)

    def issue(self, name: str, *more: str) -> tuple[Path, Path]:
        issued = self.ca.issue_cert(name, *more)
        cert, key = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        issued.cert_chain_pems[0].write_to_path(cert)
        issued.private_key_pem.write_to_path(key)
        return cert, key

    def conf(self, prefix: str, name: str) -> dict[str, object]:
        cert, key = self.issue(name, "127.0.0.1")
        mode = "haTlsMode" if prefix == "haTls" else "tlsMode"
        return {
            f"{prefix}CertPath": cert,
            f"{prefix}KeyPath": key,
            f"{prefix}TrustCertPath": self.trust,
            mode: "enforcing",
        }


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


async def test_a_pair_replicates_and_serves_behind_certificates(pair: Pair, pki: Pki) -> None:
    """Both ports; a client with a certificate sends and reads, one without gets nowhere, nor does a plain slave."""
    for broker, name in zip(pair.brokers, NAMES, strict=True):
        broker.conf |= pki.conf("haTls", name) | {"haTlsPeerNames": ",".join(NAMES)} | pki.conf("tls", name)
    pair.slave.conf["masterAddress"] = pair.master.address
    pair.master.conf["slaveTimeout"] = 20_000
    await pair.start()
    cert, key = pki.issue("client")
    network = tls_network(TlsOptions(cert=str(cert), key=str(key), trust=str(pki.trust)))
    patient = ProducerOptions(timeout_s=60)
    async with open_producer(pair.master.address, options=patient, network=network) as producer:
        with trio.fail_after(120):
            while (await producer.send(Message("TopicTest", b"hello"))).status is not SendStatus.SEND_OK:
                pass  # the slave is on its way
        results = [await producer.send(Message("TopicTest", b"x" * 300_000)) for _ in range(5)]
        assert {result.status for result in results} == {SendStatus.SEND_OK}
    async with open_consumer(pair.slave.address, "TopicTest", network=network) as consumer:
        with trio.fail_after(120):
            bodies: list[bytes] = []
            while bodies.count(b"x" * 300_000) < 5:
                bodies += [message.body for message in await consumer.poll(timeout_s=60)]
    for stranger in (None, tls_network(TlsOptions(trust=str(pki.trust)))):
        with pytest.raises(RmqhaError):
            async with open_producer(pair.master.address, network=stranger) as producer:
                await producer.send(Message("TopicTest", b"y"), timeout_s=3)
    with socket.create_connection(("127.0.0.1", pair.master.ports.ha), timeout=60) as plain:
        plain.sendall(bytes(8))
        assert plain.recv(100) == bytes.fromhex("15030300020246"), "the log is not for strangers, only a TLS alert"
    await wait_identical(*(broker.store / "commitlog" for broker in pair.brokers))
    await pair.master.running.wait_output("does not speak TLS")
    await pair.master.running.wait_output("remoting_connection.untrusted")


async def test_the_commands_take_certificates_from_the_environment(
    pair: Pair, pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.master.conf |= pki.conf("tls", "broker-a") | {"brokerRole": "ASYNC_MASTER"}
    await pair.master.start()
    address = pair.master.address
    assert (await rmqha("status", "-b", address))[0] != 0
    cert, key = pki.issue("operator")
    for name, path in (("TRUST", pki.trust), ("CERT", cert), ("KEY", key)):
        monkeypatch.setenv(f"RMQHA_TLS_{name}", str(path))
    code, out, err = await rmqha("send", "-b", address, "TopicTest", stdin="hello\n")
    assert code == 0, err
    code, out, err = await rmqha("status", "-b", address)
    assert code == 0, err
    assert "ASYNC_MASTER" in out


async def test_a_slave_of_another_name_is_no_replica(pair: Pair, pki: Pki) -> None:
    pair.master.conf |= pki.conf("haTls", "broker-a") | {"haTlsPeerNames": "broker-b"}
    pair.slave.conf |= pki.conf("haTls", "broker-c")
    await pair.start()
    await pair.master.running.wait_output("is for 127.0.0.1, broker-c")
    with pytest.raises(AssertionError, match="no SEND_OK"):
        await wait_in_sync(pair.master.ports.listen, timeout_s=2)


async def test_permissive_takes_a_plain_slave(pair: Pair, pki: Pki) -> None:
    pair.master.conf |= pki.conf("haTls", "broker-a") | {"haTlsMode": "permissive"}
    await pair.start()
    await wait_in_sync(pair.master.ports.listen)


@pytest.mark.parametrize(
    ("conf", "says"),
    [
        ({"bindAddress": "0.0.0.0", "brokerIP1": "127.0.0.1"}, "bindAddress=0.0.0.0 would listen beyond this machine"),
        ({"bindAddress": "::", "brokerIP1": "127.0.0.1"}, "bindAddress=:: would listen"),
        ({"haBindAddress": "0.0.0.0"}, "haBindAddress=0.0.0.0 would listen"),
        ({"haBindAddress": "::"}, "haBindAddress=:: would listen"),
        ({"haTlsMode": "enforcing"}, "haTlsMode=enforcing needs haTlsCertPath"),
        ({"tlsMode": "enforcing"}, "tlsMode=enforcing needs tlsCertPath"),
    ],
)
async def test_an_open_door_has_to_be_asked_for(tmp_path: Path, conf: dict[str, object], says: str) -> None:
    broker = RmqhaBroker(tmp_path / "master", conf)
    with reaping(broker):
        child = broker.launch()
        assert await child.wait_exit() == 2
        assert says in child.output()


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
async def test_it_opens_when_asked_for_and_the_lists_still_hold(pair: Pair, address: str) -> None:
    """On every address of both families; 127.0.0.2 is in neither list."""
    if address == "::" and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    lists = {"haAllow": "127.0.0.1/32, ::1", "clientAllow": "127.0.0.1/32, ::1"}
    addresses = {"brokerIP1": "127.0.0.1", "bindAddress": address, "haBindAddress": address}
    pair.master.conf |= addresses | {"allowInsecure": "true"} | lists
    await pair.start()
    await wait_in_sync(pair.master.ports.listen)
    for port in pair.master.ports:
        with socket.socket() as stranger:
            stranger.settimeout(60)
            stranger.bind(("127.0.0.2", 0))
            stranger.connect(("127.0.0.1", port))
            assert stranger.recv(100) == b""
    await pair.master.running.wait_output("none of the networks of haAllow")
    await pair.master.running.wait_output("none of the networks of clientAllow")


async def test_few_descriptors_mean_fewer_clients_and_a_store_that_goes_on(tmp_path: Path) -> None:
    """Strangers that take every descriptor must not be able to fail a write."""
    broker = RmqhaBroker(tmp_path / "master", {"mappedFileSizeCommitLog": 1 << 20})
    broker.prefix = ("prlimit", "--nofile=620:620")
    with reaping(broker), many_descriptors(1000):
        await broker.start()
        await broker.running.wait_output(r'"max_connections": 44, "event": "process.limited"')
        silent = []
        for _ in range(700):
            try:
                silent.append(await trio.open_tcp_stream("127.0.0.1", broker.ports.listen))
            except OSError:
                break
        await wait_in_sync(broker.ports.listen)
        for stream in silent:
            await stream.aclose()
        assert await broker.stop() == 0


async def test_few_descriptors_do_not_mean_few_topics(tmp_path: Path) -> None:
    """A client that makes topics without end: files are opened when they are used, whatever their number."""
    broker = RmqhaBroker(tmp_path / "master", {"mappedFileSizeCommitLog": 1 << 20})
    broker.prefix = ("prlimit", "--nofile=620:620")
    with reaping(broker):
        for sent in range(2):
            await broker.start()
            async with open_remoting_client(TcpNetwork(), broker.address) as client:

                async def send(number: int, client: RemotingClient = client) -> None:
                    answer = await client.invoke(send_request(b"x", topic=f"t{number}", d="1"), timeout_s=60)
                    assert answer.code == ResponseCode.SUCCESS

                for first in range(0, 400, 20):
                    async with trio.open_nursery() as nursery:
                        for number in range(first, first + 20):
                            nursery.start_soon(send, number)
                for number in (0, 200, 399):
                    pull = pull_request(sent, topic=f"t{number}", suspend_ms=20_000)
                    assert (await client.invoke(pull, timeout_s=60)).code == ResponseCode.SUCCESS
            assert len(os.listdir(f"/proc/{broker.running.pid}/fd")) < 300
            assert await broker.stop() == 0
