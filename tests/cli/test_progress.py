"""The progress of long commands, on a terminal only."""

import io
import itertools

import pytest

from rmqha.cli.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("total", "shown"),
    [(200, "[####################################]  200/200  segments"), (None, "verifying  200  segments")],
)
def test_a_terminal_sees_how_far_a_command_is(total: int | None, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with progress("verifying", total=total, unit="segments") as advance:
        for _ in range(10):
            advance(20)
    assert shown in terminal.getvalue()


def test_what_is_done_now_is_shown_before_anything_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with progress("replay", total=200, unit="MiB") as advance:
        advance(0, "MiB, starting")
        assert "0/200  MiB, starting" in terminal.getvalue()
        advance(7, "MiB, reading")
        assert "7/200  MiB, reading" in terminal.getvalue()


def test_a_million_steps_are_not_a_million_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("time.monotonic", itertools.count(step=1e-6).__next__)
    with progress("sending", total=100_000) as advance:
        for _ in range(100_000):
            advance(1)
    assert terminal.getvalue().count("sending") <= 4
    assert "100000/100000" in terminal.getvalue()


def test_a_file_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    with progress("sending", total=2) as advance:
        advance(2)
    assert stderr.getvalue() == ""
