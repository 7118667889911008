"""DLedger stores for tests: the recorded ones, and small ones made by hand."""

import json
import struct
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.sim.sim_disk import SimMount
from tests.stores import GOLDEN

FIXTURE = GOLDEN / "dledger"
FILE_SIZE = 256
DATA = "/store/dledger-n0/data"
INDEX = "/store/dledger-n0/index"


def unpack(directory: Path, name: str = "dledger") -> Path:
    """A fresh copy of recorded stores.

    ``dledger``: of a group, ``dledger-n0`` to ``dledger-n2``. ``cut``: ``dledger-n0``, of a follower that was stopped
    after a TRUNCATE had left 51 of its 81 entries; DLedger has 81 again when it opens it.
    """
    with tarfile.open(FIXTURE / f"{name}.tar.gz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.0 to 3.11.3 have none
        archive.extractall(directory)
    return directory


def expected_lines() -> list[dict[str, Any]]:
    """What DLedger itself read in any of them."""
    return [json.loads(line) for line in (FIXTURE / "expected-n0.jsonl").read_text().splitlines()]


def entry(index: int, *, pos: int, term: int = 1, body: bytes = b"hello", magic: int = 1) -> bytes:
    """An entry's bytes, made without the product's encoder."""
    return struct.pack(">iiqqqiiii", magic, 48 + len(body), index, term, pos, 0, 0, 0, len(body)) + body


def blank(size: int) -> bytes:
    return struct.pack(">ii", -1, size)


def entries(first: int, last: int, *, pos: int = 0, term: int = 1, size: int = 50) -> bytes:
    """Entries ``first`` to ``last``, one behind the other, each of ``size`` bytes."""
    bodies = bytes(size - 48)
    return b"".join(
        entry(index, pos=pos + (index - first) * size, term=term, body=bodies) for index in range(first, last + 1)
    )


def put_file(mount: SimMount, offset: int, data: bytes, *, directory: str = DATA, size: int = FILE_SIZE) -> str:
    """Make a data file; returns its path."""
    path = f"{directory}/{offset:020d}"
    file = mount.create(path, size, sparse=True)
    file.pwrite([data], 0)
    file.sync()
    return path


def put_log(mount: SimMount, files: Sequence[bytes], *, directory: str = DATA) -> list[str]:
    """Data files one behind the other."""
    return [put_file(mount, number * FILE_SIZE, data, directory=directory) for number, data in enumerate(files)]
