"""`rmqha dashboard`: whom it watches, and that each option arrives."""

from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("h11", reason="h11 is in the extra [web]")

from rmqha.cli.main import run
from rmqha.dashboard import server
from rmqha.dashboard.server import Options

A, B, NAMES = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.9:9876"
DEFAULTS: Final[dict[str, Any]] = {
    "addresses": ("127.0.0.1:10911",), "host": "127.0.0.1", "port": 8090, "names": (), "interval_s": 5.0,
    "timeout_s": 3.0, "with_groups": True,
}  # fmt: skip


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Options]:
    """What it was started with."""
    found = list[Options]()

    def run_dashboard(options: Options) -> int:
        found.append(options)
        return 0

    monkeypatch.setattr(server, "run_dashboard", run_dashboard)
    monkeypatch.setattr("rmqha.logs.setup_logging", lambda **_: None)
    contexts = tmp_path / "contexts.toml"
    contexts.write_text(f'[prod]\nbroker = ["{A}", "{B}"]\n')
    monkeypatch.setattr("rmqha.cli.contexts.context_file", lambda: contexts)
    return found


def options_of(started: list[Options], *arguments: str) -> dict[str, Any]:
    with pytest.raises(SystemExit) as ended:
        run(["dashboard", *arguments])
    assert ended.value.code == 0
    return vars(started.pop())


@pytest.mark.parametrize(
    ("arguments", "changes"),
    [
        ("", {}),
        ("--listen 8091", {"port": 8091}),
        ("--listen 127.0.0.2:8091", {"host": "127.0.0.2", "port": 8091}),
        ("--name a --name b", {"names": ("a", "b")}),
        ("--interval 2s", {"interval_s": 2.0}),
        ("--interval 1m", {"interval_s": 60.0}),
        ("--timeout 0.5", {"timeout_s": 0.5}),
        ("--no-groups", {"with_groups": False}),
    ],
)
def test_each_option_arrives_and_changes_nothing_else(
    arguments: str, changes: dict[str, Any], started: list[Options]
) -> None:
    assert options_of(started, *arguments.split()) == DEFAULTS | changes


@pytest.mark.parametrize(
    ("arguments", "environment", "addresses"),
    [
        (f"-b {A}", {}, (A,)),
        (f"-b {A} -b {B}", {}, (A, B)),
        ("--namesrv 10.0.0.9", {}, (NAMES,)),
        (f"-b {A} --namesrv {NAMES}", {}, (A, NAMES)),
        ("--context prod", {}, (A, B)),
        ("", {"RMQHA_BROKER": B}, (B,)),
        ("", {"RMQHA_CONTEXT": "prod"}, (A, B)),
        (f"--namesrv {NAMES}", {"RMQHA_BROKER": B}, (B, NAMES)),
    ],
)
def test_name_servers_are_watched_beside_the_brokers_that_were_named_and_not_beside_the_default(
    arguments: str,
    environment: dict[str, str],
    addresses: tuple[str, ...],
    started: list[Options],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    assert options_of(started, *arguments.split()) == DEFAULTS | {"addresses": addresses}


@pytest.mark.parametrize("interval", ["1999ms", "61s"])
def test_an_interval_that_is_too_short_or_too_long_is_refused(interval: str, started: list[Options]) -> None:
    assert run(["dashboard", "--interval", interval]) == 2
    assert started == []
