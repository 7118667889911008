import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import chain, repeat

import pytest

from rmqha.cli.main import run
from rmqha.codec.codes import STATUS_KEY
from rmqha.codec.frame_decoder import FrameDecoder
from rmqha.codec.remoting import FLAG_RESPONSE, RemotingCommand
from tests.cli.facts import connection, master
from tests.e2e.processes import nobody_listens

Output = pytest.CaptureFixture[str]


@contextmanager
def fake_broker(*tables: dict[str, str] | bytes, busy_s: float = 0) -> Iterator[str]:
    """Answer each connection's one request, after a while, with the next table (or raw bytes), the last one for ever.

    Yields the address.
    """
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            for table in chain(tables, repeat(tables[-1])):
                try:
                    client, _ = server.accept()
                except OSError:  # shut down
                    return
                with client:
                    (request,) = FrameDecoder().receive_data(client.recv(65536))
                    assert request.code == 28
                    time.sleep(busy_s)
                    if isinstance(table, bytes):
                        client.sendall(table)
                        continue
                    body = json.dumps({"table": table}).encode()
                    client.sendall(RemotingCommand(0, request.opaque, FLAG_RESPONSE, body=body).encode())

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(60)


def table(**facts: object) -> dict[str, str]:
    return {STATUS_KEY: json.dumps(master() | facts)}


IN_SYNC = {"connections": [connection()], "refused": []}


def test_the_verdict_comes_first_and_a_good_broker_is_exit_code_0(capsys: Output) -> None:
    with fake_broker(table(ha=IN_SYNC)) as address:
        assert run(["status", "--broker", address]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ok: SYNC_MASTER a (id 0), slaves in sync: 1 of 1 connected")
    assert any("max 100" in line and "flushed 100" in line for line in lines)
    assert any("10.0.0.2:5000  in-sync  ack 90  lag 10 B, 0.5 s  20 B/s" in line for line in lines)


def test_a_degraded_broker_says_why_and_is_exit_code_1(capsys: Output) -> None:
    with fake_broker(table()) as address:
        assert run(["status", "--broker", address]) == 1
    out = capsys.readouterr().out
    assert out.startswith("degraded: ")
    assert "because  0 of the 1 slaves" in out


def test_json_has_the_verdict_and_all_facts(capsys: Output) -> None:
    with fake_broker(table(ha=IN_SYNC)) as address:
        assert run(["status", "--broker", address, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["verdict"], document["inSync"], document["max_offset"]) == ("ok", True, 100)


def test_nobody_there_is_exit_code_3(capsys: Output) -> None:
    with nobody_listens() as port:
        assert run(["status", "--broker", f"127.0.0.1:{port}"]) == 3
    err = capsys.readouterr().err
    assert f"Error: the broker at 127.0.0.1:{port} cannot be reached" in err
    assert "Why:   Connection refused" in err


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_what_is_no_broker_is_unreachable(answer: bytes, capsys: Output) -> None:
    with fake_broker(answer) as address:
        assert run(["status", "--broker", address]) == 3
    assert "cannot be reached" in capsys.readouterr().err


def test_a_port_that_speaks_tls_is_named(capsys: Output) -> None:
    with fake_broker(bytes.fromhex("15030300020246")) as address:
        assert run(["status", "--broker", address]) == 3
    assert "it speaks TLS, and this connection does not" in capsys.readouterr().err


def test_a_broker_that_never_answers_is_unreachable(capsys: Output) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert run(["status", "--broker", address, "--timeout", "0.05"]) == 3
    assert "no answer within 0.05 s" in capsys.readouterr().err


def test_wait_asks_until_it_is_in_sync(capsys: Output, no_pause: None) -> None:
    with fake_broker(table(), table(), table(ha=IN_SYNC)) as address:
        assert run(["status", "--broker", address, "--wait", "in-sync"]) == 0
    assert capsys.readouterr().out.startswith("ok: ")


def test_wait_gives_up_and_says_what_is_missing(capsys: Output) -> None:
    with fake_broker(table()) as address:
        assert run(["status", "--broker", address, "--wait", "in-sync", "--timeout", "0.1"]) == 1
    assert "0 of the 1 slaves that a send needs are in sync" in capsys.readouterr().err


def test_wait_says_of_a_busy_broker_what_is_missing_and_not_that_it_is_unreachable(capsys: Output) -> None:
    with fake_broker(table(), table(), busy_s=0.1) as address:
        assert run(["status", "--broker", address, "--wait", "in-sync", "--timeout", "0.25"]) == 1
    assert "0 of the 1 slaves that a send needs are in sync" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["host:port", "a:b:c", "::1:10911"])
def test_an_address_that_is_none_is_wrong_usage(address: str) -> None:
    assert run(["status", "--broker", address]) == 2


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqha.cli.status.ASK_AGAIN_AFTER_S", 0.0)
