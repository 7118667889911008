"""Bugs planted where requests go on in another task than their connection's: each costs its client alone something."""

import json
from typing import Any

import pytest
import trio

from rmqha.broker.puts.durability import Durability
from rmqha.cli.verdict import judge, read_status
from rmqha.codec.batch import BatchEntry, encode_batch
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.record.encoder import PreparedRecord
from rmqha.codec.record.prepared_batch import PreparedBatch
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.send_answers import decode_send_response
from rmqha.errors import RemotingSendRequestError
from rmqha.store.message_store import DefaultMessageStore
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet

POISON = b"poison"

pytestmark = pytest.mark.meets_bugs


def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record with a poisonous body cannot be encoded."""

    def append_to(record: PreparedRecord, parts: list[Any], **place: Any) -> None:
        if record.body == POISON:
            raise AssertionError("planted")
        really_append_to(record, parts, **place)

    def append_batch_to(batch: PreparedBatch, parts: list[Any], **place: Any) -> list[int]:
        if POISON in batch.bodies:
            raise AssertionError("planted")
        return really_append_batch_to(batch, parts, **place)

    really_append_to, really_append_batch_to = PreparedRecord.append_to, PreparedBatch.append_to
    monkeypatch.setattr(PreparedRecord, "append_to", append_to)
    monkeypatch.setattr(PreparedBatch, "append_to", append_batch_to)


@pytest.mark.parametrize(
    "poisoned",
    [
        send_request(POISON),
        send_request(encode_batch([BatchEntry(0, body, b"") for body in (b"a", POISON)]), batch=True),
    ],
    ids=["single", "batch"],
)
async def test_a_bug_in_an_append_leaves_no_gap_in_the_queue(
    poisoned: RemotingCommand, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker() as broker, machine.client() as good:
        for expected in range(5):
            answer = await ask(good, send_request(b"x"))
            assert decode_send_response(answer).queue_offset == expected
            async with machine.client() as bad:
                with pytest.raises(RemotingSendRequestError):
                    await ask(bad, poisoned)
        pulled = await ask(good, pull_request(4, suspend_ms=1000))
        assert pulled.code == ResponseCode.SUCCESS
        assert broker.fence.bugs == 5
        assert broker.store.running_flags.dispatch_error is None


async def test_a_bug_while_a_held_pull_goes_on_is_its_own(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(SimNet(), "10.0.0.1")
    async with (
        machine.broker() as broker,
        machine.client() as good,
        machine.client() as bad,
        trio.open_nursery() as tasks,
    ):
        await ask(good, send_request(b"x"))
        answers: dict[str, RemotingCommand] = {}

        async def pull(name: str, client: Any, offset: int) -> None:
            answers[name] = await ask(client, pull_request(offset, suspend_ms=15_000))

        def send_response(connection: Any, *parts: Any, **size: int) -> None:
            if connection.peer.startswith("10.9.9.2:") and len(parts) > 1:
                raise AssertionError("planted")
            really_send_response(connection, *parts, **size)

        tasks.start_soon(pull, "bad", bad, 1)
        tasks.start_soon(pull, "good", good, 1)
        await trio.sleep(1)
        assert broker.server is not None
        connection = next(iter(broker.server.connections))
        really_send_response = type(connection).send_response
        monkeypatch.setattr(type(connection), "send_response", send_response)
        await ask(good, send_request(b"y"))
        await trio.sleep(1)
        assert {name: answer.code for name, answer in answers.items()} == {
            "good": ResponseCode.SUCCESS,
            "bad": ResponseCode.SYSTEM_ERROR,
        }
        assert broker.fence.bugs == 1


async def test_a_bug_while_a_send_is_answered_is_its_own(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is given from the task that flushes."""
    machine = Machine(SimNet(), "10.0.0.1", {"flushDiskType": "SYNC_FLUSH"})

    def answer_when_durable(durability: Durability, begin: int, ends: Any, answer: Any) -> None:
        really_answer(durability, begin, ends, lambda _statuses: answer([None] * 7))

    async with machine.broker() as broker:
        async with machine.client() as bad:
            really_answer = Durability.answer_when_durable
            with monkeypatch.context() as patch:
                patch.setattr(Durability, "answer_when_durable", answer_when_durable)
                with pytest.raises(RemotingSendRequestError):
                    await ask(bad, send_request(b"x"))
        async with machine.client() as good:
            assert (await ask(good, send_request(b"x"))).code == ResponseCode.SUCCESS
        assert broker.fence.bugs == 1


async def test_a_bug_that_was_fenced_is_seen_in_the_status(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(SimNet(), "10.0.0.1", {"brokerRole": "ASYNC_MASTER"})
    async with machine.broker(), machine.client() as client:
        facts = read_status(await runtime_table(client))
        assert (facts["requests_broken"], judge(facts).level) == (0, "ok")
        with monkeypatch.context() as patch:
            patch.setattr(DefaultMessageStore, "min_offset", property(lambda _store: 1 // 0))
            answer = await ask(client, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
            assert (answer.code, "ZeroDivisionError" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        verdict = judge(read_status(await runtime_table(client)))
        assert verdict.level == "degraded"
        assert "1 requests met a bug" in verdict.reasons[-1]


async def runtime_table(client: Any) -> dict[str, str]:
    answer = await ask(client, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
    table: dict[str, str] = json.loads(answer.body)["table"]
    return table
