"""Stores that RocketMQ 4.9.8 wrote, opened by ours: the same log, the same queues, the same index-free truth."""

import hashlib
from pathlib import Path

import pytest

from rmqha.store.log_reader import LogReader
from tests import stores
from tests.store.golden import open_store, queues_of


@pytest.mark.parametrize("name", stores.SIDES)
def test_a_recorded_store_opens_with_the_log_and_queues_rocketmq_finds(name: str, tmp_path: Path) -> None:
    expected = stores.expected_log(name)
    store = open_store(stores.unpack(name, tmp_path), name)
    store.load()
    # RocketMQ takes a blank at the log's end back; we count it as written, as the running master did.
    end = {"endblank": 131072}.get(name, expected["maxOffset"])
    assert (store.min_offset, store.max_offset) == (max(0, expected["minOffset"]), end)
    assert store.flushed.value == end
    assert queues_of(store) == stores.expected_queues(name)
    store.close()


@pytest.mark.parametrize("name", ["crashed", "rolled", "slave/slave", "odd"])
def test_opening_twice_is_opening_once(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    found = []
    for _ in range(2):
        store = open_store(root, name)
        store.load()
        found.append((store.max_offset, queues_of(store), _digests(root / "commitlog")))
        store.close()
    assert found[0] == found[1]


@pytest.mark.parametrize("name", stores.STORES)
def test_opening_changes_no_byte_of_a_log_that_is_whole(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    before = {file["name"]: file["sha256"] for file in stores.expected_log(name)["files"]}
    store = open_store(root, name)
    store.load()
    store.close()
    after = _digests(root / "commitlog")
    assert {file: before[file] for file in after} == after
    spare = before.keys() - after.keys()
    assert len(spare) <= 1  # the next segment, made in advance and never used


def test_the_log_of_a_store_in_use_can_be_read(tmp_path: Path) -> None:
    root = stores.unpack("rolled", tmp_path)
    store = open_store(root, "rolled")
    store.load()
    reader = LogReader(store.disk, str(root / "commitlog"))
    assert len(list(reader.messages())) == stores.expected_log("rolled")["messages"]
    store.close()


def _digests(directory: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}
