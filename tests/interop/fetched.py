"""What the interop tests need of package registries: fetched once a machine, kept in a cache, pinned and checked.

``locks/`` names each file with its checksum: of jars as ``sha256sum`` prints them, of Python's and JavaScript's
packages as ``pip`` and ``npm`` read them.
"""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

LOCKS = Path(__file__).parent / "locks"


class PeerMissingError(Exception):
    """This machine cannot run a peer; the text says why and what to install."""


def fetched(name: str, fetch: Callable[[Path], None]) -> Path:
    """The directory ``name`` of the cache; ``fetch`` fills it where it is not there.

    It fills one beside it, which is then renamed, so that a half-filled one is never seen.
    """
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    kept = Path(base) / "rmqha-tests" / name
    if kept.is_dir():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix="fetching-") as scratch:
        (filled := Path(scratch) / name).mkdir()
        fetch(filled)
        try:
            filled.rename(kept)
        except OSError:
            if not kept.is_dir():  # otherwise another process was faster, which is just as good
                raise
    return kept


def run_fetching(command: Sequence[str], *, cwd: Path, what: str) -> None:
    """Run a package manager. Raises PeerMissingError if it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode != 0:
        raise PeerMissingError(f"{command[0]} could not bring {what}: {(done.stdout + done.stderr)[-2000:]}")


def check_sums(directory: Path, lock: Path) -> None:
    """Exactly the locked files are there, in exactly their bytes.

    Raises:
        AssertionError: otherwise: the cache is of other tests than these, or was tampered with.
    """
    locked = {name: digest for digest, name in map(str.split, lock.read_text().splitlines())}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}
    differing = sorted(name for name in locked.keys() | found.keys() if locked.get(name) != found.get(name))
    assert not differing, f"{directory} is not as {lock.name} says: {differing}; delete it to fetch it again"
