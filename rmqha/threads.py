"""Worker threads. If the system gives none, that is a failure of the call that needed one, not of the whole process."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needing_a_thread() -> Iterator[None]:
    """Inside, a thread that cannot be started (memory, pids.max, ulimit -u) is an OSError."""
    try:
        yield
    except RuntimeError as error:
        if "new thread" not in str(error):
            raise
        raise OSError(errno.EAGAIN, f"no thread to do it in: {error}") from error
