"""RocketMQ's index files: ours are the same bytes, and theirs answer as they did there."""

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.index_file import decode_index_header
from tests import stores
from tests.store.golden import open_store
from tests.store.indexing import indexed, offsets_of


def index_files(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


@pytest.mark.parametrize("name", ["basic", "rolled", "odd", "v6", "bench"])
async def test_an_index_built_of_a_recorded_log_is_the_recorded_one(
    name: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    root = stores.unpack(name, tmp_path)
    recorded = index_files(root)
    for path in (root / "index").iterdir():
        path.unlink()
    store = open_store(root, name)
    store.load()
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        await indexed(store)
        store.stop()
    ours = index_files(root)
    assert [decode_index_header(raw) for raw in ours] == [decode_index_header(raw) for raw in recorded]
    assert ours == recorded


@pytest.mark.parametrize("name", stores.SIDES)
async def test_a_recorded_store_finds_by_key_what_rocketmq_finds(
    name: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    expected = stores.expected_index(name)
    by_offset = {message["physicalOffset"]: message for message in stores.expected_messages(name)}
    store = open_store(stores.unpack(name, tmp_path), name)
    store.load()
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        await indexed(store)
        for topic_and_key, offsets in expected.items():
            topic, _, key = topic_and_key.partition("#")
            alike = {offset for offset in offsets if key in _keys_of(by_offset.get(offset))}
            assert await offsets_of(store, key, topic=topic) == sorted(alike), topic_and_key
        store.stop()


def _keys_of(message: dict[str, Any] | None) -> list[str]:
    """None: it was deleted."""
    properties = (message and message["properties"]) or {}
    return [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]
