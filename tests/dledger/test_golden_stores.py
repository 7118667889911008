"""The stores that a group of DLedger 0.3.1.2 wrote: opened, and written again byte for byte."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.codec.dledger_properties import TermVote, encode_term_vote
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.member_state import MemberState
from rmqha.dledger.term_file import TermFile
from rmqha.store.os_disk import OsDisk
from tests.dledger.defaults import store_config
from tests.dledger.ledgers import FIXTURE, expected_lines, unpack
from tests.dledger.members import all_of, cut_to, follow, lead, take

SETTINGS = json.loads((FIXTURE / "settings.json").read_text())
MEMBERS = ["n0", "n1", "n2"]


def store_at(base: Path, member: str = "n0", **options: Any) -> DLedgerMmapFileStore:
    config = store_config(
        base,
        member,
        mapped_file_size_for_entry_data=SETTINGS["dataFileSize"],
        mapped_file_size_for_entry_index=SETTINGS["indexFileSize"],
        **options,
    )
    store = DLedgerMmapFileStore(config, MemberState(member), OsDisk())
    store.startup()
    return store


def files_of(base: Path, member: str) -> dict[str, bytes]:
    """All but the lock, and what only DLedger's way of replacing a file leaves."""
    root = base / f"dledger-{member}"
    paths = [path for path in root.rglob("*") if path.is_file() and path.name != "lock" and path.suffix != ".bak"]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


@pytest.fixture
def group(tmp_path: Path) -> Path:
    return unpack(tmp_path / "group")


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[list[DLedgerEntry]]:
    store = store_at(unpack(tmp_path / "recorded"))
    yield all_of(store)
    store.close()


@pytest.mark.parametrize("acks_flushed", [True, False])
@pytest.mark.parametrize("member", MEMBERS)
async def test_a_recorded_store_is_read_and_left_as_it_is(group: Path, member: str, *, acks_flushed: bool) -> None:
    before = files_of(group, member)
    store = store_at(group, member, acks_flushed=acks_flushed)
    expected = [line for line in expected_lines() if "blank" not in line]
    assert [(entry.index, entry.term, entry.pos, entry.size) for entry in all_of(store)] == [
        (line["index"], line["term"], line["pos"], line["size"]) for line in expected
    ]
    assert [hashlib.sha256(entry.body).hexdigest() for entry in all_of(store)] == [
        line["bodySha256"] for line in expected
    ]
    assert (store.ledger_begin_index, store.ledger_end_index, store.ledger_end_term) == (0, 54, 2)
    assert (store.member_state.ledger_end_index, store.member_state.ledger_end_term) == (54, 2)
    last = all_of(store)[-1]
    assert (store.committed_index, store.committed_pos) == (54, last.pos + last.size)
    await store.shutdown()
    assert files_of(group, member) == before


@pytest.mark.parametrize("acks_flushed", [True, False])
async def test_a_leader_writes_the_very_bytes(
    group: Path, recorded: list[DLedgerEntry], tmp_path: Path, *, acks_flushed: bool
) -> None:
    """Seed checklist, steps 5 to 10: next index, term, position, entry, unit, ends (spec: dledger §2.4)."""
    store = store_at(tmp_path, acks_flushed=acks_flushed)
    for entry in recorded:
        lead(store, entry.term)
        assert store.append_as_leader(DLedgerEntry(entry.body)) == entry
    store.update_committed_index(2, 54)
    await store.shutdown()
    written = files_of(tmp_path, "n0")
    assert written == {name: data for name, data in files_of(group, "n0").items() if name in written}
    assert set(files_of(group, "n0")) - set(written) == {"currterm"}


async def test_a_follower_writes_the_very_bytes(group: Path, recorded: list[DLedgerEntry], tmp_path: Path) -> None:
    """The first entry of a group comes inside a TRUNCATE (spec: dledger §3.2)."""
    store = store_at(tmp_path)
    follow(store, 1)
    cut_to(store, recorded[0])
    for entry in recorded[1:]:
        follow(store, entry.term)
        take(store, entry)
    store.update_committed_index(2, 54)
    await store.shutdown()
    written = files_of(tmp_path, "n0")
    assert written == {name: data for name, data in files_of(group, "n0").items() if name in written}


async def test_a_recorded_store_goes_on(group: Path) -> None:
    store = store_at(group)
    lead(store, 3)
    entry = store.append_as_leader(DLedgerEntry(b"more"))
    assert (entry.index, entry.term) == (55, 3)
    await store.shutdown()
    again = store_at(group)
    assert again.get(55) == replace(entry)
    assert (again.ledger_end_index, again.ledger_end_term, again.committed_index) == (55, 3, 54)
    again.close()


@pytest.mark.parametrize("member", MEMBERS)
def test_the_term_file(group: Path, member: str) -> None:
    disk, directory = OsDisk(), group / f"dledger-{member}"
    before = (directory / "currterm").read_bytes()
    state = TermFile(disk, str(directory)).load(ledger_end_term=2)
    assert state == TermVote(2, "n0" if member == "n0" else "n2")
    assert encode_term_vote(state) == before
    TermFile(disk, str(directory)).save(state)
    assert (directory / "currterm").read_bytes() == before == SETTINGS["nodes"][member]["currterm"].encode()


async def test_an_index_that_was_lost_is_made_again_from_the_data(group: Path) -> None:
    before = files_of(group, "n1")
    for path in (group / "dledger-n1" / "index").iterdir():
        path.unlink()
    store = store_at(group, "n1")
    assert store.ledger_end_index == 54
    await store.shutdown()
    assert files_of(group, "n1") == before


async def test_a_damaged_unit_is_made_again_from_the_data(group: Path) -> None:
    before = files_of(group, "n1")
    path = group / "dledger-n1" / "index" / ("0" * 20)
    with path.open("r+b") as file:
        file.seek(52 * 32)
        file.write(bytes(64))
    store = store_at(group, "n1")
    assert store.ledger_end_index == 54
    await store.shutdown()
    assert files_of(group, "n1") == before
