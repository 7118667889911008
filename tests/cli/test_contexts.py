"""`--context NAME`: brokers' addresses by name, and what counts before what."""

import json
from pathlib import Path

import pytest

from rmqha.cli.main import run
from rmqha.codec.codes import RequestCode
from tests.cli.fake_brokers import FakeBrokers, runtime

Output = pytest.CaptureFixture[str]
A, B, C = "10.0.0.1:10911", "10.0.0.2:10921", "10.0.0.3:10911"


@pytest.fixture
def contexts(tmp_path: Path, fake_brokers: FakeBrokers, monkeypatch: pytest.MonkeyPatch) -> Path:
    fake_brokers.answers = {at: {RequestCode.GET_BROKER_RUNTIME_INFO: runtime()} for at in (A, B, C, "127.0.0.1:10911")}
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("RMQHA_BROKER", raising=False)
    monkeypatch.delenv("RMQHA_CONTEXT", raising=False)
    path = tmp_path / "rmqha" / "contexts.toml"
    path.parent.mkdir()
    path.write_text(f'[prod]\nbroker = "10.0.0.1;{B}"\n[lab]\nbroker = ["{C}"]\n')
    return path


@pytest.mark.parametrize(
    ("arguments", "environment", "asked"),
    [
        (["--context", "prod"], {}, [A, B]),
        (["--context", "lab"], {}, [C]),
        ([], {}, ["127.0.0.1:10911"]),
        ([], {"RMQHA_CONTEXT": "lab"}, [C]),
        (["-b", A], {"RMQHA_CONTEXT": "lab"}, [A]),
        (["-b", A], {"RMQHA_CONTEXT": "lab", "RMQHA_BROKER": B}, [A]),
        (["--context", "lab"], {"RMQHA_CONTEXT": "prod", "RMQHA_BROKER": A}, [C]),
        (["--context", "lab"], {"RMQHA_BROKER": A}, [C]),
    ],
)
def test_the_command_line_counts_before_the_environment(
    arguments: list[str],
    environment: dict[str, str],
    asked: list[str],
    contexts: Path,
    fake_brokers: FakeBrokers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert run(["status", *arguments]) in (0, 1)
    assert [at for at, _, _ in fake_brokers.asked] == asked


def test_names_for_a_script(contexts: Path, capsys: Output) -> None:
    assert run(["config", "contexts", "--format", "json"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"name": "prod", "brokers": ["10.0.0.1", B]},
        {"name": "lab", "brokers": [C]},
    ]


def test_both_at_once_is_a_mistake(contexts: Path, capsys: Output) -> None:
    assert run(["status", "--context", "lab", "-b", A]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_so_it_is_in_the_environment(
    contexts: Path, fake_brokers: FakeBrokers, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    """A profile names a broker, the shift a context: the command asked, and changed, the former."""
    monkeypatch.setenv("RMQHA_BROKER", A)
    monkeypatch.setenv("RMQHA_CONTEXT", "lab")
    assert run(["status"]) == 2
    assert "RMQHA_BROKER and RMQHA_CONTEXT are both set" in capsys.readouterr().err
    assert not fake_brokers.asked


def test_a_wrong_address_in_the_file_is_the_contexts(contexts: Path, capsys: Output) -> None:
    contexts.write_text("[prod]\nbroker = 'a:b'")
    assert run(["status", "--context", "prod"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "the context prod:" in told
    assert "--broker" not in told


def test_a_name_that_is_not_there_is_answered_with_those_that_are(contexts: Path, capsys: Output) -> None:
    assert run(["status", "--context", "prd"]) == 2
    assert f"no context 'prd' in {contexts}: did you mean prod?" in capsys.readouterr().err
    assert run(["status", "--context", "xyz"]) == 2
    assert "there are lab, prod" in capsys.readouterr().err
    contexts.unlink()
    assert run(["status", "--context", "prod"]) == 2
    assert "there are none" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[prod", "cannot be read"),
        ("prod = 1", "must have one key, broker"),
        ("[prod]\nbrokers = 'a'", "must have one key, broker"),
        ("[prod]\nbroker = 1", "neither an address nor a list"),
        ("[prod]\nbroker = []", "neither an address nor a list"),
        ("[prod]\nbroker = 'a:b'", "port"),
        ("[prod]\nbroker = ''", "the context prod: no address is given"),
        ("[prod]\nbroker = [' ', ';']", "the context prod: no address is given"),
    ],
)
def test_a_file_that_says_something_else(text: str, told: str, contexts: Path, capsys: Output) -> None:
    contexts.write_text(text)
    assert run(["status", "--context", "prod"]) == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_they_are_listed(contexts: Path, capsys: Output) -> None:
    assert run(["config", "contexts"]) == 0
    assert capsys.readouterr().out == f"prod  10.0.0.1;{B}\nlab  {C}\n"
    contexts.unlink()
    assert run(["config", "contexts"]) == 0
    assert str(contexts) in capsys.readouterr().err
