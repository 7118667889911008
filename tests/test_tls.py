"""TLS streams over the in-memory network: who gets in, what gets through, and the reasons given."""

import ssl
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from rmqha.certificates import TlsOptions, client_context, server_context
from rmqha.choices import TlsMode
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.tls_records import RECORDS_AT_ONCE
from rmqha.errors import ConfigError, RemotingError
from rmqha.remoting.client import open_remoting_client
from rmqha.store.disk import DataFile
from rmqha.tls import TlsNetwork, TlsStream, secured
from rmqha.transport import Stream
from tests.fakes import MemoryNetwork
from tests.openssl import OpensslClient

trustme = pytest.importorskip("trustme", reason="trustme is in the extra [dev]")

HOST = "10.0.0.2"
PORT = 10912


class Pki:
    """An authority, and certificates of brokers."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.directory = directory
        self.ca = trustme.CA()
        self.trust = directory / f"{name}.pem"
        self.ca.cert_pem.write_to_path(self.trust)

    def options(self, *names: str, **changes: object) -> TlsOptions:
        issued = self.ca.issue_cert(*names)
        stem = self.directory / names[0].replace(":", "_")
        issued.private_key_pem.write_to_path(f"{stem}.key")
        for number, pem in enumerate(issued.cert_chain_pems):
            pem.write_to_path(f"{stem}.pem", append=number > 0)
        made = TlsOptions(cert=f"{stem}.pem", key=f"{stem}.key", trust=str(self.trust))
        return replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def memory() -> MemoryNetwork:
    return MemoryNetwork(host="10.0.0.1")


class Served:
    """What became of the connections to a listener: what was received, or the reason of the end."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.reasons: list[str] = []
        self.streams: list[Stream] = []

    async def run(self, network: TlsNetwork, *, task_status: trio.TaskStatus[None]) -> None:
        listener = await network.listen(HOST, PORT)
        assert listener.port == PORT
        task_status.started()
        async with trio.open_nursery() as nursery:
            while True:
                nursery.start_soon(self._echo, await listener.accept())

    async def _echo(self, stream: Stream) -> None:
        self.streams.append(stream)
        buffer = memoryview(bytearray(100_000))
        try:
            while count := await stream.receive_into(buffer):
                self.received.append(bytes(buffer[:count]))
                await stream.send_all(buffer[:count])
            self.reasons.append("end of the stream")
        except trio.BrokenResourceError as error:
            self.reasons.append(str(error))
        finally:
            stream.close()


async def receive(stream: Stream, size: int) -> bytes:
    data = b""
    buffer = memoryview(bytearray(65_536))
    with trio.fail_after(30):
        while len(data) < size:
            count = await stream.receive_into(buffer)
            assert count
            data += buffer[:count]
    return data


async def start(nursery: trio.Nursery, network: TlsNetwork) -> Served:
    served = Served()
    await nursery.start(served.run, network)
    return served


async def test_both_sides_prove_who_they_are(
    pki: Pki, memory: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    served = await start(nursery, TlsNetwork(memory, pki.options(HOST)))
    client = await TlsNetwork(memory, pki.options("10.0.0.1")).connect(HOST, PORT, timeout_s=5)
    await client.send_all(b"hello")
    assert await receive(client, 5) == b"hello"
    assert client.send_nowait(b"more") == 0, "what is encrypted cannot be taken back"
    assert client.peer == f"{HOST}:{PORT}"
    wire = memory.connections[0]
    await client.send_all(b"attack at dawn")
    assert await receive(client, 14) == b"attack at dawn"
    assert isinstance(client, TlsStream)
    assert not any(b"attack" in bytes(chunk) for chunk in wire.outgoing.chunks)
    client.close()
    await trio.sleep(0.1)
    assert served.reasons == ["end of the stream"]
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("unsent_bytes_max", [None, 65_536])
async def test_the_kernel_is_asked_to_keep_as_little_as_without_it(
    unsent_bytes_max: int | None, pki: Pki, memory: MemoryNetwork
) -> None:
    listener = await TlsNetwork(memory, pki.options(HOST)).listen(HOST, PORT, unsent_bytes_max=unsent_bytes_max)
    assert (listener.port, memory.listeners[PORT].unsent_bytes_max) == (PORT, unsent_bytes_max)
    listener.close()


async def test_much_goes_through_in_order_and_both_ways(
    pki: Pki, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Over a line that takes 1,000 bytes at a time, header and file included."""
    memory = MemoryNetwork(capacity=1000)
    served = await start(nursery, TlsNetwork(memory, pki.options(HOST)))
    client = await TlsNetwork(memory, pki.options("10.0.0.1")).connect(HOST, PORT, timeout_s=5)
    data = bytes(range(256)) * 3000

    class File:
        path = "file"

        def fileno(self) -> None:
            return None

        def view(self) -> memoryview:
            return memoryview(data)

    async with trio.open_nursery() as sending:
        sending.start_soon(client.send_file, b"header", cast("DataFile", File()), 100, 600_000)
        assert await receive(client, 600_006) == b"header" + data[100:600_100]
    assert b"".join(served.received) == b"header" + data[100:600_100]
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("who", "client_says", "server_says"),
    [
        ("nobody", "CERTIFICATE_REQUIRED", "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        ("stranger", "UNKNOWN_CA", "certificate"),
    ],
)
async def test_without_a_certificate_of_ours_nobody_gets_in(
    pki: Pki,
    memory: MemoryNetwork,
    nursery: trio.Nursery,
    tmp_path: Path,
    *,
    who: str,
    client_says: str,
    server_says: str,
) -> None:
    served = await start(nursery, TlsNetwork(memory, pki.options(HOST)))
    options = TlsOptions(trust=str(pki.trust))
    if who == "stranger":
        options = replace(Pki(tmp_path, "other").options("10.0.0.1"), trust=str(pki.trust))
    client = await TlsNetwork(memory, options).connect(HOST, PORT, timeout_s=5)
    with suppress(trio.BrokenResourceError):  # it may have been cut off already
        await client.send_all(b"forged report")
    if sys.implementation.name == "pypy":
        client_says = "TLS with"  # the rest may be the other end's error: they share one queue in this process
    with pytest.raises(trio.BrokenResourceError, match=client_says):
        await receive(client, 1)
    assert served.received == []
    with trio.fail_after(60):
        while not served.reasons:  # noqa: ASYNC110 - the server notices a moment later
            await trio.sleep(0.01)
    assert server_says in served.reasons[0]
    nursery.cancel_scope.cancel()


async def test_a_server_of_another_authority_or_name_is_not_trusted(
    pki: Pki, memory: MemoryNetwork, nursery: trio.Nursery, tmp_path: Path
) -> None:
    await start(nursery, TlsNetwork(memory, pki.options("10.9.9.9")))
    with pytest.raises(OSError, match="IP address mismatch"):
        await TlsNetwork(memory, pki.options("10.0.0.1")).connect(HOST, PORT, timeout_s=5)
    stranger = Pki(tmp_path, "other").options("10.0.0.1")
    with pytest.raises(OSError, match=r"self-signed certificate|unable to get local issuer"):
        await TlsNetwork(memory, stranger).connect(HOST, PORT, timeout_s=5)
    nursery.cancel_scope.cancel()


async def test_pinned_names_count_on_both_sides(
    pki: Pki, memory: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    names = ("broker-a", "broker-b")
    served = await start(nursery, TlsNetwork(memory, pki.options("broker-a", peer_names=names)))
    good = await TlsNetwork(memory, pki.options("broker-b", peer_names=names)).connect(HOST, PORT, timeout_s=5)
    await good.send_all(b"x")
    assert await receive(good, 1) == b"x"
    with pytest.raises(OSError, match="is for broker-a; accepted are elsewhere"):
        await TlsNetwork(memory, pki.options("broker-b", peer_names=("elsewhere",))).connect(HOST, PORT, timeout_s=5)
    other = await TlsNetwork(memory, pki.options("broker-c", peer_names=names)).connect(HOST, PORT, timeout_s=5)
    with suppress(trio.BrokenResourceError):  # it may be gone already
        await other.send_all(b"y")
    await trio.sleep(0.1)
    assert served.received == [b"x"]
    assert any("is for broker-c; accepted are broker-a, broker-b" in reason for reason in served.reasons)
    nursery.cancel_scope.cancel()


async def test_permissive_serves_both_and_connects_plainly(
    pki: Pki, memory: MemoryNetwork, nursery: trio.Nursery
) -> None:
    permissive = TlsNetwork(memory, pki.options(HOST), mode=TlsMode.PERMISSIVE)
    served = await start(nursery, permissive)
    plain = await permissive.connect(HOST, PORT, timeout_s=5)
    encrypted = await TlsNetwork(memory, pki.options("10.0.0.1")).connect(HOST, PORT, timeout_s=5)
    for stream in (plain, encrypted):
        await stream.send_all(b"\0\0\0\x05hello")
        assert await receive(stream, 9) == b"\0\0\0\x05hello"
    assert served.streams[0].send_nowait(b"push") == 4
    assert await receive(plain, 4) == b"push"
    assert not isinstance(plain, TlsStream)
    nursery.cancel_scope.cancel()


async def test_enforcing_refuses_plain_and_a_stalled_handshake(
    pki: Pki, memory: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    served = await start(nursery, TlsNetwork(memory, pki.options(HOST)))
    plain = await memory.connect(HOST, PORT, timeout_s=5)
    await plain.send_all(bytes(8))
    stalled = await memory.connect(HOST, PORT, timeout_s=5)
    await stalled.send_all(b"\x16\x03\x01")
    await trio.sleep(9.9)
    assert len(served.reasons) == 1
    assert "does not speak TLS" in served.reasons[0]
    await trio.sleep(0.2)
    assert "no TLS handshake" in served.reasons[1]
    nursery.cancel_scope.cancel()


async def test_a_server_that_does_not_answer_is_given_up(
    memory: MemoryNetwork, pki: Pki, autojump_clock: MockClock
) -> None:
    await memory.listen(HOST, PORT)
    with pytest.raises(TimeoutError, match="no TLS handshake"):
        await TlsNetwork(memory, pki.options("10.0.0.1")).connect(HOST, PORT, timeout_s=3)
    assert trio.current_time() == pytest.approx(3)
    assert memory.connections[0].closed


async def test_a_sender_waiting_for_the_handshake_meets_the_close(
    pki: Pki, memory: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    listener = await TlsNetwork(memory, pki.options(HOST)).listen(HOST, PORT)
    await memory.connect(HOST, PORT, timeout_s=5)
    stream = await listener.accept()
    nursery.start_soon(trio.sleep, 1)
    async with trio.open_nursery() as sending:

        async def send() -> None:
            with pytest.raises((trio.BrokenResourceError, trio.ClosedResourceError)):
                await stream.send_all(b"x")

        sending.start_soon(send)
        await trio.sleep(1)
        stream.close()
    listener.close()


async def test_files_that_cannot_be_used_are_named(pki: Pki, memory: MemoryNetwork, tmp_path: Path) -> None:
    good = pki.options(HOST)
    (tmp_path / "no.pem").write_text("nothing")
    for bad in (
        replace(good, cert=str(tmp_path / "absent.pem")),
        replace(good, key=good.trust),
        replace(good, trust=str(tmp_path / "no.pem")),
    ):
        with pytest.raises(ConfigError, match="pem cannot be used"):
            secured(memory, bad, TlsMode.ENFORCING)
    with pytest.raises(ConfigError, match="needs a certificate"):
        await TlsNetwork(memory, TlsOptions(trust=good.trust)).listen(HOST, PORT)
    assert secured(memory, TlsOptions(), TlsMode.DISABLED) is memory


def test_old_versions_are_refused(pki: Pki) -> None:
    for context in (client_context(pki.options(HOST)), server_context(pki.options(HOST))):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("says_so", [True, False])
async def test_a_plain_client_is_told_that_the_port_wants_tls(
    pki: Pki, memory: MemoryNetwork, nursery: trio.Nursery, says_so: bool
) -> None:
    """By an alert as ours sends it; a RocketMQ broker just hangs up."""

    async def hang_up() -> None:
        stream = await listener.accept()
        await stream.receive_into(memoryview(bytearray(100_000)))
        stream.close()

    if says_so:
        listening = TlsNetwork(memory, pki.options(HOST))
        await nursery.start(partial(Served().run, listening))
    else:
        listener = await memory.listen(HOST, PORT)
        nursery.start_soon(hang_up)
    async with open_remoting_client(memory, f"{HOST}:{PORT}") as client:
        with pytest.raises(RemotingError, match="it speaks TLS" if says_so else "as one does that requires TLS"):
            await client.invoke(RemotingCommand(28), timeout_s=10)
    nursery.cancel_scope.cancel()


async def test_one_handshake_goes_on_in_each_pass_of_the_event_loop(
    pki: Pki, memory: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of each was taken at once: of a thousand strangers, with a large key, that was seconds."""
    steps = [0]

    class CountingObject(ssl.SSLObject):
        def do_handshake(self) -> None:
            steps[-1] += self.server_side
            super().do_handshake()

    async def count_passes() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            steps.append(0)

    monkeypatch.setattr(ssl.SSLContext, "sslobject_class", CountingObject)
    await start(nursery, TlsNetwork(memory, pki.options(HOST)))
    network = TlsNetwork(memory, pki.options("10.0.0.1"))
    async with trio.open_nursery() as counting:
        counting.start_soon(count_passes)
        async with trio.open_nursery() as strangers:
            for _ in range(30):
                strangers.start_soon(partial(network.connect, HOST, PORT, timeout_s=5))
        counting.cancel_scope.cancel()
    assert sum(steps) >= 30
    assert max(steps) <= 2, "the counter may run before or after them"


async def test_few_new_keys_are_made_in_each_pass_of_the_event_loop(
    pki: Pki, memory: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """They take 50 us for 27 bytes, and half a megabyte was taken in at once: each client held the loop for 0.5 s."""
    options = pki.options(HOST, require_peer_cert=False)
    served = await start(nursery, TlsNetwork(memory, options))
    for _ in range(2):
        client, stream = OpensslClient(), await memory.connect(HOST, PORT, timeout_s=5)
        buffer, count = memoryview(bytearray(65_536)), 0
        while not client.shake_hands(bytes(buffer[:count])):
            await stream.send_all(client.to_send())
            count = await stream.receive_into(buffer)
        client.ask_for_new_keys(600)
        client.write(b"x")
        nursery.start_soon(stream.send_all, client.to_send())
    passes = 0
    while len(served.received) < 2:
        await trio.lowlevel.checkpoint()
        passes += 1
    assert passes >= 2 * 600 / RECORDS_AT_ONCE


async def test_who_asks_for_new_keys_and_takes_nothing_is_cut_off(
    pki: Pki, memory: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Each reply has 27 bytes, which gathered behind what a sender could not get rid of: 18 MB of 8 clients."""
    options = pki.options(HOST, require_peer_cert=False)
    served = await start(nursery, TlsNetwork(memory, options))
    client, stream = OpensslClient(), await memory.connect(HOST, PORT, timeout_s=5)
    buffer, count = memoryview(bytearray(65_536)), 0
    while not client.shake_hands(bytes(buffer[:count])):
        await stream.send_all(client.to_send())
        count = await stream.receive_into(buffer)
    await stream.send_all(client.to_send())
    await trio.testing.wait_all_tasks_blocked()

    async def send_much() -> None:
        with suppress(trio.ClosedResourceError, trio.BrokenResourceError):
            await served.streams[0].send_all(bytes(4 << 20))

    nursery.start_soon(send_much)
    await trio.testing.wait_all_tasks_blocked()
    asked = 0
    while not served.reasons:
        asked += 200
        client.ask_for_new_keys(200)
        await stream.send_all(client.to_send())
        await trio.testing.wait_all_tasks_blocked()
    assert asked * 20 < 400_000, "it answers each with more than 20 bytes"
    assert "takes nothing" in served.reasons[0]


class CountingObject(ssl.SSLObject):
    """Counts the steps of handshakes that listeners take."""

    steps = 0

    def do_handshake(self) -> None:
        CountingObject.steps += self.server_side
        super().do_handshake()


async def steps_until_through(
    host: str, pki: Pki, memory: MemoryNetwork, network: TlsNetwork, *, strangers: Sequence[str]
) -> int:
    """How many steps are taken until a client of ``host`` is through that comes behind strangers who only greet."""
    incoming, greeting = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        client_context(pki.options(HOST)).wrap_bio(incoming, greeting, server_hostname=HOST).do_handshake()
    hello, streams = greeting.read(), []
    for memory.host in strangers:
        streams.append(await memory.connect(HOST, PORT, timeout_s=5))
    for stream in streams:
        assert stream.send_nowait(hello) == len(hello)
    memory.host, before = host, CountingObject.steps
    await network.connect(HOST, PORT, timeout_s=30)
    took = CountingObject.steps - before
    await trio.sleep(1)  # all others have had their turns
    return took


async def test_strangers_of_one_host_keep_nobody_else_from_shaking_hands(
    pki: Pki, memory: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands may come at one moment, and to sign takes milliseconds: who stood behind them was given up."""
    monkeypatch.setattr(ssl.SSLContext, "sslobject_class", CountingObject)
    await start(nursery, network := TlsNetwork(memory, pki.options(HOST)))
    assert await steps_until_through("10.0.0.3", pki, memory, network, strangers=["10.0.0.2"] * 180) < 40


async def test_strangers_of_many_hosts_delay_nobody_who_answers_or_whose_host_is_known(
    pki: Pki, memory: MemoryNetwork, nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred addresses, each with a few that greet and leave: each of our steps stood behind one of all of them."""
    monkeypatch.setattr(ssl.SSLContext, "sslobject_class", CountingObject)
    await start(nursery, network := TlsNetwork(memory, pki.options(HOST)))
    strangers = [f"10.1.0.{number % 60}" for number in range(180)]
    await steps_until_through("10.0.0.3", pki, memory, network, strangers=[])
    known = await steps_until_through("10.0.0.3", pki, memory, network, strangers=strangers)
    waited_once = await steps_until_through("10.0.0.4", pki, memory, network, strangers=strangers)
    assert (known < 40, waited_once < 100) == (True, True), (known, waited_once)
