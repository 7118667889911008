"""DLedger 0.3.1.2 and rmqha open each other's stores: the same entries, the same bytes, the same end after damage."""

import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.member_state import MemberState
from rmqha.errors import CorruptLogError
from rmqha.store.os_disk import OsDisk
from tests.dledger.defaults import store_config
from tests.dledger.members import all_of, cut_to, follow, lead, put
from tests.interop.feature_table import DLEDGER
from tests.interop.ledgers import DATA_SIZE, INDEX_SIZE, SIZES, Entry, java, script_of

pytestmark = pytest.mark.tries(DLEDGER, "open the other's store")


def ours(base: Path, *, acks_flushed: bool = True) -> DLedgerMmapFileStore:
    config = store_config(
        base,
        mapped_file_size_for_entry_data=DATA_SIZE,
        mapped_file_size_for_entry_index=INDEX_SIZE,
        acks_flushed=acks_flushed,
    )
    store = DLedgerMmapFileStore(config, MemberState("n0"), OsDisk())
    store.startup()
    return store


def entries_of(store: DLedgerMmapFileStore) -> list[Entry]:
    return [(entry.index, entry.term, entry.pos, entry.body) for entry in all_of(store)]


def bodies(count: int, *, seed: int = 0) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(size) for size in (SIZES * 9)[:count]]


def files_of(base: Path) -> dict[str, bytes]:
    root = base / "dledger-n0"
    return {
        str(path.relative_to(root)): path.read_bytes() for kind in ("data", "index") for path in (root / kind).iterdir()
    }


async def test_both_write_the_same_bytes(tmp_path: Path) -> None:
    first, second = bodies(40), bodies(30, seed=1)
    java(tmp_path / "java", script=[*script_of(1, first), *script_of(3, second), "commit 60"])
    store = ours(tmp_path / "ours")
    lead(store, 1)
    put(store, *first)
    lead(store, 3)
    put(store, *second)
    store.update_committed_index(3, 60)
    await store.shutdown()
    assert files_of(tmp_path / "ours") == files_of(tmp_path / "java")
    assert (tmp_path / "ours/dledger-n0/checkpoint").read_bytes() == (
        tmp_path / "java/dledger-n0/checkpoint"
    ).read_bytes()


@pytest.mark.parametrize("ending", ["stopped", "killed"])
async def test_java_opens_ours_and_goes_on_and_so_do_we(tmp_path: Path, ending: str) -> None:
    store = ours(tmp_path)
    lead(store, 1)
    put(store, *bodies(50))
    assert await store.flush_in_thread()
    store.update_committed_index(1, 44)
    written = entries_of(store)
    if ending == "stopped":
        await store.shutdown()
    else:
        store.close()
    entries, ends = java(tmp_path)[tmp_path]
    assert entries == written
    assert ends == [0, 49, 1, 44 if ending == "stopped" else -1, written[-1][2] + 48 + len(written[-1][3])]
    entries, _ends = java(tmp_path, script=script_of(2, bodies(20, seed=2)))[tmp_path]
    again = ours(tmp_path)
    assert entries_of(again) == entries
    assert again.ledger_end_index == 69
    again.close()


@pytest.mark.parametrize("acks_flushed", [True, False])
async def test_what_java_cut_shows_again_in_both_and_what_we_cut_in_neither(
    tmp_path: Path, *, acks_flushed: bool
) -> None:
    """After a TRUNCATE and a clean stop DLedger has 81 entries again, where 51 were left."""
    some = [bytes([number]) * 50 for number in range(81)]
    entries, ends = java(tmp_path / "java", script=[*script_of(1, some), "follow 2", "truncate 50"])[tmp_path / "java"]
    assert (len(entries), ends[1]) == (51, 50)
    shutil.copytree(tmp_path / "java", tmp_path / "copy")
    store = ours(tmp_path / "copy", acks_flushed=acks_flushed)
    java_again, _ends = java(tmp_path / "java")[tmp_path / "java"]
    assert len(java_again) == 81
    assert entries_of(store) == java_again

    follow(store, 2)
    cut_to(store, store.get(50))
    await store.shutdown()
    entries, ends = java(tmp_path / "copy")[tmp_path / "copy"]
    assert (len(entries), ends[1]) == (51, 50)


def damage(base: Path, chance: random.Random, entries: Sequence[Entry]) -> None:
    """Not before the third file from the end: what lies there neither looks at."""
    _index, _term, pos, body = chance.choice(entries[-12:])
    kind = chance.choice(["header", "zeros", "unit", "units", "index"])
    root = base / "dledger-n0"
    if kind == "index":
        shutil.rmtree(root / "index")
        (root / "index").mkdir()
        return
    at = pos + chance.randrange(48) if kind == "header" else pos
    data = {"header": bytes([chance.randrange(256)]), "zeros": bytes(48 + len(body))}.get(kind, b"")
    directory, size = "data", DATA_SIZE
    if kind.startswith("unit"):
        directory, size, at = "index", INDEX_SIZE, _index * 32
        data = chance.randbytes(8) if kind == "unit" else bytes(32)
    with (root / directory / f"{at // size * size:020d}").open("r+b") as file:
        file.seek(at % size)
        file.write(data)


def test_both_find_the_same_end_after_damage(tmp_path: Path) -> None:
    """Of what nobody had committed. DLedger's stores: what acknowledges without a flush reads them as DLedger does."""
    made = tmp_path / "made"
    java(made, script=script_of(1, [bytes([number]) * 700 for number in range(30)]))
    (made / "dledger-n0" / "checkpoint").unlink()
    written = java(made)[made][0]
    chance = random.Random(7)
    cases = [tmp_path / f"case-{number}" for number in range(40)]
    for case in cases:
        shutil.copytree(made, case)
        (case / "dledger-n0" / "checkpoint").unlink()
        damage(case, chance, written)
    held = []
    for case in cases:
        shutil.copytree(case, tmp_path / "ours" / case.name)
        store = ours(tmp_path / "ours" / case.name, acks_flushed=False)
        held.append(entries_of(store))
        store.close()
    java_holds = java(*cases)
    assert [java_holds[case][0] for case in cases] == held
    assert len({len(entries) for entries in held}) > 3


def test_more_than_a_file_is_thrown_away_by_neither(tmp_path: Path) -> None:
    java(tmp_path, script=script_of(1, [bytes(700)] * 30))
    with (tmp_path / "dledger-n0" / "data" / ("0" * 20)).open("r+b") as file:
        file.seek(3 * 748)
        file.write(b"\x7f" * 40)
    before = files_of(tmp_path)
    with pytest.raises(CorruptLogError, match="position 2244"):
        ours(tmp_path)
    assert files_of(tmp_path) == before
    with pytest.raises(AssertionError, match=r"processOffset is too small|^$"):
        java(tmp_path)


def test_an_entry_is_the_same_to_both(tmp_path: Path) -> None:
    """Equality, by which COMPARE and TRUNCATE decide, does not look at the CRCs."""
    entry = DLedgerEntry(b"x", index=1, term=1, pos=1, size=49)
    assert entry == replace(entry, chain_crc=5, body_crc=6)
    for changed in ({"channel": 1}, {"pos": 2}, {"term": 2}, {"index": 2}, {"magic": 2}, {"size": 50}, {"body": b"y"}):
        assert entry != replace(entry, **changed)
