"""Commands sign what they ask, by credentials from the environment."""

from pathlib import Path

import pytest

from rmqha.cli.credentials import client_credentials, sign_in_hint
from rmqha.errors import ConfigError


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CREDENTIALS", "ACCESS_KEY", "SECRET_KEY"):
        monkeypatch.delenv(f"RMQHA_{name}", raising=False)


def test_without_any_nothing_is_signed() -> None:
    assert client_credentials() is None


def test_a_file_wins_over_the_two_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQHA_ACCESS_KEY", "one")
    with pytest.raises(ConfigError, match="belong together"):
        client_credentials()
    monkeypatch.setenv("RMQHA_SECRET_KEY", "secret")
    found = client_credentials()
    assert found is not None
    assert (found.access_key, found.secret_key) == ("one", "secret")
    (path := tmp_path / "tools.yml").write_text("accessKey: another\nsecretKey: 12345678\n")
    monkeypatch.setenv("RMQHA_CREDENTIALS", str(path))
    found = client_credentials()
    assert found is not None
    assert found.access_key == "another"


def test_who_is_refused_is_told_how_to_sign_in() -> None:
    assert "RMQHA_CREDENTIALS" in sign_in_hint("org.apache.rocketmq.acl.common.AclException: no", otherwise="ask again")
    for reason in ("something else", "", None):
        assert sign_in_hint(reason, otherwise="ask again") == "ask again"


@pytest.mark.parametrize("used", ["RMQHA_CREDENTIALS", "RMQHA_ACCESS_KEY"])
def test_who_has_signed_in_is_told_that_it_was_not_enough(used: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was asked to set what it had set."""
    monkeypatch.setenv(used, "mine")
    assert f"the account of {used}" in sign_in_hint("AclException: check signature failed", otherwise="")
