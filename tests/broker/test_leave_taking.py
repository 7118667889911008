"""A master that stops: what its slaves do not have is told, and a slave that only needs a moment gets it."""

from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from tests.broker.machines import Machine, ask, send_request
from tests.broker.test_pair import Pair

LEFT = "ha_service.slave_left_behind"


def told(logs: list[Any]) -> list[Any]:
    return [entry for entry in logs if entry["event"] == LEFT]


@pytest.fixture
def pair() -> Pair:
    return Pair()


async def test_a_slave_that_is_behind_is_named_with_what_it_lacks(pair: Pair, autojump_clock: MockClock) -> None:
    """Nothing was said, and who made that slave master lost the messages."""
    async with pair.slave.broker():
        with capture_logs() as logs:
            async with pair.master.broker() as master, pair.master.client() as client:
                await trio.sleep(15)
                begun_at = master.store.max_offset
                pair.net.cut("10.0.0.1", "10.0.0.2")
                await ask(client, send_request(b"x"))
                end = master.store.max_offset
        pair.net.heal()
    (entry,) = told(logs)
    assert (entry["log_level"], entry["slave"], entry["away_s"]) == ("warning", "broker-a/1", None)
    assert (entry["lacks_bytes"], entry["slave_ack_offset"], entry["max_offset"]) == (end - begun_at, begun_at, end)
    assert "on this disk alone" in entry["meaning"]


async def test_one_that_is_away_is_named_too(pair: Pair, autojump_clock: MockClock) -> None:
    with capture_logs() as logs:
        async with pair.master.broker() as master, pair.master.client() as client:
            async with pair.slave.broker():
                await trio.sleep(15)
            await trio.sleep(20)
            assert master.store.max_offset == 0
            await ask(client, send_request(b"x"))
    (entry,) = told(logs)
    assert entry["slave"] == "broker-a/1"
    assert round(entry["away_s"]) >= 20
    assert entry["lacks_bytes"] > 0


async def test_another_slave_that_has_everything_is_pointed_to(autojump_clock: MockClock) -> None:
    pair = Pair()
    second = Machine(pair.net, "10.0.0.3", pair.slave.settings | {"brokerId": "2"})
    async with pair.slave.broker(), second.broker():
        with capture_logs() as logs:
            async with pair.master.broker(brokerRole="ASYNC_MASTER"), pair.master.client() as client:
                await trio.sleep(15)
                pair.net.cut("10.0.0.1", "10.0.0.3")
                await ask(client, send_request(b"x"))
        pair.net.heal()
    (entry,) = told(logs)
    assert entry["slave"] == "broker-a/2"
    assert "1 other slave(s) hold all of this log" in entry["meaning"]


async def test_one_that_is_away_and_has_everything_is_pointed_to_as_well(autojump_clock: MockClock) -> None:
    pair = Pair()
    second = Machine(pair.net, "10.0.0.3", pair.slave.settings | {"brokerId": "2"})
    async with second.broker():
        with capture_logs() as logs:
            async with pair.master.broker(brokerRole="ASYNC_MASTER"), pair.master.client() as client:
                async with pair.slave.broker():
                    await trio.sleep(15)
                    pair.net.cut("10.0.0.1", "10.0.0.3")
                    await ask(client, send_request(b"x"))
                    await trio.sleep(1)
                await trio.sleep(1)
        pair.net.heal()
    (entry,) = told(logs)
    assert entry["slave"] == "broker-a/2"
    assert "1 other slave(s) hold all of this log" in entry["meaning"]


async def test_a_slave_that_keeps_up_gets_the_last_bytes_and_is_no_warning(autojump_clock: MockClock) -> None:
    """An ASYNC_MASTER's slave is a moment behind at any time."""
    pair = Pair()
    async with pair.slave.broker() as slave:
        with capture_logs() as logs:
            async with pair.master.broker(brokerRole="ASYNC_MASTER") as master, pair.master.client() as client:
                await trio.sleep(15)
                await ask(client, send_request(b"x"))
                end = master.store.max_offset
                assert slave.store.max_offset < end
        assert slave.store.max_offset == end
    assert told(logs) == []
