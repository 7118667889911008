"""What every server does as a process, but for what only a real one shows (tests/e2e)."""

import faulthandler
import gc
import os
import signal
from collections.abc import Awaitable, Callable

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha import process
from rmqha.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK


def test_processes_of_the_same_id_draw_different_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """In containers all have the id 1: two members whose leader was gone voted for themselves at the same moments."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    first, second = process.chance(), process.chance()
    assert [first() for _ in range(3)] != [second() for _ in range(3)]


@pytest.mark.parametrize("raised", [MemoryError(), ExceptionGroup("", [ExceptionGroup("", [MemoryError()])])])
def test_a_server_without_memory_says_so(raised: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only where it ran out of it."""
    monkeypatch.setattr(faulthandler, "enable", lambda *_, **__: None)
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)

    def serve() -> int:
        raise raised

    with capture_logs() as logs:
        assert process.run_server("broker", serve) == EXIT_FAILED
    (told,) = logs
    assert (told["event"], told["log_level"]) == ("broker.failed", "error")
    assert "no more memory" in told["reason"]
    assert isinstance(told["exc_info"], MemoryError)


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """With which codes the process would have ended at once."""
    codes = list[int]()
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(process, "_has_terminal", lambda: False)
    return codes


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_stops_in_order_and_the_second_at_once(
    number: signal.Signals, exits: list[int], autojump_clock: MockClock
) -> None:
    before = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    hung_up, hangups = trio.open_memory_channel[None](1)
    stopped = list[int]()
    with process.stopped_by_signals("x", lambda: stopped.append(1), on_hangup=hung_up):
        signal.raise_signal(number)
        await trio.sleep(1)
        assert (stopped, exits) == ([1], [])
        signal.raise_signal(number)
        await trio.sleep(1)
        assert (stopped, exits) == ([1], [EXIT_INTERRUPTED])
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)] == before
    assert hangups.statistics().current_buffer_used == 0


@pytest.mark.parametrize("has_terminal", [False, True])
@pytest.mark.parametrize("is_ignored", [False, True])
async def test_a_hangup_stops_what_has_a_terminal_and_is_no_nohups(
    has_terminal: bool,
    is_ignored: bool,
    exits: list[int],
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "_has_terminal", lambda: has_terminal)
    monkeypatch.setattr(process, "_is_ignored", lambda _number: is_ignored)
    hung_up, hangups = trio.open_memory_channel[None](1)
    stopped = list[int]()
    with process.stopped_by_signals("x", lambda: stopped.append(1), on_hangup=hung_up):
        for _ in range(1 if has_terminal else 3):
            signal.raise_signal(signal.SIGHUP)
            await trio.sleep(1)
    is_an_end = has_terminal and not is_ignored
    assert (len(stopped), hangups.statistics().current_buffer_used, exits) == (is_an_end, not is_an_end, [])


@pytest.mark.parametrize("is_starting", [True, False])
async def test_a_server_that_is_just_starting_ends_at_once(
    is_starting: bool, exits: list[int], autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recovery may take minutes, and there is nothing to end in order."""
    monkeypatch.setattr(os, "environ", {})
    stopping = trio.Event()

    async def run(*, task_status: trio.TaskStatus[None]) -> None:
        signal.raise_signal(signal.SIGTERM)
        await stopping.wait()
        task_status.started()

    await process.serve("x", run, stopping.set, is_starting=lambda: is_starting)
    assert exits == ([EXIT_OK] if is_starting else [])


async def test_a_server_looks_after_its_loop_and_its_certificates_until_it_ends(
    exits: list[int], autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = list[str](), list[str]()

    def looking_after(name: str) -> Callable[[], Awaitable[None]]:
        async def look() -> None:
            begun.append(name)
            try:
                await trio.sleep_forever()
            finally:
                ended.append(name)

        return look

    async def run(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep(60)
        assert (sorted(begun), ended) == (["tell_of_expiry", "tell_of_stalls"], [])

    for name in ("tell_of_stalls", "tell_of_expiry"):
        monkeypatch.setattr(process, name, looking_after(name))
    with trio.fail_after(120):
        await process.serve("x", run, lambda: None)
    assert (sorted(ended), exits) == (["tell_of_expiry", "tell_of_stalls"], [])
