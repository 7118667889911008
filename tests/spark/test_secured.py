"""A certificate alone, or a file of whom to trust, is enough for TLS: no request goes over the wire in the clear."""

import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

pytest.importorskip("pyspark")
from rmqha.client import Message
from rmqha.errors import RmqhaError
from rmqha.spark.commit_log import open_log
from rmqha.spark.confirmed import confirmed_end
from rmqha.spark.sink.options import parse_sink_options
from rmqha.spark.sink.writer import _producer
from rmqha.spark.source_options import parse_options
from tests.spark.logs import LogWriter
from tests.test_tls import Pki

HANDSHAKE = 22
"""The first byte of a TLS connection."""
GIVEN = [("tlsTrust",), ("tlsCert", "tlsKey"), ("tlsTrust", "tlsCert", "tlsKey")]


class Listener:
    """Notes the first bytes of each connection, and closes it."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        Thread(target=self._listen, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self.heard.append(connection.recv(65536))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.close()


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    options = Pki(tmp_path).options("127.0.0.1")
    return {"tlsTrust": options.trust, "tlsCert": options.cert, "tlsKey": options.key}


def first_bytes(listener: Listener) -> set[int]:
    """Of all connections; the listener closed them only when it had noted that."""
    return {heard[0] for heard in listener.heard if heard}


@pytest.mark.parametrize("names", [(), *GIVEN])
def test_who_asks_what_replicas_hold(
    names: tuple[str, ...], listener: Listener, files: dict[str, str], log: LogWriter
) -> None:
    options = {name: files[name] for name in names}
    source = parse_options({"path": str(log.root), "until": "confirmed", "addresses": listener.address} | options)
    with pytest.raises(RmqhaError, match="does not answer"):
        confirmed_end(open_log(str(log.root)), source.masters)
    assert first_bytes(listener) == {HANDSHAKE if names else 0}


@pytest.mark.parametrize("names", [(), *GIVEN])
def test_who_sends(names: tuple[str, ...], listener: Listener, files: dict[str, str]) -> None:
    options = parse_sink_options({"addresses": listener.address} | {name: files[name] for name in names})
    with pytest.raises(RmqhaError), _producer(options, None) as producer:
        producer.send(Message("orders", b"secret"))
    assert first_bytes(listener) == {HANDSHAKE if names else 0}
