"""A file that is replaced as a whole: the old one is there or the new one, whatever happens."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacement(path: Path, data: bytes) -> Iterator[Path]:
    """Have ``data`` durably beside a file, which it replaces, durably, when the block is through.

    Mode, owner and group stay; where there was no file, only its owner may read the new one. Links are not followed.

    Yields:
        Where the new file is, to be looked at. If the block raises, it goes, and nothing else has changed.

    Raises:
        OSError: it cannot be written, or cannot have the old one's owner; nothing has changed.
    """
    new = path.with_name(path.name + ".new")
    try:
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if path.exists():
                be_like(new, path)
                os.utime(new)
            os.fsync(descriptor)
        yield new
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def be_like(new: Path, old: Path) -> None:
    """Have the owner, group and mode of ``old``. Raises OSError: who runs this may not give it away."""
    wanted, made = old.stat(), new.stat()  # the group may be the directory's
    if (wanted.st_uid, wanted.st_gid) != (made.st_uid, made.st_gid):
        os.chown(new, wanted.st_uid, wanted.st_gid)
    shutil.copystat(old, new)
