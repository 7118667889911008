"""What the limit of open files leaves for clients: a warning only for what the operator asked for."""

import resource

import pytest
from structlog.testing import capture_logs

from rmqha.broker.main import with_descriptors
from rmqha.config import load_config


@pytest.fixture
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (1024, 2048))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, _limits: None)


@pytest.mark.usefixtures("few_files")
def test_defaults_that_do_not_fit_are_one_line_of_information() -> None:
    with capture_logs() as logs:
        config, _ = with_descriptors(load_config(None, {}))
    assert config.notes == ()
    (told,) = logs
    assert (told["event"], told["log_level"]) == ("process.limited", "info")
    assert (told["max_connections"], told["files_max"]) == (config.max_connections, 2048)


@pytest.mark.usefixtures("few_files")
def test_what_the_operator_set_and_does_not_get_is_a_warning() -> None:
    config, _ = with_descriptors(load_config(None, {"maxConnections": "9000"}))
    (note,) = config.notes
    assert note.startswith("maxConnections lowered from 9000 to ")
