"""How log events leave the process: on stderr, for eyes on a terminal, as JSON lines otherwise.

Modules do ``logger = structlog.get_logger()`` and log stable ``noun.past_participle`` events with facts as keys. What
comes from outside (topics, addresses, error texts) may hold control characters; they are escaped here, once, so that a
message cannot move the cursor or forge a line.
"""

import logging
import os
import select
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from threading import RLock
from typing import Any, Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

_PATIENCE_MS: Final = 20


def setup_logging(*, log_format: str = "auto", level: str = "info", stream: TextIO | None = None) -> None:
    """Send every event of at least ``level`` to ``stream`` (default: stderr) from now on."""
    target = sys.stderr if stream is None else stream
    if log_format == "auto":
        log_format = "console" if target.isatty() else "json"
    processors: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        escape_control_characters,
        _renderer(log_format, colors=target.isatty()),
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=partial(_LineLogger, _unfailing(target, partial(_lines_lost, processors)), RLock()),
        cache_logger_on_first_use=False,
    )


def _lines_lost(processors: Sequence[Processor], lines: int) -> str:
    """The line that says so; a logger cannot be called while one writes."""
    event: Any = {"event": "log.lines_lost", "lines": lines, "reason": "who reads this log stood still"}
    for process in processors:
        event = process(None, "warning", event)
    return f"{event}\n"


def _renderer(log_format: str, *, colors: bool) -> Processor:
    if log_format == "json":
        return structlog.processors.JSONRenderer(default=str)
    return structlog.dev.ConsoleRenderer(
        colors=colors, exception_formatter=structlog.dev.plain_traceback, sort_keys=False
    )


def escape_control_characters(_logger: WrappedLogger, _method: str, event_dict: EventDict) -> EventDict:
    r"""Replace every character that a terminal would act on by its escape: a line feed becomes ``\n``."""
    return {
        escaped(key): escaped(value) if isinstance(value, str) and key != "exception" else value
        for key, value in event_dict.items()
    }


def escaped(text: str) -> str:
    """Return ``text`` with everything unprintable written as an escape; usually ``text`` itself."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode("ascii") for char in text
    )


def _unfailing(stream: TextIO, tell_lost: Callable[[int], str]) -> "_UnfailingStream | _UnwaitingStream":
    """What ends in a pipe, a socket or a terminal has a reader, who may stand still; a file has none."""
    try:
        fd = stream.fileno()
        mode = os.fstat(fd).st_mode
    except (OSError, ValueError):
        return _UnfailingStream(stream)
    if stream.isatty():  # which may take less than it says; opened anew, as nobody else's descriptor becomes another
        with suppress(OSError):
            return _UnwaitingStream(os.open(os.ttyname(fd), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY), tell_lost)
    has_reader = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stream.isatty()
    return _UnwaitingStream(fd, tell_lost) if has_reader else _UnfailingStream(stream)


class _LineLogger:
    """One call, one line. As structlog's WriteLogger, but a signal's handler may log while its thread writes a line.

    WriteLogger's lock is held then: a second SIGTERM that came while the line of the first was written waited for
    itself, for ever.
    """

    def __init__(self, stream: "_UnfailingStream | _UnwaitingStream", lock: AbstractContextManager[object]) -> None:
        self._stream = stream
        self._lock = lock

    def msg(self, line: str) -> None:
        with self._lock:
            self._stream.write(f"{line}\n")
            self._stream.flush()

    log = debug = info = warn = warning = fatal = failure = err = error = critical = exception = msg


class _UnwaitingStream:
    """Nor does a broker wait for the reader of its log: lines for which there is no room are lost, and counted.

    A reader that has much to read gets a moment, once. The descriptor may be others', too, so it stays a blocking one:
    a piece of ``PIPE_BUF`` bytes does not block where the kernel says that there is room.
    """

    def __init__(self, fd: int, tell_lost: Callable[[int], str]) -> None:
        self._fd = fd
        self._tell_lost = tell_lost
        self._room = select.poll()
        self._room.register(fd, select.POLLOUT)
        self._lines_lost = 0
        self._is_cut = False

    def write(self, text: str) -> int:
        if self._lines_lost and self._write(self._tell_lost(self._lines_lost)):
            self._lines_lost = 0
        self._lines_lost += not self._write(text)
        return len(text)

    def _write(self, text: str) -> bool:
        """Whether there was room for all of it; what is cut ends before the next line."""
        data = (b"\n" if self._is_cut else b"") + text.encode(errors="backslashreplace")
        for at in range(0, len(data), select.PIPE_BUF):
            piece = data[at : at + select.PIPE_BUF]
            try:
                has_room = self._room.poll(0 if self._lines_lost else _PATIENCE_MS)
                if not has_room or (written := os.write(self._fd, piece)) < len(piece):
                    self._is_cut = self._is_cut or at > 0 or (bool(has_room) and written > 0)
                    return False
            except BlockingIOError:
                self._is_cut = self._is_cut or at > 0
                return False
            except OSError:
                return True  # nobody will ever read it
        self._is_cut = False
        return True

    def flush(self) -> None: ...


class _UnfailingStream:
    """A broker outlives its log: a full disk or a closed pipe behind stderr loses lines, not the process."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except (OSError, ValueError):
            return 0

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            return
