"""A log that grows while a streaming query reads it, and how far that has come."""

import random
import subprocess
import threading
from pathlib import Path
from typing import Self

from tests.spark.logs import LogWriter, record


class GrowingLog:
    """Appends a record at a time, its beginning first and the rest a little later, until told to end."""

    def __init__(self, root: Path) -> None:
        self.log = LogWriter(root, file_size=1 << 20)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        chance = random.Random(8)
        while not self._end.wait(0.01):
            body = chance.randbytes(chance.randint(1, 3000))
            if chance.random() < 0.2:
                torn = record(self.log.end, body)[: chance.randint(1, 80)]
                if self.log.end % self.log.file_size + len(body) + 200 < self.log.file_size:
                    self.log.write(self.log.end, torn)
                    self._end.wait(0.01)
            self.log.append(body)


def wait_for_batches(checkpoint: Path, more_than: int, query: subprocess.Popen[str] | subprocess.Popen[bytes]) -> int:
    """Return the number of committed batches once it has grown; the query must be alive."""
    deadline = threading.Event()
    for _ in range(3000):
        done = len(list((checkpoint / "commits").glob("[0-9]*")))
        if done > more_than:
            return done
        assert query.poll() is None, "the query ended by itself"
        deadline.wait(0.1)
    raise AssertionError("no batch within five minutes")
