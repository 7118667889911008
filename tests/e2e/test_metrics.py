"""The observability port of real processes: pairs in trouble, hostile scrapers, certificates, a missing library."""

import socket
import ssl
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import trio

from rmqha.client import Message, ProducerOptions, SendStatus, open_producer
from tests.e2e.conftest import Pair
from tests.e2e.monitoring import fetch, port_of, wait_until
from tests.e2e.name_servers import RmqhaNameServer
from tests.e2e.processes import CHECKOUT, RmqhaBroker, free_ports, nobody_listens, reaping

pytest.importorskip("h11", reason="h11 is in the extra [web]")
pytest.importorskip("prometheus_client", reason="prometheus-client is in the extra [web]")

from rmqha.metrics.page import FRESH_S
from tests.metrics.scrapes import Sample, samples_of, value

LISTEN = {"metricsListen": "0"}
SLAVE = "pair/1"
HOSTILE = (b"", b"GET / HT", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"\0" * 99)


async def scrape(address: str) -> dict[Sample, float]:
    await trio.sleep(FRESH_S)  # as the page may be so old
    reply = await fetch(address, "/metrics")
    assert reply.status == 200
    return samples_of(reply.text)


async def send(address: str, count: int) -> set[SendStatus]:
    async with open_producer(address, options=ProducerOptions(timeout_s=60)) as producer:
        return {(await producer.send(Message("t", b"%d" % number))).status for number in range(count)}


async def test_a_pair_is_watched_while_it_loses_its_slave_and_gets_it_back(pair: Pair) -> None:
    for broker in pair.brokers:
        broker.conf |= LISTEN
    pair.master.conf["slaveTimeout"] = 20_000  # a busy machine is no failure
    await pair.start()
    master, slave = await port_of(pair.master.running), await port_of(pair.slave.running)
    await wait_until(master, "/readyz", lambda reply: reply.status == 200)
    assert (await fetch(slave, "/readyz")).status == 200
    await wait_until(master, "/metrics", lambda reply: f'rmqha_slave_connected{{slave="{SLAVE}"}} 1.0' in reply.text)
    assert await send(pair.master.address, 20) == {SendStatus.SEND_OK}
    samples = await scrape(master)
    assert value(samples, "rmqha_sends_total", status="SEND_OK") >= 20
    assert value(samples, "rocketmq_brokeruntime_msg_put_total_today_now") == 20
    assert value(samples, "rmqha_slave_connected", slave=SLAVE) == 1
    assert value(samples, "process_open_fds") > 10
    assert value(await scrape(slave), "rmqha_follower_state", state="transfer") == 1

    await pair.slave.kill()
    reply = await wait_until(master, "/readyz", lambda reply: reply.status == 503)
    assert reply.text == "below the in-sync threshold: 0 of the 1 slaves that a send needs are connected\n"
    assert (await fetch(master, "/livez")).status == 200
    assert await send(pair.master.address, 3) == {SendStatus.SLAVE_NOT_AVAILABLE}
    samples = await scrape(master)
    assert value(samples, "rmqha_ready") == value(samples, "rmqha_slaves_live") == 0
    assert value(samples, "rmqha_slave_connected", slave=SLAVE) == 0
    assert value(samples, "rmqha_slave_lag_bytes", slave=SLAVE) > 0
    assert value(samples, "rmqha_sends_total", status="SLAVE_NOT_AVAILABLE") >= 3

    await pair.slave.start()
    await wait_until(master, "/readyz", lambda reply: reply.status == 200)
    await wait_until(master, "/metrics", lambda reply: f'rmqha_slave_lag_bytes{{slave="{SLAVE}"}} 0.0' in reply.text)
    assert value(await scrape(master), "rmqha_slave_connected", slave=SLAVE) == 1


async def test_it_lives_while_it_starts_and_says_what_it_waits_for(tmp_path: Path) -> None:
    with nobody_listens() as port:
        peers = {"haPeers": f"127.0.0.1:{port}", "haCatchUpAtStart": "require"}
        broker = RmqhaBroker(tmp_path / "master", {**LISTEN, **peers})
        with reaping(broker):
            broker.launch()
            address = await port_of(broker.running)
            assert (await fetch(address, "/livez")).status == 200
            reply = await wait_until(address, "/readyz", lambda reply: "haPeers" in reply.text)
            assert (reply.status, reply.text.startswith("recovering: ")) == (503, True)
            page = await fetch(address, "/metrics")  # the first, made now: after ten seconds reads are served
            assert value(samples_of(page.text), "rmqha_recovering") == 1
            await broker.wait_ready()
            reply = await fetch(address, "/readyz")
            assert (reply.status, reply.text.startswith("sends are refused: ")) == (503, True)


async def test_hostile_scrapers_hold_up_neither_the_broker_nor_monitoring_nor_a_stop(tmp_path: Path) -> None:
    broker = RmqhaBroker(tmp_path / "master", LISTEN)
    with reaping(broker):
        await broker.start()
        address = await port_of(broker.running)
        with ExitStack() as hostile:
            for number in range(200):
                sock = hostile.enter_context(hostile_scraper(address))
                with suppress(OSError):  # it has given way already
                    sock.sendall(
                        (b"", b"GET / HT", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"\0" * 99)[number % 4]
                    )
            assert await send(broker.address, 20) == {SendStatus.SEND_OK}
            samples: dict[Sample, float] = {}
            with trio.fail_after(60):  # a page that is being made is everybody's
                while not samples or value(samples, "rmqha_sends_total", status="SEND_OK") != 20:
                    samples = await scrape(address)
            assert value(samples, "process_open_fds") < 150
            with trio.fail_after(60):
                assert await broker.stop() == 0


def hostile_scraper(address: str) -> socket.socket:
    """One that takes next to nothing of its answer."""
    host, port = address.split(":")
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    sock.connect((host, int(port)))
    return sock


async def test_behind_certificates_as_the_other_ports(tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme", reason="trustme is in the extra [dev]")
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    trust, cert, key = tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "key.pem"
    authority.cert_pem.write_to_path(trust)
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    tls = {"tlsMode": "enforcing", "tlsCertPath": cert, "tlsKeyPath": key, "tlsTrustCertPath": trust}
    broker = RmqhaBroker(tmp_path / "master", {**LISTEN, **tls})
    context = ssl.create_default_context(cafile=str(trust))
    with reaping(broker):
        await broker.start()
        address = await port_of(broker.running)
        with pytest.raises(OSError, match=r"(?i)certificate|alert|reset|EOF"):
            await fetch(address, "/metrics", tls=context)
        context.load_cert_chain(cert, key)
        reply = await fetch(address, "/metrics", tls=context)
        assert reply.status == 200
        samples = samples_of(reply.text)
        assert value(samples, "rmqha_refused_peers_total", port="metrics", reason="untrusted") == 1


async def test_a_name_server(tmp_path: Path) -> None:
    names = RmqhaNameServer(tmp_path / "names", LISTEN)
    broker = RmqhaBroker(tmp_path / "master", {"namesrvAddr": names.address})
    try:
        with reaping(broker):
            await names.start()
            assert names.child is not None
            address = await port_of(names.child)
            assert (await fetch(address, "/readyz")).status == (await fetch(address, "/livez")).status == 200
            assert value(await scrape(address), "rmqha_namesrv_brokers") == 0
            await broker.start()
            await wait_until(address, "/metrics", lambda reply: "rmqha_namesrv_brokers 1.0" in reply.text)
            assert value(await scrape(address), "rmqha_namesrv_topics") > 0
    finally:
        names.close()


def run(tmp_path: Path, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv],
        check=False,
        cwd=CHECKOUT,
        env={"PATH": "", **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_without_the_libraries_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "prometheus_client.py").write_text("raise ImportError('no such library')")
    ports = free_ports()
    settings = {"metricsListen": "0", "listenPort": str(ports.listen), "storePathRootDir": str(tmp_path / "store")}
    options = [text for name, said in settings.items() for text in ("--set", f"{name}={said}")]
    ended = run(tmp_path, "-m", "rmqha", "master", *options, PYTHONPATH=str(tmp_path), HOME=str(tmp_path))
    assert ended.returncode == 2
    assert "metricsListen needs prometheus-client and h11" in ended.stderr
    assert "pip install 'rmqha[web]'" in ended.stderr
    assert not (tmp_path / "store").exists()


def test_without_the_key_the_libraries_are_not_loaded(tmp_path: Path) -> None:
    modules = "rmqha.cli.main, rmqha.broker.main, rmqha.namesrv.main, rmqha.metrics.start"
    script = f"import sys, {modules}; sys.exit('h11' in sys.modules or 'prometheus_client' in sys.modules)"
    assert run(tmp_path, "-c", script).returncode == 0
