"""The account by which a broker signs what it asks others."""

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rmqha.broker.credentials_file import CredentialsFile
from rmqha.cli.broker_conf import load_with_accounts
from rmqha.codec.codes import RequestCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import ConfigError


def test_a_file_that_is_corrected_is_read_again(tmp_path: Path) -> None:
    """A slave whose account was wrong had to be restarted, where its master reads accounts that change."""
    path = tmp_path / "tools.yml"
    path.write_text("accessKey: first\nsecretKey: 12345678\n")
    credentials = CredentialsFile(str(path))

    def signs_as() -> str:
        request = RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO)
        credentials.sign(request)
        return request.ext_fields["AccessKey"]

    assert signs_as() == "first"
    with capture_logs() as logs:
        path.write_text("accessKey: second-account\nsecretKey: 12345678\n")
        assert [signs_as(), signs_as()] == ["second-account"] * 2
        path.write_text("accessKey: nothing\n")
        assert [signs_as(), signs_as()] == ["second-account"] * 2
        path.unlink()
        assert signs_as() == "second-account"
    assert [line["event"] for line in logs] == [
        "credentials.read", "credentials.not_read_again", "credentials.not_read_again",
    ]  # fmt: skip
    assert "12345678" not in str(logs)


def test_a_pipe_in_the_files_place_is_not_waited_for(tmp_path: Path) -> None:
    """Its open() waits for a writer: the broker answered nobody until somebody wrote."""
    path = tmp_path / "tools.yml"
    path.write_text("accessKey: first\nsecretKey: 12345678\n")
    credentials = CredentialsFile(str(path))
    path.unlink()
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    os.write(writer, b"accessKey: other\nsecretKey: 12345678\n".ljust(64 * 1024))  # who reads it, need not wait here
    request = RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO)
    with capture_logs() as logs:
        credentials.sign(request)
    os.close(writer)
    assert request.ext_fields["AccessKey"] == "first"
    assert ["no regular file" in line["reason"] for line in logs] == [True]


def test_a_pipe_is_refused_at_the_start(tmp_path: Path) -> None:
    """The start waited for a writer, and said nothing; so did `rmqha doctor` and `rmqha config check`."""
    path = tmp_path / "tools.yml"
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="no regular file"):
        CredentialsFile(str(path))
    with pytest.raises(ConfigError, match="no regular file"):
        load_with_accounts(None, {"aclCredentialsPath": str(path), "allowInsecure": "true"})
