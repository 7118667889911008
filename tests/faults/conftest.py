"""Pairs whose master or slave stands on a disk that can be broken."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.conftest import SEGMENT_BYTES, Pair
from tests.e2e.processes import RmqhaBroker, reaping
from tests.faults.images import Image, mounted_image, why_no_images

MakePair = Callable[..., tuple[Pair, Image]]


@pytest.fixture
def pair_on_image(tmp_path: Path) -> Iterator[MakePair]:
    """``make(victim, size_mib=...)``: a pair of which one broker's store is on an image of its own."""
    if reason := why_no_images():
        pytest.skip(reason)
    with ExitStack() as stack:

        def make(victim: str, *, size_mib: int = 64, **conf: object) -> tuple[Pair, Image]:
            image = stack.enter_context(mounted_image(tmp_path / "image", size_mib=size_mib))
            pair = make_pair(tmp_path, **conf)
            broker = pair.master if victim == "master" else pair.slave
            broker.move_store(image.mount_point / "store")
            stack.enter_context(reaping(*pair.brokers))
            return pair, image

        yield make


@pytest.fixture
def strace_pair(tmp_path: Path) -> Iterator[Pair]:
    """A pair for fault injection into system calls: set a broker's ``prefix`` to :func:`failing`."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    pair = make_pair(tmp_path)
    with reaping(*pair.brokers):
        yield pair


def make_pair(directory: Path, **conf: object) -> Pair:
    """A SYNC_MASTER with SYNC_FLUSH and its slave."""
    common = {
        "flushDiskType": "SYNC_FLUSH",
        "syncFlushTimeout": 60_000,
        "mappedFileSizeCommitLog": SEGMENT_BYTES,
        **conf,
    }
    master = RmqhaBroker(directory / "master", {"brokerRole": "SYNC_MASTER", **common})
    slave_conf = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": master.ha_address, **common}
    slave = RmqhaBroker(directory / "slave", slave_conf)
    master.conf["haPeers"] = slave.ha_address
    return Pair(master, slave)


def failing(call: str, *, error: str, when: str) -> list[str]:
    """The command prefix that makes the n-th calls of a system call fail; the process keeps its pid."""
    inject = f"inject={call}:error={error}:when={when}"
    return ["strace", "-D", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject]
