import errno
import io
import json
import os
from collections.abc import Callable
from threading import Thread

import pytest
import structlog

from rmqha.logs import escaped, setup_logging


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_each_event_is_one_line_of_json() -> None:
    stream = io.StringIO()
    setup_logging(stream=stream)
    structlog.get_logger().warning("ha_connection.failed", peer="10.0.0.1:7", offset=12)
    event = json.loads(stream.getvalue())
    assert event.pop("timestamp").endswith("Z")
    assert event == {"event": "ha_connection.failed", "level": "warning", "peer": "10.0.0.1:7", "offset": 12}


def test_on_a_terminal_events_are_readable() -> None:
    stream = Terminal()
    setup_logging(stream=stream)
    structlog.get_logger().info("broker.started", port=10911)
    assert "broker.started" in stream.getvalue()
    assert "10911" in stream.getvalue()
    assert "{" not in stream.getvalue()


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_a_value_from_outside_cannot_forge_a_line_or_move_the_cursor(log_format: str) -> None:
    stream = io.StringIO()
    setup_logging(log_format=log_format, stream=stream)
    structlog.get_logger().info("a.b", topic="x\n2026 forged\x1b[2J\x9b\u202e")
    assert stream.getvalue().count("\n") == 1
    assert all(char.isprintable() for char in stream.getvalue().rstrip("\n"))


def test_ordinary_text_is_left_alone() -> None:
    assert escaped("Grüße, 标签") == "Grüße, 标签"
    assert escaped("a\tb\ud800") == "a\\tb\\ud800"


def test_events_below_the_level_are_dropped() -> None:
    stream = io.StringIO()
    setup_logging(level="warning", stream=stream)
    structlog.get_logger().info("a.b")
    assert stream.getvalue() == ""


class Interrupted(io.StringIO):
    """A signal comes while the first line is written, and its handler logs, too."""

    handler: Callable[[], None] | None = None

    def write(self, text: str) -> int:
        handler, self.handler = self.handler, None
        if handler is not None:
            handler()
        return super().write(text)


def test_a_signal_handler_may_log_while_a_line_is_written() -> None:
    """A second SIGTERM waited for the lock that the first one's line held, for ever, and only SIGKILL ended it."""
    stream = Interrupted()
    setup_logging(stream=stream)
    logger = structlog.get_logger()
    stream.handler = lambda: logger.warning("broker.stopped_at_once")
    writing = Thread(target=logger.info, args=("broker.stopping",), daemon=True)
    writing.start()
    writing.join(timeout=60)
    assert not writing.is_alive()
    told = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    assert told == ["broker.stopped_at_once", "broker.stopping"]


class FullDisk(io.StringIO):
    written = 0

    def write(self, text: str) -> int:
        self.written += len(text)
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_log_that_cannot_be_written_does_not_stop_the_process() -> None:
    stream = FullDisk()
    setup_logging(stream=stream)
    structlog.get_logger().info("a.b")
    assert stream.written > 0


def test_a_traceback_keeps_its_lines_on_the_console() -> None:
    stream = Terminal()
    setup_logging(stream=stream)
    try:
        int("why")
    except ValueError:
        structlog.get_logger().exception("broker.failed")
    assert "ValueError: invalid literal" in stream.getvalue()
    assert stream.getvalue().count("\n") > 2


def test_a_reader_that_stands_still_holds_up_nobody() -> None:
    """A terminal after Ctrl-S, a pager, a log driver that hangs: the broker stood still at its next line."""
    reading, writing = os.pipe()
    with open(reading, "rb") as reader, open(writing, "w", encoding="utf-8") as stream:
        setup_logging(stream=stream)
        logger = structlog.get_logger()
        for number in range(1000):
            logger.info("a.b", number=number, text="x" * 1000)
        logger.info("a.long", text="x" * 100_000)
        os.set_blocking(reading, False)
        seen = [json.loads(line) for line in (reader.read() or b"").splitlines()]
        logger.info("a.c")
        logger.info("a.long", text="x" * 20_000)
        later = [json.loads(line) for line in (reader.read() or b"").splitlines()]
    assert [event["number"] for event in seen] == list(range(len(seen)))
    assert [event["event"] for event in later] == ["log.lines_lost", "a.c", "a.long"]
    assert (later[0]["lines"], len(later[2]["text"])) == (1001 - len(seen), 20_000)


def test_a_line_of_which_a_part_was_written_ends() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as reader, open(writing, "w", encoding="utf-8") as stream:
        setup_logging(stream=stream)
        structlog.get_logger().info("a.long", text="x" * 1_000_000)
        os.set_blocking(reading, False)
        cut = reader.read() or b""
        structlog.get_logger().info("a.b")
        empty, lost, event = (reader.read() or b"").splitlines()
    assert (b"\n" in cut, empty) == (False, b"")
    assert (json.loads(event)["event"], json.loads(lost)["lines"]) == ("a.b", 1)


def test_a_line_of_which_a_part_was_written_ends_though_the_next_ones_found_no_room() -> None:
    """Else the first that finds some goes on in the middle of it, and is no JSON."""
    reading, writing = os.pipe()
    with open(reading, "rb") as reader, open(writing, "w", encoding="utf-8") as stream:
        setup_logging(stream=stream)
        for name in ("a.long", "a.lost", "a.lost"):
            structlog.get_logger().info(name, text="x" * 1_000_000)
        os.set_blocking(reading, False)
        cut = reader.read() or b""
        structlog.get_logger().info("a.b")
        empty, lost, event = (reader.read() or b"").splitlines()
    assert (b"\n" in cut, empty) == (False, b"")
    assert (json.loads(event)["event"], json.loads(lost)["lines"]) == ("a.b", 3)


def test_a_reader_that_is_gone_costs_lines_alone() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", encoding="utf-8") as stream:
        setup_logging(stream=stream)
        structlog.get_logger().info("a.b")


def test_nor_does_a_terminal_that_nobody_reads() -> None:
    """It says that there is room, and takes a part of a line."""
    reading, terminal = os.openpty()
    with open(reading, "rb"), open(terminal, "w", encoding="utf-8") as stream:
        setup_logging(log_format="json", stream=stream)
        for size in (50, 201, 1000, 3000):
            for _ in range(200):
                structlog.get_logger().info("a.b", text="x" * size)
