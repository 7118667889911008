"""What to do next about a broker that cannot be asked."""

import socket
from pathlib import Path

import pytest

from rmqha.cli.errors import UnreachableError
from rmqha.cli.main import run
from rmqha.codec.strangers import describe_answer


@pytest.mark.parametrize(
    ("why", "told", "not_told"),
    [
        (describe_answer(b"\x15\x03\x03\x00\x02") or "", "RMQHA_TLS_TRUST", "is it running"),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert", "RMQHA_TLS_CERT and RMQHA_TLS_KEY", "compare"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate has expired", "compare its certificate", "RMQHA_TLS_CERT"),
        ("Connection refused", "is it running", "TLS"),
    ],
)
def test_of_tls_the_setting_that_is_missing_is_named(why: str, told: str, not_told: str) -> None:
    error = UnreachableError("b:10911", why)
    assert told in error.hint
    assert not_told not in error.hint
    assert error.is_broker is ("running" not in error.hint)


def test_a_file_of_the_environment_that_cannot_be_used_is_told_with_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page of a broker's keys was named, and not that a certificate without its key is none."""
    certificate = tmp_path / "me.pem"
    certificate.write_text("no certificate")
    monkeypatch.setenv("RMQHA_TLS_CERT", str(certificate))
    for command in (["status", "-b", "127.0.0.1:1"], ["send", "t", "--count", "1", "-b", "127.0.0.1:1"]):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            command[-1] = f"127.0.0.1:{listener.getsockname()[1]}"
            assert run(command) == 2
        told = capsys.readouterr().err
        assert f"TLS: {certificate} cannot be used without a key beside it (none is named)" in told
        assert "Next:  RMQHA_TLS_CERT of the environment: docs/" in told


@pytest.mark.parametrize("tag", ["a||b", "*", " "])
def test_a_tag_that_nobody_could_subscribe_to_is_refused(tag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["send", "t", "--count", "1", "--tag", tag]) == 2
    assert "cannot be subscribed to" in capsys.readouterr().err
