"""How long commands wait for an answer, or for what --wait names: as --timeout says, else as their help does."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import pytest

from rmqha.cli import ask, dledger_status, status
from rmqha.cli.ask import BrokerConnection
from rmqha.cli.errors import UnreachableError
from rmqha.cli.main import cli, run
from rmqha.cli.man import contexts_of
from rmqha.cli.verdict import Verdict
from rmqha.codec.codes import STATUS_KEY
from rmqha.codec.remoting import RemotingCommand
from tests.cli.facts import connection, master

Output = pytest.CaptureFixture[str]
A: Final = "10.0.0.1:10911"
BROKER: Final = ("-b", A)
ASKING: Final = {
    "topics list": BROKER,
    "topics describe": ("t", *BROKER),
    "topics create": ("t", *BROKER),
    "topics update": ("t", "--perm", "r", *BROKER),
    "topics delete": ("t", "--yes", *BROKER),
    "groups list": BROKER,
    "groups describe": ("g", *BROKER),
    "groups reset": ("g", "--topic", "t", "--to", "latest", *BROKER),
    "groups delete": ("g", "--yes", *BROKER),
    "message get": ("--offset", "0", *BROKER),
    "top": ("--count", "1", *BROKER),
    "status": BROKER,
    "doctor": ("--set", "haPeers=10.0.0.2:10912", "--set", "namesrvAddr=10.0.0.9:9876", "-c", "{conf}"),
    "promote": ("--role", "ASYNC_MASTER", "-c", "{slave}"),
}
"""Commands with --timeout for each answer, and how each is made to ask."""
OTHERS: Final = {"send", "dashboard", "dledger status"}
"""Of these --timeout is for something else, or for a client of their own."""


class Clock:
    """In place of the module ``time``."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def with_timeout() -> Iterator[tuple[str, float]]:
    """Commands that have --timeout, each with its default; of the answer alone, where it is for more."""
    for context in contexts_of(cli, "rmqha"):
        for option in context.command.get_params(context):
            if isinstance(option, click.Option) and option.name == "timeout_s":
                name = context.command_path.removeprefix("rmqha ")
                told = re.search(r"For the answer \((\d+)\)", option.help or "")
                yield name, float(told[1] if told else str(option.default))


def asked_for(command: str, *options: str, places: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> set[float]:
    """How long the answers were awaited."""
    seconds = set[float]()

    def silent(connection: BrokerConnection, _request: RemotingCommand) -> RemotingCommand:
        seconds.add(connection._timeout_s)
        raise UnreachableError(connection.address, "Connection refused")

    monkeypatch.setattr(BrokerConnection, "ask", silent)
    arguments = [argument.format(**places) for argument in ASKING[command]]
    run([*command.split(), *arguments, *options])
    return seconds


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    store = f"storePathRootDir={tmp_path}/store\nlistenPort=0\nhaListenPort=0\n"
    (tmp_path / "a.conf").write_text(store)
    slave = f"storePathRootDir={tmp_path}/s\nbrokerRole=SLAVE\nbrokerId=1\nhaMasterAddress=10.0.0.2:10912\n"
    (tmp_path / "slave.conf").write_text(slave)
    return {"conf": str(tmp_path / "a.conf"), "slave": str(tmp_path / "slave.conf")}


def test_each_answer_is_awaited_as_long_as_is_said(
    places: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    defaults = dict(with_timeout())
    assert defaults.keys() == ASKING.keys() | OTHERS, "a command that is new is to be named here"
    for command in ASKING:
        assert asked_for(command, places=places, monkeypatch=monkeypatch) == {defaults[command]}, command
        asked = asked_for(command, "--timeout", "0.25", places=places, monkeypatch=monkeypatch)
        assert asked == {0.25}, command
    capsys.readouterr()


@pytest.mark.parametrize(("options", "seconds"), [((), 60), (("--timeout", "7"), 7), (("--timeout", "0.001"), 0)])
@pytest.mark.parametrize("command", ["status", "dledger status"])
def test_what_wait_names_is_awaited_as_long_as_is_said(
    command: str, options: tuple[str, ...], seconds: float, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    """Each asks again and again, and the last time when the time is over, or nearly so."""
    clock, verdict = Clock(), Verdict("degraded", "late", (), in_sync=False)
    monkeypatch.setattr(status, "time", clock)
    monkeypatch.setattr(dledger_status, "time", clock)
    monkeypatch.setattr(status, "_ask", lambda *_, **__: ({}, verdict, ""))
    monkeypatch.setattr(dledger_status, "_ask", lambda *_: ([], verdict))
    help_ = next(told for name, told in help_of_timeout() if name == command)
    assert "60" in help_
    assert run([*command.split(), "--wait", "in-sync", *options]) == 1
    assert "not in sync within" in " ".join(capsys.readouterr().err.split())
    assert clock.now_s - 1000 == pytest.approx(seconds, abs=0.25)


def help_of_timeout() -> Iterator[tuple[str, str]]:
    for context in contexts_of(cli, "rmqha"):
        for option in context.command.get_params(context):
            if isinstance(option, click.Option) and option.name == "timeout_s":
                yield context.command_path.removeprefix("rmqha "), f"{option.help} {option.default}"


def test_who_waits_gives_each_answer_its_time_and_not_more_than_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    """But a second at least: a busy broker is not taken for one that cannot be reached."""
    clock, asked = Clock(), list[float]()

    def table(_address: str, *, timeout_s: float) -> dict[str, Any]:
        asked.append(timeout_s)
        clock.now_s += 1
        return {STATUS_KEY: json.dumps(master(connection("catching-up")))}

    monkeypatch.setattr(status, "time", clock)
    monkeypatch.setattr(ask, "runtime_table", table)
    assert run(["status", *BROKER, "--wait", "in-sync", "--timeout", "8"]) == 1
    assert asked == pytest.approx([5.0, 5.0, 5.0, 4.4, 3.2, 2.0, 1.0, 1.0])
    capsys.readouterr()
