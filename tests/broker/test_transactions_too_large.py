"""Half messages that cannot be written again, or could not be committed: they are refused, or hold no others up."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.transaction.half_message import CHECK_IMMUNITY_TIME, HALF_TOPIC
from rmqha.codec.codes import ResponseCode
from rmqha.codec.record.encoder import prepare
from tests.broker.machines import Machine
from tests.broker.producers import COMMIT, half_request, producer_of, seen
from tests.sim.sim_net import SimNet

TIMES = {"transactionCheckInterval": "4000", "transactionTimeOut": "3000"}


@pytest.fixture
def machine() -> Machine:
    return Machine(SimNet(), "10.0.0.1", TIMES)


@pytest.mark.parametrize(("body_size", "properties_size"), [(64_000, 1500), (100, 33_000)])
@pytest.mark.parametrize(
    ("topic", "first"), [("t", ""), ("t" * 100, ""), ("t" * 127, f"{CHECK_IMMUNITY_TIME}\x015\x02")]
)
async def test_the_largest_half_message_is_asked_about_and_committed(
    machine: Machine, topic: str, first: str, body_size: int, properties_size: int, autojump_clock: MockClock
) -> None:
    """As it is when it is written again, with all that is noted of it, and under the name of its own topic."""
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        for size in range(properties_size, 0, -10):
            request = half_request(b"k", b=topic, properties=f"{first}P\x01" + "v" * size)
            request.body = bytes(body_size)
            sent = await producer.ask(request)
            if sent.code == ResponseCode.SUCCESS:
                break
            assert sent.code == ResponseCode.MESSAGE_ILLEGAL, sent.remark
        again, message = await producer.wait_asked(2)
        assert message.properties["TRANSACTION_CHECK_TIMES"] == "2"
        ended = await producer.end(again, COMMIT)
        assert ended is not None
        assert ended.code == ResponseCode.SUCCESS, ended.remark
        assert [len(message.body) for message in await seen(broker, topic=topic)] == [body_size]


async def test_what_only_rocketmq_writes_holds_nothing_up(machine: Machine, autojump_clock: MockClock) -> None:
    """A NUL among its properties: no copy could have it, and nobody was asked about the half message."""
    record = prepare(
        HALF_TOPIC,
        b"old",
        queue_id=0,
        born_timestamp_ms=1_700_000_000_000,
        born_host_raw=bytes(8),
        store_host_raw=bytes(8),
        properties_raw=b"K\x01N\x02REAL_TOPIC\x01t\x02REAL_QID\x010\x02PGROUP\x01PG",
    )
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        await producer.prepare(b"before")
        broker.store.put_messages([record._replace(tail=record.tail.replace(b"\1N", b"\1\0"))])
        await producer.prepare(b"behind")
        await trio.sleep(10)
        asked = [message.body for _, message in [await producer.wait_asked(number) for number in (1, 2, 3)]]
        assert sorted(asked) == [b"before", b"behind", b"old"]
