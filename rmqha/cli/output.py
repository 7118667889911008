"""What stdout and stderr still buffer at the end of a command: written out, or given up.

Left to the interpreter, a full disk behind either ends the process with code 120 and lines of Python's own, whatever
the command's exit code was.
"""

import errno
import json
import os
import sys
from io import TextIOWrapper
from typing import Any, Final, TextIO

import click

_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def flush_output() -> None:
    """Write out what stdout still buffers.

    Raises:
        OSError: it cannot be written.
    """
    if sys.stdout is not None:  # closed by the calling shell: rmqha ... >&-
        sys.stdout.flush()


def takes_unicode() -> bool:
    """Whether stdout can write any text: PYTHONIOENCODING, or the locale, may say otherwise."""
    return (getattr(sys.stdout, "encoding", None) or "utf").lower().startswith("utf")


def echo_json(value: Any) -> None:
    """Print it in one line."""
    click.echo(json.dumps(value, ensure_ascii=not takes_unicode(), separators=(",", ":")))


def escape_the_unwritable() -> None:
    """Have stdout write escapes in place of what its encoding lacks, as stderr does."""
    if isinstance(sys.stdout, TextIOWrapper) and not takes_unicode():
        sys.stdout.reconfigure(errors="backslashreplace")


def describe_os_error(error: OSError) -> str:
    """Return what failed: the file that the error names, or the output, which has no name."""
    if error.filename is None and error.errno in _NO_SPACE:
        return f"the output cannot be written: {error.strerror}"
    return str(error)


def give_up_buffers() -> None:
    """Leave the interpreter nothing to flush: what cannot be written any more goes nowhere."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not _is_flushed(stream):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _is_flushed(stream: TextIO) -> bool:
    try:
        stream.flush()
    except OSError:
        return False
    return True
