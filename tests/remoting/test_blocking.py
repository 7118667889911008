"""Questions to a broker in plain blocking code."""

import socket
import time
from contextlib import nullcontext
from itertools import count

import pytest

from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import FLAG_RESPONSE, RemotingCommand, decode_frames
from rmqha.remoting.blocking import BlockingConnection


class Chatty:
    """A broker that says something all the time, and never answers."""

    def getpeername(self) -> tuple[str, int]:
        return ("10.0.0.1", 10911)

    def getsockname(self) -> tuple[str, int]:
        return ("10.0.0.2", 40001)

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


class Scripted(Chatty):
    """Answers each request after its code: None is silence, which lasts until the caller's patience ends."""

    def __init__(self, clock: "Clock", codes: dict[int, int | None]) -> None:
        self._clock, self._codes = clock, codes
        self._answers: list[bytes] = []
        self._limit_s = 0.0
        self.asked: list[int] = []

    def settimeout(self, limit_s: float) -> None:
        self._limit_s = limit_s

    def sendall(self, data: bytes) -> None:
        ((request, *_), _) = decode_frames(data)
        self.asked.append(request.code)
        if (code := self._codes[request.code]) is not None:
            self._answers.append(RemotingCommand(code, request.opaque, FLAG_RESPONSE).encode())

    def recv(self, size: int) -> bytes:
        if self._answers:
            return self._answers.pop(0)
        self._clock.now += self._limit_s
        raise TimeoutError("timed out")


class Clock:
    now = 0.0


RUNTIME, CLUSTER = RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_BROKER_CLUSTER_INFO


@pytest.mark.parametrize(
    ("codes", "told", "asked", "took_s"),
    [
        ({RUNTIME: 0}, 0, [RUNTIME], 0.0),
        ({RUNTIME: 1}, 1, [RUNTIME], 0.0),
        ({RUNTIME: None, CLUSTER: 0}, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, [RUNTIME, CLUSTER], 1.0),
        ({RUNTIME: None, CLUSTER: 3}, None, [RUNTIME, CLUSTER], 5.0),
        ({RUNTIME: None, CLUSTER: None}, None, [RUNTIME, CLUSTER], 5.0),
    ],
    ids=["a broker", "a refusal", "a name server of RocketMQ's", "a broker that hangs", "silence"],
)
def test_a_name_server_that_is_silent_about_what_it_does_not_know_is_told_from_a_broker_that_hangs(
    codes: dict[int, int | None], told: int | None, asked: list[int], took_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`topics list` at RocketMQ's own name server: "cannot be reached: no answer within 5 s", and it ran."""
    clock = Clock()
    peer = Scripted(clock, codes)
    monkeypatch.setattr(socket, "create_connection", lambda _address, _timeout_s: peer)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    refused = pytest.raises(TimeoutError) if told is None else nullcontext()
    with BlockingConnection("10.0.0.1", 9876, timeout_s=5) as connection, refused:
        assert connection.ask(RemotingCommand(RUNTIME), known_instead=RemotingCommand(CLUSTER)).code == told
    assert peer.asked == asked
    assert clock.now == pytest.approx(took_s)
