"""A leader of a DLedger group whose disk is full lets a member lead that has room: processes, and real full disks."""

import os
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from rmqha.client.message import Message
from rmqha.client.producer import open_producer
from rmqha.config.dledger_peers import parse_peers
from rmqha.dledger.dledger_client import open_dledger_client
from rmqha.errors import RmqhaError
from rmqha.transport import TcpNetwork
from tests.e2e.dledger_brokers import BrokerGroup
from tests.e2e.dledger_groups import NAME, Group, running
from tests.faults.images import Image, mounted_image, why_no_images

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Image]:
    if reason := why_no_images():
        pytest.skip(reason)
    with mounted_image(tmp_path / "image", size_mib=24) as image:
        yield image


def fill(image: Image) -> Path:
    """Leave 2 % of it."""
    ballast = image.mount_point / "ballast"
    stat = os.statvfs(image.mount_point)
    size = stat.f_bavail * stat.f_frsize - stat.f_blocks * stat.f_frsize // 50
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    return ballast


async def wait_until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - nobody tells
        await trio.sleep(0.05)


async def test_a_leader_on_a_full_disk_gives_way_and_says_so(tmp_path: Path, image: Image) -> None:
    (tmp_path / "dledger-n0").symlink_to(image.mount_point / "n0")
    (image.mount_point / "n0").mkdir()
    with running(Group(tmp_path)) as group:
        group.start()
        await group.healthy()
        await group.append(count=10, text="before")
        with trio.fail_after(120):
            while (await group.command("transfer", "-t", "n0"))[0] != 0:
                pass
        ballast = fill(image)
        status = await group.healthy(not_led_by="n0")
        _, lines, err = await group.command("append", "-d", "x" * 1000, "-c", 200)
        codes = Counter(line["code"] for line in lines)
        assert codes.keys() <= {200, 501}, err + str(codes)  # 501: on a busy machine another term may begin meanwhile
        assert codes[200] > 150, err + str(codes)
        status = await group.wait_verdict("degraded")
        assert "n0 cannot write: the disk is too full" in status["reasons"]
        assert status["leader"] != "n0"
        ballast.unlink()
        await group.at_rest()
        assert await group.stop() == [0, 0, 0]
        first, *others = [await group.dump(member_id) for member_id in group.ids]
        assert len(first) >= 10 + codes[200]
        assert others == [first, first]


async def test_a_leader_that_can_make_no_file_gives_way(tmp_path: Path) -> None:
    """Nothing of it shows in how full the disk is."""
    with running(Group(tmp_path)) as group:
        group.start()
        leader = (await group.healthy())["leader"]
        async with open_dledger_client(group=NAME, peers=parse_peers(group.peers), network=TcpNetwork()) as client:
            for member_id in group.ids:
                await client.metadata(member_id)  # over a connection that stays: it could not take a new one
            pid = group.children[leader].pid
            soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, hard))
            with trio.fail_after(120):
                while (await client.append(bytes(4000))).code == 200:
                    pass
                await group.children[leader].wait_output("dledger.gave_way")
                while (await client.append(b"after")).code != 200:
                    pass
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        await group.wait_verdict("ok")
        assert await group.stop() == [0, 0, 0]


async def test_a_master_on_a_full_disk_gives_way_and_no_message_is_lost(tmp_path: Path, image: Image) -> None:
    with ExitStack() as stack:
        group = BrokerGroup(tmp_path, preferredLeaderId="n0", diskSpaceWarningLevelRatio=90)
        stack.callback(group.close)
        group.brokers["n0"].move_store(image.mount_point / "store")
        del group.brokers["n0"].conf["storePathCommitLog"]
        await group.start()
        with trio.fail_after(120):
            while await group.master() != "n0":
                pass
        sent = list[int]()
        async with trio.open_nursery() as nursery, open_producer(group.addresses) as producer:

            async def send() -> None:
                while True:
                    try:
                        await producer.send(Message("orders", b"%d" % len(sent)), retries=100, timeout_s=3)
                    except RmqhaError:
                        continue
                    sent.append(len(sent))

            nursery.start_soon(send)
            with trio.fail_after(120):
                await wait_until(lambda: len(sent) >= 200)
                ballast = fill(image)
                assert await group.master(besides="n0") != "n0"
                count = len(sent)
                await wait_until(lambda: len(sent) >= count + 200)
                ballast.unlink()
                while await group.master() != "n0":  # it is preferred, and has room again
                    pass
            nursery.cancel_scope.cancel()
        await group.healthy()
        assert await group.stop() == [0, 0, 0]
        first, *others = [group.data_files(name) for name in group.brokers]
        assert others == [first, first]
        held = b"".join(first.values())
        assert held.count(b"orders") >= len(sent)
