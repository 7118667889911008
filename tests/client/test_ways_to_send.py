"""A message arrives as it was made by whichever call it is sent; of a batch each does."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import product
from typing import Any, Final

import pytest
from trio.testing import MockClock

from rmqha.client import Message, Producer
from rmqha.client.message import DELAY_LEVEL_MAX
from rmqha.codec.properties import find_property
from rmqha.codec.send_headers import SendMessageRequestDecoder
from tests.client.cluster import cluster_of
from tests.client.fake_broker import FakeBroker

MADE: Final[list[dict[str, Any]]] = [
    {},
    {"tags": "TagA"},
    {"keys": ("k1", "k2")},
    {"keys": "k1"},
    {"properties": {"colour": "blå", "size": "7"}},
    {"flag": -7},
    {"wait_store_msg_ok": False},
    {"tags": "B", "keys": "k", "properties": {"a": "b"}, "flag": 3, "wait_store_msg_ok": False},
    *({"delay_level": level} for level in (1, 3, DELAY_LEVEL_MAX)),
]


async def one_by_one(producer: Producer, messages: Sequence[Message]) -> None:
    for message in messages:
        assert (await producer.send(message)).is_ok


async def batch(producer: Producer, messages: Sequence[Message]) -> None:
    assert (await producer.send_batch(messages)).is_ok


async def oneway(producer: Producer, messages: Sequence[Message]) -> None:
    for message in messages:
        await producer.send_oneway(message)
    assert (await producer.send(Message("last", b"x"))).is_ok


async def pipeline(producer: Producer, messages: Sequence[Message]) -> None:
    async with producer.pipeline(window=2) as sending:
        for message in messages:
            await sending.send(message)


async def many(producer: Producer, messages: Sequence[Message]) -> None:
    async for _ in producer.send_many(messages, window=2):
        pass


WAYS: Final[dict[str, Callable[[Producer, Sequence[Message]], Awaitable[None]]]] = {
    one.__name__: one for one in (one_by_one, batch, oneway, pipeline, many)
}


def wanted(message: Message, body: bytes) -> dict[str, Any]:
    """What a consumer is to see; of properties all but the id."""
    properties = {"WAIT": str(message.wait_store_msg_ok).lower()} | dict(message.properties or {})
    if message.tags:
        properties["TAGS"] = message.tags
    if message.keys:
        properties["KEYS"] = message.keys if isinstance(message.keys, str) else " ".join(message.keys)
    if message.delay_level:
        properties["DELAY"] = str(message.delay_level)
    return {"body": body, "flag": message.flag, "properties": properties}


CASES: Final = [
    pytest.param(way, made, id=f"{way} {made}")
    for way, made in product(WAYS, MADE)
    if way != "batch" or "delay_level" not in made  # which no batch takes
]


@pytest.mark.parametrize(("way", "made"), CASES)
async def test_all_of_a_message_arrives(way: str, made: dict[str, Any], autojump_clock: MockClock) -> None:
    """The broker goes by WAIT of the request, which a batch has beside those of its messages."""
    broker, bodies = FakeBroker(), [b"1", b"2", b"3"]
    messages = [Message("T", body, **made) for body in bodies]
    async with cluster_of(broker) as cluster, cluster.producer() as producer:
        await WAYS[way](producer, messages)
    stored = [one for queue_id in range(8) for one in broker.messages("T", queue_id)]
    stored.sort(key=lambda one: one.physical_offset)
    seen: list[dict[str, Any]] = [
        {"body": one.body, "flag": one.flag, "properties": dict(one.properties)} for one in stored
    ]
    ids = [one["properties"].pop("UNIQ_KEY") for one in seen]
    assert seen == [wanted(message, body) for message, body in zip(messages, bodies, strict=True)]
    assert len(set(ids)) == len(bodies)
    headers = [SendMessageRequestDecoder().decode(request) for request in broker.sent]
    waits = {find_property(header.properties, b"WAIT") for header in headers if header.topic == "T"}
    assert waits == {b"true" if messages[0].wait_store_msg_ok else b"false"}
