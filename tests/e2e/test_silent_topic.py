"""The failover of docs/operations.md with real processes, which are killed: a silent topic's positions stay unique."""

from pathlib import Path

import trio

from rmqha.codec.codes import ResponseCode
from rmqha.codec.record.message import decode_message
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.send_answers import decode_send_response
from rmqha.remoting.client import open_remoting_client
from rmqha.transport import TcpNetwork
from tests.broker.machines import pull_request, send_request
from tests.e2e.commitlog import wait_identical
from tests.e2e.processes import RmqhaBroker, reaping

COMMON = {"mappedFileSizeCommitLog": 1 << 20}


async def ask(broker: RmqhaBroker, request: RemotingCommand) -> RemotingCommand:
    async with open_remoting_client(TcpNetwork(), broker.address) as client:
        return await client.invoke(request, timeout_s=60)


async def send(broker: RmqhaBroker, topic: str, *, size: int = 10) -> int:
    """The queue offset that a message got."""
    answer = await ask(broker, send_request(bytes(size), topic=topic))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return decode_send_response(answer).queue_offset


def be_master(broker: RmqhaBroker) -> None:
    broker.conf |= {"brokerRole": "ASYNC_MASTER", "brokerId": 0}
    broker.conf.pop("haMasterAddress", None)
    broker.conf.pop("masterAddress", None)


def follow(slave: RmqhaBroker, master: RmqhaBroker) -> None:
    slave.conf |= {"brokerRole": "SLAVE", "brokerId": 1}
    slave.conf |= {"haMasterAddress": master.ha_address, "masterAddress": master.address}


async def test_a_silent_topic_goes_on_where_it_ended_after_a_failover(tmp_path: Path) -> None:
    first, second = (RmqhaBroker(tmp_path / name, COMMON) for name in ("first", "second"))
    be_master(first)
    follow(second, first)
    with reaping(first, second):
        await first.start()
        assert [await send(first, "silent") for _ in range(3)] == [0, 1, 2]
        for _ in range(3):
            await send(first, "busy", size=500_000)
        await first.stop()
        (first.store / "commitlog" / f"{0:020d}").unlink()  # as the cleaning does, days later
        await first.start()
        await second.start()
        await second.running.wait_output("queue_ends.learned")
        with trio.fail_after(120):
            while not (second.store / "config" / "queueEnds.json").exists():  # noqa: ASYNC110 - another process
                await trio.sleep(0.1)
        await wait_identical(*(broker.store / "commitlog" for broker in (first, second)))
        await first.kill()
        await second.kill()
        be_master(second)
        follow(first, second)
        await second.start()
        assert await send(second, "silent") == 3
        await first.start()
        answer = await ask(first, pull_request(3, topic="silent"))
        with trio.fail_after(120):
            while answer.code != ResponseCode.SUCCESS:
                await trio.sleep(0.1)
                answer = await ask(first, pull_request(3, topic="silent"))
        assert decode_message(answer.body).queue_offset == 3
