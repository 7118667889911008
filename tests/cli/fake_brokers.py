"""Brokers that answer the commands' questions by a table, without a network."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from rmqha.cli.ask import BrokerConnection
from rmqha.cli.errors import UnreachableError
from rmqha.codec.codes import STATUS_KEY, RequestCode, ResponseCode
from rmqha.codec.java_json import dumps
from rmqha.codec.remoting import FLAG_RESPONSE, RemotingCommand
from tests.cli.facts import master

Answer = RemotingCommand | Callable[[dict[str, str]], RemotingCommand]


def answer(
    document: Any = None, *, code: int = 0, remark: str = "", body: bytes = b"", **fields: str
) -> RemotingCommand:
    """An answer; ``document`` is its body as JSON."""
    if document is not None:
        body = dumps(document).encode()
    return RemotingCommand(code, 0, FLAG_RESPONSE, remark=remark, ext_fields=fields, body=body)


def runtime(**facts: Any) -> RemotingCommand:
    """What a master answers to 28; ``facts`` differ."""
    return answer({"table": {STATUS_KEY: json.dumps(master() | facts)}})


class FakeBrokers:
    """By address, what each answers to a request code: an answer, or what makes one of the request's fields.

    An address that is not there cannot be reached; a code that is not there is not supported.
    """

    def __init__(self) -> None:
        self.answers: dict[str, dict[RequestCode, Answer]] = {}
        self.asked: list[tuple[str, RequestCode, dict[str, str]]] = []

    def ask(self, connection: BrokerConnection, request: RemotingCommand) -> RemotingCommand:
        """As :meth:`BrokerConnection.ask`."""
        broker, code = self.answers.get(connection.address), RequestCode(request.code)
        if broker is None:
            raise UnreachableError(connection.address, "Connection refused")
        if connection.credentials is not None:
            connection.credentials.sign(request)
        fields = dict(request.ext_fields)
        self.asked.append((connection.address, code, fields))
        found = broker.get(code, RemotingCommand(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 0, FLAG_RESPONSE))
        return found if isinstance(found, RemotingCommand) else found(fields)

    def codes_asked(self) -> list[RequestCode]:
        """All requests so far, in order."""
        return [code for _, code, _ in self.asked]


@pytest.fixture
def fake_brokers(monkeypatch: pytest.MonkeyPatch) -> FakeBrokers:
    brokers = FakeBrokers()

    def ask(connection: BrokerConnection, request: RemotingCommand) -> RemotingCommand:
        return brokers.ask(connection, request)

    monkeypatch.setattr(BrokerConnection, "ask", ask)
    return brokers
