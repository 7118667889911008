"""A PutMessageService whose callers and slaves are a test's."""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext

import trio

from rmqha.broker.puts.durability import Answer, Durability, ReplicaPromise
from rmqha.broker.puts.put_service import PutMessageService
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec.record.encoder import PreparedRecord, prepare
from rmqha.replication.watermark import Watermark
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.status import AppendResult
from tests.broker.machines import Machine, ask, send_request
from tests.sim.sim_net import SimNet


class Caller:
    """A caller that is no connection; it knows its puts by names."""

    def __init__(self, peer: str = "10.0.0.9:1") -> None:
        self.peer = peer
        self.told: list[tuple[str, object]] = []
        self.places: list[int] = []
        """Of its messages in their queue."""

    def fenced(self) -> AbstractContextManager[None]:
        return nullcontext()

    def refuse(self, asked: str, result: AppendResult) -> None:
        self.told.append((asked, result.status))

    def finish_oneway(self, puts: list[str]) -> None:
        self.told.append(("one-way", len(puts)))

    def prepare_answers(self, stored: list[tuple[str, AppendResult]]) -> Answer:
        names = [asked for asked, _ in stored]
        self.places += [result.queue_offset for _, result in stored]
        return lambda statuses: self.told.extend(zip(names, statuses, strict=True))


class Replicas:
    """Slaves whose acknowledgements a test gives."""

    def __init__(self) -> None:
        self.acked, self.acked_from = Watermark(), 0

    def is_slave_ok(self, _next_offset: int) -> bool:
        return True


@asynccontextmanager
async def waiting_for_replicas() -> AsyncIterator[tuple[PutMessageService, DefaultMessageStore, Replicas]]:
    """A service on a broker's store whose topic ``t`` is there; it is not run."""
    async with waiting_for_topics() as (service, store, replicas, _):
        yield service, store, replicas


@asynccontextmanager
async def waiting_for_topics() -> AsyncIterator[
    tuple[PutMessageService, DefaultMessageStore, Replicas, TopicConfigManager]
]:
    """Likewise, with its topics."""
    machine, replicas = Machine(SimNet(), "10.0.0.1", {"brokerRole": "ASYNC_MASTER"}), Replicas()
    async with machine.broker() as broker, machine.client() as client:
        await ask(client, send_request(b"", topic="t"))  # makes the first segment
        promise = ReplicaPromise(replicas, 3.0)
        durability = Durability(broker.store, clock=trio.current_time, flush=None, replica=promise)
        yield (
            PutMessageService(broker.store, broker.topics, durability, refusal=lambda: ""),
            broker.store,
            replicas,
            broker.topics,
        )


def record(body: bytes, topic: str = "t") -> PreparedRecord:
    """A message to a topic."""
    host = bytes(8)
    return prepare(topic, body, queue_id=0, born_timestamp_ms=0, born_host_raw=host, store_host_raw=host)
