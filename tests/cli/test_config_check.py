"""`rmqha config check` looks at all that a start reads, the accounts too."""

import json
import re
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import pytest

from rmqha.cli.doctor_host import check_software
from rmqha.cli.finding import FAIL
from rmqha.cli.main import run
from rmqha.config import load_config
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


def test_all_problems_of_accounts_and_credentials_come_at_once(tmp_path: Path, capsys: Output) -> None:
    home_with(tmp_path, "accounts:\n  - accessKey: a\n  - secretKey: b\n")
    tools = tmp_path / "tools.yml"
    assert run(["config", "check", conf(tmp_path, f"aclCredentialsPath={tools}\n")]) == 2
    captured = capsys.readouterr()
    assert [line.partition(": ")[0].removeprefix(str(tmp_path)) for line in captured.err.splitlines()] == [
        *["/conf/plain_acl.yml:2"] * 2, *["/conf/plain_acl.yml:3"] * 2, "/tools.yml",
    ]  # fmt: skip
    assert "cannot be used, problems: 5" in captured.out


TLS = {"broker.conf": ("tls", "haTls"), "namesrv.conf": ("tls",)}


@pytest.mark.parametrize(("name", "prefix"), [(name, prefix) for name, both in TLS.items() for prefix in both])
def test_certificates_that_no_start_can_use_are_a_problem(
    name: str, prefix: str, tmp_path: Path, capsys: Output
) -> None:
    """They were good, and each start ended with them."""
    pytest.importorskip("trustme", reason="trustme is in the extra [dev]")
    pki = import_module("tests.test_tls").Pki(tmp_path)
    options = pki.options("a")
    files = {"CertPath": options.cert, "KeyPath": options.key, "TrustCertPath": options.trust}
    path = tmp_path / name
    lines = [f"{prefix}{key}={file}" for key, file in files.items()]
    path.write_text("\n".join([f"{prefix}Mode=enforcing", "bindAddress=127.0.0.1", *lines]))
    assert run(["config", "check", str(path)]) == 0
    capsys.readouterr()
    Path(options.key).unlink()
    assert run(["config", "check", str(path)]) == 2
    assert f"{options.key} cannot be used" in capsys.readouterr().err
    path.write_text(path.read_text().replace("enforcing", "disabled"))
    assert run(["config", "check", str(path)]) == 0


def test_a_certificate_that_has_ended_is_noted(tmp_path: Path, capsys: Output) -> None:
    """The file was good, and what was started with it was refused by all others."""
    trustme = pytest.importorskip("trustme", reason="trustme is in the extra [dev]")
    issued = trustme.CA().issue_cert(
        "a", not_before=datetime(2000, 1, 1, tzinfo=UTC), not_after=datetime(2020, 1, 1, tzinfo=UTC)
    )
    issued.private_key_pem.write_to_path(tmp_path / "a.key")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "a.pem")
    path = tmp_path / "broker.conf"
    keys = {"CertPath": "a.pem", "KeyPath": "a.key", "TrustCertPath": "a.pem"}
    path.write_text("tlsMode=enforcing\n" + "".join(f"tls{key}={tmp_path}/{file}\n" for key, file in keys.items()))
    assert run(["config", "check", str(path)]) == 0
    assert re.search(rf"note: {tmp_path}/a.pem ended [0-9.]+ days ago: others refuse it", capsys.readouterr().err)


@pytest.mark.parametrize(("name", "option"), [("namesrv.conf", []), ("ns-1.properties", ["--kind", "namesrv"])])
def test_a_name_servers_file(name: str, option: list[str], tmp_path: Path, capsys: Output) -> None:
    """Its keys were unknown ones of a broker's."""
    path = tmp_path / name
    path.write_text("listenPort=9876\nbindAddress=127.0.0.1\nuseEpollNativeSelector=false\n")
    assert run(["config", "check", *option, str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: good, name server on port 9876\n"
    path.write_text("listenPort=70000\nlistenProt=1\nbrokerRole=SLAVE\n")
    assert run(["config", "check", *option, str(path)]) == 2
    captured = capsys.readouterr()
    assert [line.removeprefix(f"{path}:").partition(":")[0] for line in captured.err.splitlines()] == ["1", "2", "3"]
    assert "nearest known key: listenPort" in captured.err
    assert f"{path}: cannot be used, problems: 3" in captured.out


def test_a_file_of_either_kind_is_known_by_its_name_unless_it_is_said(tmp_path: Path, capsys: Output) -> None:
    broker = tmp_path / "namesrv-host.conf"
    broker.write_text("brokerName=a\n")
    assert run(["config", "check", str(broker)]) == 2
    assert run(["config", "check", "--kind", "broker", str(broker)]) == 0
    assert "good, ASYNC_MASTER a" in capsys.readouterr().out


def test_the_credentials_of_the_broker_itself_are_read(tmp_path: Path, capsys: Output) -> None:
    home_with(tmp_path)
    tools = tmp_path / "tools.yml"
    assert run(["config", "check", conf(tmp_path, f"aclCredentialsPath={tools}\n")]) == 2
    assert f"{tools}: no credentials can be read here" in capsys.readouterr().err


def test_each_file_is_an_object_for_a_script(tmp_path: Path, capsys: Output) -> None:
    good, bad = tmp_path / "namesrv-1.conf", tmp_path / "namesrv-2.conf"
    good.write_text("listenPort=9876\nuseEpollNativeSelector=false\n")
    bad.write_text("listenPort=70000\n")
    assert run(["config", "check", "--format", "json", str(good), str(bad)]) == 2
    first, second = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (first["file"], first["good"], first["what"]) == (str(good), True, "name server on port 9876")
    assert (second["good"], second["what"], len(second["problems"])) == (False, None, 1)
    assert first["notes"] != first["problems"] == []


@pytest.mark.parametrize("name", ["master.conf", "namesrv.conf"])
def test_a_library_that_a_start_would_miss_is_a_problem(
    name: str, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade stopped a broker whose new installation could not start it."""
    (tmp_path / name).write_text("metricsListen=127.0.0.1:9100\n")
    monkeypatch.setitem(sys.modules, "rmqha.metrics.observed", None)
    assert run(["config", "check", str(tmp_path / name)]) == 2
    assert "pip install 'rmqha[web]'" in capsys.readouterr().err


def test_doctor_says_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rmqha.metrics.observed", None)
    config = load_config(None, {"metricsListen": "127.0.0.1:9100"})
    assert [found.what for found in check_software(config) if found.level == FAIL and "metricsListen" in found.what]
