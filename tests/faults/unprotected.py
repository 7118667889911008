"""A broker whose protection was taken out: a failed write or flush is logged and forgotten, as in RocketMQ 4.9."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.conftest import SEGMENT_BYTES
from tests.e2e.processes import RmqhaBroker, reaping

UNPROTECTED = """
import os, sys
from rmqha.errors import StoreWriteError
from rmqha.store.os_disk import OsDataFile
from rmqha.store.running_flags import RunningFlags

def swallowing(call):
    def called(self, *arguments):
        try:
            return call(self, *arguments)
        except StoreWriteError as error:
            print("swallowed:", error, flush=True)
    return called

OsDataFile.sync = swallowing(OsDataFile.sync)
OsDataFile.pwrite = swallowing(OsDataFile.pwrite)
os.posix_fallocate = lambda fd, at, size: os.ftruncate(fd, at + size)  # files full of holes, as RocketMQ makes them
RunningFlags.set_disk_full = lambda self, full: None
RunningFlags.fail = lambda self, error: None
RunningFlags.fail_dispatch = lambda self, error: None  # the second line: dispatch meets zeros where a record should be
from rmqha.cli.main import main
sys.argv[0] = "rmqha"
main()
"""
CONF = {
    "brokerRole": "ASYNC_MASTER",
    "flushDiskType": "SYNC_FLUSH",
    "syncFlushTimeout": 60_000,
    "mappedFileSizeCommitLog": SEGMENT_BYTES,
}


class UnprotectedBroker(RmqhaBroker):
    """The same broker; a failed write or flush of its log is forgotten."""

    def argv(self) -> list[str]:
        role = "slave" if self.conf["brokerRole"] == "SLAVE" else "master"
        return [sys.executable, "-c", UNPROTECTED, role, "-c", str(self.conf_file)]


@contextmanager
def alone(directory: Path) -> Iterator[UnprotectedBroker]:
    """Such a master, without a slave."""
    broker = UnprotectedBroker(directory / "master", CONF)
    with reaping(broker):
        yield broker
