"""DLedger's own store, driven by ``Ledger.java``."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.interop.peers import JAVA_OPTIONS, QUICK_START, compiled, rocketmq_libs

DATA_SIZE, INDEX_SIZE = 8192, 2048
SIZES = [5, 0, 1, 2, 100, 8136, 8135, 8088, 40, 1000, *range(200, 3000, 150)]
"""Of bodies, among them some that leave 8 bytes of a file, or just do not."""
Entry = tuple[int, int, int, bytes]
"""Index, term, position, body."""
Ends = list[int]
"""Begin and end index, end term, committed index, offset behind the last entry."""


def java(*bases: Path, script: Sequence[str] = ()) -> dict[Path, tuple[list[Entry], Ends]]:
    """What DLedger holds in each store, after the script in the last."""
    classes = f"{compiled('Ledger.java', rocketmq_libs())}:{rocketmq_libs()}/*"
    argv = ["java", *QUICK_START, *JAVA_OPTIONS, "-cp", classes, "Ledger"]
    argv += [str(DATA_SIZE), str(INDEX_SIZE), *map(str, bases)]
    done = subprocess.run(argv, input="\n".join(script), capture_output=True, text=True, timeout=240, check=False)
    found: dict[Path, tuple[list[Entry], Ends]] = {}
    entries: list[Entry] = []
    for words in map(str.split, done.stdout.splitlines()):
        if words[:1] == ["entry"]:
            body = bytes.fromhex(words[4]) if len(words) > 4 else b""
            entries.append((int(words[1]), int(words[2]), int(words[3]), body))
        elif words[:1] == ["ends"]:
            found[Path(words[1])] = entries, [int(word) for word in words[2:]]
            entries = []
    assert len(found) == len(bases), done.stdout[-3000:] + done.stderr[-3000:]
    return found


def script_of(term: int, bodies: Sequence[bytes]) -> list[str]:
    """Append these as a leader."""
    return [f"lead {term}", *(f"append {body.hex()}".strip() for body in bodies)]
