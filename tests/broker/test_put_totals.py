"""What code 28 says of puts is true at once: nobody waits for a flush, a slave or a consumer to be counted."""

import trio
from trio.testing import MockClock

from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.client import RemotingClient
from tests.broker.machines import Machine, ask, send_request
from tests.broker.test_dledger_broker import group_of
from tests.broker.test_pair import Pair
from tests.sim.sim_net import SimNet


async def runtime_table(client: RemotingClient) -> dict[str, str]:
    answer = await ask(client, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
    table: dict[str, str] = java_json.loads(answer.body)["table"]
    return table


async def send_ten(client: RemotingClient) -> None:
    for number in range(10):
        await ask(client, send_request(b"%d" % number))


def a_batch(count: int) -> RemotingCommand:
    one = (4 * 5 + 1 + 2).to_bytes(4, "big") + bytes(12) + (1).to_bytes(4, "big") + b"x" + bytes(2)
    return send_request(one * count, batch=True)


async def test_a_master_counts_what_nobody_consumes_and_no_disk_has(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", {"flushCommitLogThoroughInterval": "10000"})
    async with machine.broker() as broker, machine.client() as client:
        await trio.sleep(3)
        await send_ten(client)
        await ask(client, a_batch(5))
        await trio.sleep(2)
        assert broker.store.reput_from_offset == 0, "consumers see nothing yet"
        table = await runtime_table(client)
        assert table["msgPutTotalTodayNow"] == table["putMessageTimesTotal"] == "15"
        assert table["putMessageSizeTotal"] == str(broker.store.max_offset)
        assert float(table["putTps"].split()[0]) > 1


async def test_blanks_at_the_ends_of_segments_are_no_messages(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker() as broker, machine.client() as client:
        record_sizes = []
        for _ in range(20):
            before = broker.store.stats.put_message_size_total
            await ask(client, send_request(bytes(10_000)))
            record_sizes.append(broker.store.stats.put_message_size_total - before)
        assert broker.store.max_offset > 3 * 65536
        assert len(set(record_sizes)) == 1
        assert sum(record_sizes) < broker.store.max_offset


async def test_a_master_without_its_slave_counts_and_a_slave_counts_what_it_copies(autojump_clock: MockClock) -> None:
    pair = Pair()
    async with pair.running(), pair.master.client() as client, pair.slave.client() as other:
        await send_ten(client)
        await trio.sleep(2)
        for table in (await runtime_table(client), await runtime_table(other)):
            assert table["msgPutTotalTodayNow"] == "10"
            assert float(table["putTps"].split()[0]) > 1
    async with pair.master.broker(), pair.master.client() as client:
        await send_ten(client)
        assert (await runtime_table(client))["msgPutTotalTodayNow"] == "10"


async def test_a_message_that_was_not_stored_does_not_count(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker(), machine.client() as client:
        await ask(client, send_request(b"x", queue_id=99))
        assert (await runtime_table(client))["putMessageTimesTotal"] == "0"


async def test_a_leader_counts_and_its_followers_do(autojump_clock: MockClock) -> None:
    async with group_of() as group:
        await group.send(*[b"%d" % number for number in range(10)])
        await group.wait_same()
        totals = [node.running.store.stats.put_message_times_total for node in group.nodes.values()]
        assert totals == [10, 10, 10]
