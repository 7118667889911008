"""Questions to a broker in plain blocking code."""

import socket
import time
from itertools import count

import pytest

from rmqha.codec.codes import RequestCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.blocking import BlockingConnection


class Chatty:
    """A broker that says something all the time, and never answers."""

    def settimeout(self, limit_s: float) -> None:
        assert limit_s > 0

    def sendall(self, data: bytes) -> None:
        """Taken."""

    def recv(self, size: int) -> bytes:
        del size
        return RemotingCommand(RequestCode.HEART_BEAT, 7).encode()

    def close(self) -> None:
        """Nothing to close."""


def test_who_talks_all_the_time_and_never_answers_is_not_listened_to_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = count()
    monkeypatch.setattr(socket, "create_connection", lambda _address, _timeout_s: Chatty())
    monkeypatch.setattr(time, "monotonic", lambda: float(next(seconds)))
    with BlockingConnection("10.0.0.1", 10911, timeout_s=100) as connection, pytest.raises(TimeoutError):
        connection.ask(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
    assert next(seconds) < 110
