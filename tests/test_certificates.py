"""Certificates that are read again: for new connections, all or none, by SIGHUP."""

import os
import signal
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from weakref import WeakSet

import pytest
import structlog.testing
import trio
from trio.testing import MockClock

from rmqha import certificates, process
from rmqha.certificates import TlsOptions
from rmqha.errors import ConfigError
from rmqha.tls import TlsNetwork, TlsStream
from rmqha.transport import UntrustedPeerError
from tests.fakes import MemoryNetwork
from tests.test_tls import HOST, PORT, Pki, receive, start

pytest.importorskip("trustme", reason="trustme is in the extra [dev]")


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


@pytest.fixture(autouse=True)
def _nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks of earlier tests, of which some files are bad, may not be collected yet; what is bad here stays here."""
    monkeypatch.setattr(certificates, "_in_use", WeakSet())
    monkeypatch.setattr(certificates, "_last_reading", certificates._LastReading())


def spoil(path: str) -> None:
    Path(path).write_text("no such thing")


async def connected(network: TlsNetwork) -> tuple[TlsStream, int]:
    """A connection, and the number of the certificate that it was shown."""
    stream = await network.connect(HOST, PORT, timeout_s=5)
    assert isinstance(stream, TlsStream)
    shown = stream._tls.getpeercert()
    assert shown is not None
    return stream, int(str(shown["serialNumber"]), 16)


async def test_new_connections_go_by_the_new_files_and_old_ones_go_on(
    pki: Pki, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    memory = MemoryNetwork(host="10.0.0.1")
    await start(nursery, TlsNetwork(memory, options := pki.options(HOST)))
    clients = TlsNetwork(memory, pki.options("10.0.0.1"))
    old, first = await connected(clients)
    pki.options(HOST)
    assert options.cert in await certificates.read_again()
    new, second = await connected(clients)
    assert first != second
    for stream in (old, new):
        await stream.send_all(b"hello")
        assert await receive(stream, 5) == b"hello"
    nursery.cancel_scope.cancel()


async def test_whom_a_connecting_side_trusts_is_read_again_too(
    pki: Pki, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    memory = MemoryNetwork(host="10.0.0.1")
    server = pki.options(HOST)
    await start(nursery, TlsNetwork(memory, server))
    clients = TlsNetwork(memory, pki.options("10.0.0.1"))
    await connected(clients)
    Pki(pki.directory)  # another authority, in the same file
    await certificates.read_again()
    with pytest.raises((UntrustedPeerError, ConnectionError)):
        await connected(clients)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("side", ["client", "server"])
@pytest.mark.parametrize("is_named", [True, False])
async def test_the_systems_authorities_count_where_none_is_named_and_only_there(
    side: str, pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_named: bool, autojump_clock: MockClock
) -> None:
    """Everybody can have a certificate of one of these: beside one's own authority they let everybody in."""
    public = Pki(tmp_path, "public")
    monkeypatch.setenv("SSL_CERT_FILE", str(public.trust))
    theirs, own = ("10.0.0.1", HOST) if side == "server" else (HOST, "10.0.0.1")
    stranger = replace(public.options(theirs), trust=str(pki.trust))
    ours = replace(pki.options(own), trust=str(pki.trust) if is_named else "")
    served, coming = (ours, stranger) if side == "server" else (stranger, ours)
    assert await is_let_in(served, coming) is not is_named


async def is_let_in(served: TlsOptions, coming: TlsOptions) -> bool:
    """Whether both sides take the other's certificate."""
    memory = MemoryNetwork(host="10.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.cancel_scope.deadline = trio.current_time() + 60
        await start(nursery, TlsNetwork(memory, served))
        try:
            stream, _ = await connected(TlsNetwork(memory, coming))
            await stream.send_all(b"hello")
            return await receive(stream, 5) == b"hello"
        except (OSError, trio.BrokenResourceError):
            return False
        finally:
            nursery.cancel_scope.cancel()
    raise AssertionError("neither of both came to an end")


@pytest.mark.parametrize("bad", ["cert", "key", "trust"])
async def test_files_of_which_one_is_bad_change_nothing(
    bad: str, pki: Pki, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    memory = MemoryNetwork(host="10.0.0.1")
    options = pki.options(HOST)
    await start(nursery, TlsNetwork(memory, options))
    clients = TlsNetwork(memory, pki.options("10.0.0.1"))
    _, first = await connected(clients)
    pki.options(HOST)
    spoil(getattr(options, bad))
    with pytest.raises(ConfigError, match="cannot be used"):
        await certificates.read_again()
    assert getattr(options, bad) in certificates.why_kept()
    assert (await connected(clients))[1] == first
    pki.options(HOST)
    Pki(pki.directory)
    await certificates.read_again()
    assert certificates.why_kept() == ""
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("bad", ["cert", "key", "trust"])
def test_a_file_that_is_missing_is_the_one_that_is_named(bad: str, pki: Pki) -> None:
    """A missing key was told as its certificate's."""
    options = pki.options(HOST)
    assert certificates.why_unusable(options) == ""
    Path(getattr(options, bad)).unlink()
    told = f"TLS: {getattr(options, bad)} cannot be used: No such file or directory"
    assert certificates.why_unusable(options) == told


def test_another_ones_key_is_named_with_the_certificate(pki: Pki) -> None:
    options, other = pki.options(HOST), pki.options("10.0.0.1")
    told = f"TLS: {options.cert} cannot be used with the key {other.key}: "
    assert certificates.why_unusable(replace(options, key=other.key)).startswith(told)


async def test_a_hangup_has_them_read_again_and_what_is_bad_is_said_once(
    pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_has_terminal", lambda: False)
    network = TlsNetwork(MemoryNetwork(), options := pki.options(HOST))
    valid = certificates.validity(options.cert)
    assert valid is not None
    stop = trio.Event()

    async def live(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        os.kill(os.getpid(), signal.SIGHUP)
        while not logs:
            await trio.lowlevel.checkpoint()
        spoil(options.cert)
        os.kill(os.getpid(), signal.SIGHUP)
        while len(logs) < 2:
            await trio.lowlevel.checkpoint()
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()

    with structlog.testing.capture_logs() as logs, trio.fail_after(120):
        await process.serve("broker", live, stop.set)
    del network
    assert [(one["event"], one["log_level"]) for one in logs] == [
        ("certificates.read", "info"),
        ("certificates.kept", "warning"),
        ("broker.stopping", "info"),
    ]
    assert options.cert in logs[0]["files"]
    assert datetime.fromisoformat(logs[0]["valid_until"]).timestamp() == valid.ends_s
    assert options.cert in logs[1]["reason"]


async def test_a_key_may_be_in_the_file_of_its_certificate(
    pki: Pki, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    memory = MemoryNetwork(host="10.0.0.1")
    apart = pki.options(HOST)
    both = pki.directory / "both.pem"
    joined = [await trio.Path(part).read_text() for part in (apart.key, apart.cert)]
    await trio.Path(both).write_text("".join(joined))
    await start(nursery, TlsNetwork(memory, replace(apart, cert=str(both), key="")))
    await connected(TlsNetwork(memory, pki.options("10.0.0.1")))
    nursery.cancel_scope.cancel()
