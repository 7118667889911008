"""Topic names that try to leave the store, through a real broker on a real disk: refused, and nothing is made."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.codec.codes import ResponseCode
from rmqha.codec.remoting import RemotingCommand, SerializeType
from rmqha.remoting.client import open_remoting_client
from rmqha.transport import TcpNetwork
from tests.e2e.processes import RmqhaBroker, reaping

OUTSIDE = [
    "..",
    "../outside",
    "../../../../tmp/outside",
    "/etc/outside",
    "a/b",
    "a\\b",
    ".",
    "",
    " ",
    "a\0b",
    "a\nb",
    "%2e%2e%2foutside/../x",
    "a.b",
    "ä",
    "\u202e",
    "a" * 128,
    "a" * 70_000,
]
INSIDE = ["%RETRY%group", "%DLQ%group", "a_b-c|d", "%2F", "%2e%2e", "a" * 127]


@pytest.fixture
def master(tmp_path: Path) -> Iterator[RmqhaBroker]:
    broker = RmqhaBroker(tmp_path / "inner" / "master", {"mappedFileSizeCommitLog": 1 << 20})
    with reaping(broker):
        yield broker


def send(topic: str, *, code: int) -> RemotingCommand:
    v1 = code == 10
    names = ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp")
    keys = (*names, "flag", "properties", "reconsumeTimes") if v1 else "abcdefghij"
    values = ("group", topic, "TBW102", "4", "0", "0", "1700000000000", "0", "", "0")
    return RemotingCommand(
        code, ext_fields=dict(zip(keys, values, strict=True)), body=b"x", serialize=SerializeType.JSON
    )


async def test_no_name_leads_out_of_the_store(master: RmqhaBroker, tmp_path: Path) -> None:
    await master.start()
    codes = {}
    async with open_remoting_client(TcpNetwork(), master.address) as client:
        for topic in OUTSIDE + INSIDE:
            for code in (10, 310):
                codes[topic, code] = (await client.invoke(send(topic, code=code), timeout_s=60)).code
        for topic in OUTSIDE:
            create = {
                "topic": topic,
                "defaultTopic": "TBW102",
                "readQueueNums": "4",
                "writeQueueNums": "4",
                "perm": "6",
            }
            create |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
            assert (await client.invoke(RemotingCommand(17, ext_fields=create), timeout_s=60)).code != 0
            offset = {"consumerGroup": "../g", "topic": topic, "queueId": "0", "commitOffset": "1"}
            await client.invoke(RemotingCommand(15, ext_fields=offset), timeout_s=60)
            pull = {"consumerGroup": "g", "topic": topic, "queueId": "0", "queueOffset": "0", "maxMsgNums": "1"}
            pull |= {"sysFlag": "0", "commitOffset": "0", "subVersion": "0", "subscription": "*"}
            pull |= {"suspendTimeoutMillis": "0"}
            assert (await client.invoke(RemotingCommand(11, ext_fields=pull), timeout_s=60)).code != 0
    for topic in OUTSIDE:
        assert codes[topic, 10] != 0, repr(topic)
        assert codes[topic, 310] != 0, repr(topic)
    for topic in INSIDE:
        assert codes[topic, 10] == codes[topic, 310] == ResponseCode.SUCCESS, repr(topic)
    assert await master.stop() == 0
    check_places(master, tmp_path)


def check_places(master: RmqhaBroker, tmp_path: Path) -> None:
    """Nothing but the store, and nothing in it but the legal names."""
    assert {path.name for path in (master.store / "consumequeue").iterdir()} == set(INSIDE)
    assert {path.name for path in tmp_path.iterdir()} == {"inner"}
    assert {path.name for path in (tmp_path / "inner").iterdir()} == {"master"}
    assert not Path("/tmp/outside").exists()
    assert not Path("/etc/outside").exists()
