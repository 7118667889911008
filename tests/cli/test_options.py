"""Options that several commands share."""

import click
import pytest

from rmqha.cli.main import run
from rmqha.cli.options import SECONDS

Output = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    "command", ["status", "topics list", "dledger status -g g -p n0-127.0.0.1:1", "send t", "dashboard"]
)
def test_nan_is_no_time(command: str, capsys: Output) -> None:
    """It was a traceback, and exit code 1, which a monitor takes for a degraded broker."""
    assert run([*command.split(), "--timeout", "nan"]) == 2
    assert "nan is no time" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "seconds"), [("0.5", 0.5), ("1e30", 1e8), ("inf", 1e8)])
def test_more_than_anybody_waits_is_the_longest_there_is(text: str, seconds: float) -> None:
    assert SECONDS.convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["0", "-1", "x"])
def test_no_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        SECONDS.convert(text, None, None)
