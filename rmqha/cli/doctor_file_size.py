"""``rmqha doctor``: whether the process of a broker may make files as large as it needs."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rmqha.broker.file_size import why_too_small
from rmqha.cli.finding import FAIL, OK, Finding
from rmqha.config import BrokerConfig
from rmqha.process import raise_file_size_limit

_LIMIT: Final = re.compile(r"^Max file size +(\S+)", re.MULTILINE)


def check_file_size(config: BrokerConfig, *, pid: int | None) -> Iterator[Finding]:
    """Whether the limit is large enough.

    Args:
        config: of the broker.
        pid: its process, of which the limit counts; None: it does not run, and this process's is taken for its.
    """
    limit = raise_file_size_limit() if pid is None else _limit_of(pid)
    if why := why_too_small(config, limit):
        whose = "a unit has a limit of its own" if pid is None else f"this process: {pid}, the broker that runs"
        told = f"raise 'ulimit -f' to unlimited, or LimitFSIZE=infinity of a systemd unit ({whose})"
        yield Finding(FAIL, "files", why, told)
    elif limit is not None:
        yield Finding(OK, "files", f"none larger than {limit:,} bytes, which is enough")


def _limit_of(pid: int) -> int | None:
    """In bytes; None: there is none, or the kernel does not tell."""
    try:
        found = _LIMIT.search(Path(f"/proc/{pid}/limits").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return int(found[1]) if found is not None and found[1].isdigit() else None
