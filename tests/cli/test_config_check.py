"""`rmqha config check` looks at all that a start reads, the accounts too."""

from pathlib import Path

import pytest

from rmqha.cli.main import run
from tests.broker.acl.files import account, home_with

Output = pytest.CaptureFixture[str]


def conf(directory: Path, text: str = "") -> str:
    path = directory / "broker.conf"
    path.write_text(f"brokerName=a\naclEnable=true\nrocketmqHome={directory}\n{text}")
    return str(path)


def test_accounts_are_read(tmp_path: Path, capsys: Output) -> None:
    home_with(tmp_path, "accounts:\n" + account("someone", "topicPerm: [a=PUB]"))
    assert run(["config", "check", conf(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "good, ASYNC_MASTER a" in captured.out
    assert "topicPerm" in captured.err


def test_no_accounts_or_damaged_ones_are_a_problem(tmp_path: Path, capsys: Output) -> None:
    assert run(["config", "check", conf(tmp_path)]) == 2
    assert "reads accounts here" in capsys.readouterr().err
    home_with(tmp_path, "accounts:\n  - accessKey: [\n")
    assert run(["config", "check", conf(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert "plain_acl.yml:" in captured.err
    assert "cannot be used, problems: 1" in captured.out


def test_the_credentials_of_the_broker_itself_are_read(tmp_path: Path, capsys: Output) -> None:
    home_with(tmp_path)
    tools = tmp_path / "tools.yml"
    assert run(["config", "check", conf(tmp_path, f"aclCredentialsPath={tools}\n")]) == 2
    assert f"{tools}: no credentials can be read here" in capsys.readouterr().err
