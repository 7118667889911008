"""How log events leave the process: on stderr, for eyes on a terminal, as JSON lines otherwise.

Modules do ``logger = structlog.get_logger()`` and log stable ``noun.past_participle`` events with facts as keys. What
comes from outside (topics, addresses, error texts) may hold control characters; they are escaped here, once, so that a
message cannot move the cursor or forge a line.
"""

import logging
import sys
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger


def setup_logging(*, log_format: str = "auto", level: str = "info", stream: TextIO | None = None) -> None:
    """Send every event of at least ``level`` to ``stream`` (default: stderr) from now on."""
    target = sys.stderr if stream is None else stream
    if log_format == "auto":
        log_format = "console" if target.isatty() else "json"
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            escape_control_characters,
            _renderer(log_format, colors=target.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _UnfailingStream(target))),
        cache_logger_on_first_use=False,
    )


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
