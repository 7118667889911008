"""Topics found by the consume queues: the rows of a full scan, of fewer bytes, whatever is wrong with the queues."""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is in the extra [spark]")

from pyarrow import fs

from rmqha.codec.deleted_topic import DeletedTopic
from rmqha.spark import ReadReport, decoder, queue_pruning
from rmqha.spark.commit_log import open_log
from rmqha.spark.decoder import _SplitDecoder, decode
from rmqha.spark.options import OnCorrupt, ReadOptions
from rmqha.spark.queue_pruning import QueuePruning
from rmqha.spark.replay import ReplayOptions, replay
from rmqha.spark.segments import open_filesystem
from tests import stores
from tests.spark.in_process import in_process
from tests.spark.logs import LedgerWriter, LogWriter, record
from tests.spark.queues import UNITS_IN_FILE, Store, large_store, write_units
from tests.spark.readers import offsets

Damage = Callable[[random.Random, Store], None]


def make_store(chance: random.Random, root: Path, *, is_ledger: bool, count: int = 500) -> Store:
    store = Store(LedgerWriter(root) if is_ledger else LogWriter(root))
    for _ in range(count):
        topic = chance.choices(["rare", "orders", "audit", "%RETRY%g"], [5, 60, 28, 7])[0]
        body = chance.randbytes(chance.choice([0, 5, 50, 300, 1500]))
        store.put(topic, chance.randrange(3), body, is_shown=chance.random() > 0.02)
    store.dispatch()
    return store


def pruned(root: Path, topic: str, split_bytes: int = 1 << 40) -> list[int]:
    log, options = open_log(str(root)), ReadOptions(topics=(topic,), columns=("physicalOffset",))
    report, splits = ReadReport(), log.splits(log.min_offset, log.end, split_bytes=split_bytes)
    pruning = QueuePruning(*open_filesystem(str(root)), options)
    found = decode(log.filesystem, splits, options, deleted=log.deleted(options), report=report, pruning=pruning)
    return [at for batch in found for at in batch.column(0).to_pylist()]


def scanned(root: Path, topic: str) -> list[int]:
    return offsets(root, topics=(topic,), use_consume_queues=False)


@pytest.fixture
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small logs are pruned, too, and as finely as can be."""
    monkeypatch.setattr(queue_pruning, "SPLIT_BYTES_MIN", 0)
    monkeypatch.setattr(queue_pruning, "SKIPPED_BYTES_MIN", 1)
    monkeypatch.setattr(queue_pruning, "QUEUE_COST_BYTES", 0)
    monkeypatch.setattr(queue_pruning, "WITNESS_COST_BYTES", 0)
    monkeypatch.setattr(queue_pruning, "GAP_COST_BYTES", 0)
    monkeypatch.setattr(queue_pruning, "_WORTH", 1 << 40)


def nothing(_chance: random.Random, _store: Store) -> None: ...


def behind(chance: random.Random, store: Store) -> None:
    shutil.rmtree(store.log.root / "consumequeue")
    store.dispatch(behind=chance.randrange(1, 200))


def missing_files(chance: random.Random, store: Store) -> None:
    for path in chance.sample(store.files(), 5):
        path.unlink()


def missing_queue(chance: random.Random, store: Store) -> None:
    shutil.rmtree(chance.choice(store.files()).parent)


def missing_topic(chance: random.Random, store: Store) -> None:
    shutil.rmtree(store.log.root / "consumequeue" / chance.choice(["rare", "orders", "audit"]))


def noise(chance: random.Random, store: Store) -> None:
    for path in chance.sample(store.files(), 10):
        data = bytearray(path.read_bytes())
        at = chance.randrange(len(data) - 100)
        data[at : at + 100] = chance.choice([chance.randbytes(100), bytes(100)])
        path.write_bytes(data)


def one_bit(chance: random.Random, store: Store) -> None:
    for path in store.files():
        data = bytearray(path.read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)


def too_short(chance: random.Random, store: Store) -> None:
    for path in chance.sample(store.files(), 10):
        with path.open("r+b") as file:
            file.truncate(chance.randrange(UNITS_IN_FILE * 20))


def of_another_log(chance: random.Random, store: Store) -> None:
    """The queues of a log that went on in another way."""
    other = make_store(chance, store.log.root.parent / "other", is_ledger=isinstance(store.log, LedgerWriter))
    source, target = (one.log.root / "consumequeue" for one in (other, store))
    if chance.random() < 0.5:
        shutil.rmtree(target)
    for topic in chance.sample(["rare", "orders", "audit"], 2):
        shutil.copytree(source / topic, target / topic, dirs_exist_ok=True)


def claimed_twice(chance: random.Random, store: Store) -> None:
    """As if other topics' queues held what is of this one."""
    for queue in range(3):
        write_units(store.log.root, "orders", 10 + queue, store.units["rare", queue])


def swallowing(chance: random.Random, store: Store) -> None:
    """Units that are far too long, of a queue that is none."""
    starts = chance.sample(store.log.offsets, 5)
    write_units(store.log.root, "orders", 10, [(at, chance.randrange(1, 60_000)) for at in sorted(starts)])


def fillers(_chance: random.Random, store: Store) -> None:
    for queue in range(3):
        units = [(0, 0x7FFFFFFF)] * 50 + store.units["rare", queue]
        shutil.rmtree(store.log.root / "consumequeue" / "rare" / str(queue))
        write_units(store.log.root, "rare", queue, units)


def strangers(_chance: random.Random, store: Store) -> None:
    root = store.log.root / "consumequeue"
    (root / "orders" / "0" / "notes.txt").write_text("x" * 100)
    (root / "orders" / f"{0:020d}").write_bytes(bytes(40))
    (root / f"{0:020d}").write_bytes(bytes(40))


DAMAGES = [
    nothing, behind, missing_files, missing_queue, missing_topic, noise, one_bit, too_short, of_another_log,
    claimed_twice, swallowing, fillers, strangers,
]  # fmt: skip


@pytest.mark.usefixtures("_always")
@pytest.mark.parametrize("is_ledger", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
def test_the_rows_are_those_of_a_full_scan(damage: Damage, is_ledger: bool, tmp_path: Path) -> None:
    chance = random.Random(f"{damage.__name__}{is_ledger}")
    store = make_store(chance, tmp_path / "store", is_ledger=is_ledger)
    damage(chance, store)
    root = store.log.root
    for topic in ("rare", "orders", "%RETRY%g", "no-such"):
        expected = scanned(root, topic)
        assert bool(expected) == (topic != "no-such")
        assert pruned(root, topic) == expected
        for split_bytes in (chance.randrange(3000, 9000), 30_000):
            assert pruned(root, topic, split_bytes) == expected


def test_a_rare_topic_is_found_in_a_twentieth_of_the_bytes(tmp_path: Path) -> None:
    store = large_store(tmp_path / "data")  # a root may be called so
    report = ReadReport()
    found = offsets(store.log.root, report, topics=("rare",))
    assert found == scanned(store.log.root, "rare")
    assert (len(found), report.messages, report.bytes_asked_for) == (20, 20, store.log.end)
    assert report.bytes_read < report.bytes_asked_for / 20
    full = ReadReport()
    offsets(store.log.root, full, topics=("rare",), use_consume_queues=False)
    assert full.bytes_read >= store.log.end


def test_what_is_not_dispatched_yet_is_read(tmp_path: Path) -> None:
    """So much of it is, and no more: queues that are behind cost what they lack."""
    store = large_store(tmp_path / "store")
    for number in range(3000):
        store.put("rare" if number % 1000 == 7 else "common-1", 0, b"late" * 200)
    report = ReadReport()
    found = offsets(store.log.root, report, topics=("rare",))
    assert len(found) == 23
    assert found == scanned(store.log.root, "rare")
    assert report.bytes_read < 0.3 * store.log.end


@pytest.mark.parametrize("is_ledger", [False, True])
@pytest.mark.usefixtures("_always")
def test_queues_of_a_tail_that_was_cut_are_not_believed(is_ledger: bool, tmp_path: Path) -> None:
    """The new tail's records are as long as the old one's, so they begin where the queues say that others do."""

    def store(name: str, tail: str) -> Store:
        root = tmp_path / name
        made = Store(LedgerWriter(root) if is_ledger else LogWriter(root))
        for number in range(600):
            before = "rare" if number % 100 == 50 else "much"
            made.put(before if number < 300 else tail, 0, b"x" * 200)
        made.dispatch()
        return made

    old, new = store("old", "much"), store("new", "rare")
    assert new.log.offsets == old.log.offsets
    shutil.rmtree(new.log.root / "consumequeue")
    shutil.copytree(old.log.root / "consumequeue", new.log.root / "consumequeue")
    expected = scanned(new.log.root, "rare")
    assert len(expected) == 303
    for split_bytes in (1 << 40, 30_000):
        assert pruned(new.log.root, "rare", split_bytes) == expected


@pytest.mark.usefixtures("_always")
@pytest.mark.parametrize("is_ledger", [False, True])
@pytest.mark.parametrize("missing", [None, "rare", "bbbb"])
@pytest.mark.parametrize("seed", range(24))
def test_queues_of_any_tail_that_was_cut_give_the_rows_of_a_full_scan(
    seed: int, missing: str | None, is_ledger: bool, tmp_path: Path
) -> None:
    """Both tails are of nearly the same messages, in another order; records are of one size, or of one and its double.

    The last record of what was passed over was often the one that is named, and wanted ones before it were passed over.
    So was what began before the end of one that queues had where a part of the log begins; and, where a queue is
    missing, what lay in the place of another message, which lay where queues name nothing.
    """
    chance = random.Random(seed)
    wide = seed % 2 * 0.3
    common = chance.choices(["rare", "aaaa", "bbbb"], [1, 6, 6], k=chance.randrange(40))
    old_tail = chance.choices(["rare", "aaaa", "bbbb"], [chance.choice([0, 1, 5]), 6, 6], k=200)
    new_tail = old_tail.copy()
    for _ in range(chance.choice([1, 2, 3, 20])):
        first, second = sorted((chance.randrange(200), chance.randrange(200)))
        way = chance.randrange(4)
        if way == 3:
            new_tail.insert(second, new_tail.pop(first))
        elif way == 0:
            new_tail[first], new_tail[second] = new_tail[second], new_tail[first]
        elif way == 1:
            new_tail[first] = "rare"
        else:
            new_tail[first:second] = new_tail[first:second][::-1]

    def store(name: str, topics: list[str]) -> Store:
        root = tmp_path / name
        made = Store(LedgerWriter(root) if is_ledger else LogWriter(root))
        size = len(record(0, b"x" * 200, topic=b"rare")) + 48 * is_ledger
        sizes = random.Random(f"{seed} {name}")
        for number, topic in enumerate(topics):
            is_wide = number >= len(common) and sizes.random() < wide
            made.put(topic, 0, b"x" * (200 + size * is_wide))
        made.dispatch()
        return made

    old, new = store("old", common + old_tail), store("new", common + new_tail)
    queues = new.log.root / "consumequeue"
    shutil.rmtree(queues)
    shutil.copytree(old.log.root / "consumequeue", queues)
    if missing is not None:
        shutil.rmtree(queues / missing, ignore_errors=True)
    expected = scanned(new.log.root, "rare")
    for split_bytes in (1 << 40, 30_000, 3_000):
        assert pruned(new.log.root, "rare", split_bytes) == expected


def test_records_that_no_queue_names_between_others_are_not_looked_at_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a topic that was deleted with its queues: it took a hundred times as long as reading everything."""
    store = Store(LogWriter(tmp_path / "store", file_size=8 << 20))
    for number in range(9000):
        if number % 2 and number < 4500:
            store.put("gone", 0, b"x", is_shown=False)
        else:
            store.put("rare" if number == 4444 else "much", 0, b"x" * 600)
    store.dispatch()
    whole_rows, walks = vars(_SplitDecoder)["_whole_rows"], list[int]()

    def counted(*told: Any, **more: Any) -> Any:
        walks.append(1)
        return whole_rows(*told, **more)

    monkeypatch.setattr(_SplitDecoder, "_whole_rows", counted)
    assert len(pruned(store.log.root, "rare")) == 1
    assert len(walks) < 20


@pytest.mark.usefixtures("_always")
@pytest.mark.parametrize("is_ledger", [False, True])
@pytest.mark.parametrize(("first", "second"), [(30, 60), (60, 30), (30, 199), (100, 101)])
def test_what_no_queue_names_is_not_what_queues_name_elsewhere(
    first: int, second: int, is_ledger: bool, tmp_path: Path
) -> None:
    """The wanted one's queue is missing, and it lies elsewhere since a failover; another took its place."""
    queues = dict[int, Path]()
    for place in (first, second):
        root = tmp_path / str(place)
        store = Store(LedgerWriter(root) if is_ledger else LogWriter(root))
        for number in range(200):
            store.put("rare" if number == place else "much", 0, b"x" * 200)
        store.dispatch()
        queues[place] = root / "consumequeue"
    shutil.rmtree(queues[second])
    shutil.copytree(queues[first], queues[second])
    shutil.rmtree(queues[second] / "rare")
    for split_bytes in (1 << 40, 10_000):
        assert len(pruned(tmp_path / str(second), "rare", split_bytes)) == 1


@pytest.mark.usefixtures("_always")
@pytest.mark.parametrize("is_ledger", [False, True])
def test_all_that_no_queue_names_is_looked_at_block_by_block(
    is_ledger: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, in a long row of messages of a topic that was deleted with its queues: it came last."""
    monkeypatch.setattr(decoder, "BLOCK_BYTES", 1000)
    queues = dict[int, Path]()
    for place in (44, 60):
        root = tmp_path / str(place)
        store = Store(LedgerWriter(root) if is_ledger else LogWriter(root))
        for number in range(70):
            is_gone = 30 <= number < 44
            topic = "gone" if is_gone else "rare" if number == place else "much"
            store.put(topic, 0, b"x" * 200, is_shown=not is_gone)
        store.dispatch()
        queues[place] = root / "consumequeue"
    shutil.rmtree(queues[60])
    shutil.copytree(queues[44], queues[60])
    shutil.rmtree(queues[60] / "rare")
    assert len(pruned(tmp_path / "60", "rare")) == 1


def test_a_pattern_finds_topics_too(tmp_path: Path) -> None:
    store, report = large_store(tmp_path / "store"), ReadReport()
    assert len(offsets(store.log.root, report, topic_pattern="ra.*")) == 20
    assert report.bytes_read < report.bytes_asked_for / 20


def test_messages_of_a_deleted_topic_stay_left_out(tmp_path: Path) -> None:
    """Its queues are gone, and so is nothing else of it: what they named is read, and left out."""
    store = large_store(tmp_path / "store", count=6000)
    shutil.rmtree(store.log.root / "consumequeue" / "rare")
    deleted = {"rare": DeletedTopic(before=store.log.offsets[3000], ends=dict.fromkeys(range(4), 1000))}
    options, log, report = (
        ReadOptions(topics=("rare",), columns=("physicalOffset",)),
        open_log(str(store.log.root)),
        ReadReport(),
    )
    pruning = QueuePruning(*open_filesystem(log.uri), options)
    splits = log.splits(0, log.end)
    found = decode(log.filesystem, splits, options, deleted=deleted, report=report, pruning=pruning)
    assert (sum(batch.num_rows for batch in found), report.deleted) == (3, 3)


def test_damage_is_met_where_it_is_read(tmp_path: Path) -> None:
    """A rare message's record is damaged: that is told, as by a full scan. Another topic's is passed over."""
    store = large_store(tmp_path / "store")
    at = store.log.offsets[500]
    store.log.write(at + 4, b"\0\0\0\0")
    report, full = ReadReport(), ReadReport()
    found = offsets(store.log.root, report, topics=("rare",), on_corrupt=OnCorrupt.SKIP)
    assert found == offsets(store.log.root, full, topics=("rare",), on_corrupt=OnCorrupt.SKIP, use_consume_queues=False)
    assert len(found) == 19
    assert report.corrupt == full.corrupt
    assert [damage.start for damage in report.corrupt] == [at]
    store.log.write(store.log.offsets[700] + 4, b"\0\0\0\0")
    again = ReadReport()
    assert offsets(store.log.root, again, topics=("rare",), on_corrupt=OnCorrupt.SKIP) == found
    assert again.corrupt == report.corrupt


@pytest.mark.usefixtures("_always")
@pytest.mark.parametrize("name", ["basic", "v6", "odd", "burned", "trimmed", "slave/slave"])
def test_stores_of_rocketmq(name: str, tmp_path: Path) -> None:
    """Whose queues RocketMQ wrote: batches, transactions, delays."""
    root = stores.unpack(name, tmp_path)
    topics = Counter(message["topic"] for message in stores.expected_messages(name))
    for topic, count in topics.items():
        assert pruned(root, topic) == scanned(root, topic)
        assert len(pruned(root, topic, 7919)) == count


@pytest.mark.usefixtures("_always")
def test_what_begins_within_a_record_is_not_passed_over(tmp_path: Path) -> None:
    """A unit of nothing, behind which the log goes on; the records that it hides have lost theirs."""
    store = Store(LogWriter(tmp_path / "store"))
    for topic in ("orders", "rare", "rare", "orders"):
        store.put(topic, 0, b"x" * 100)
    store.dispatch()
    root, (_, first, second, last) = store.log.root, store.log.offsets
    shutil.rmtree(root / "consumequeue" / "rare")
    write_units(root, "orders", 1, [(first + 10, last - first - 10)])
    assert pruned(root, "rare") == [first, second]


@pytest.mark.usefixtures("_always")
def test_nothing_that_lies_within_a_claimed_stretch_is_believed(tmp_path: Path) -> None:
    """A unit that is far too long holds two others, and the second of these hides records that have lost theirs."""
    store = Store(LogWriter(tmp_path / "store"))
    for topic in ("rare", "orders", "rare", "rare", "orders", "rare"):
        store.put(topic, 0, b"x" * 100)
    store.dispatch()
    root, at = store.log.root, store.log.offsets
    shutil.rmtree(root / "consumequeue" / "rare")
    write_units(root, "audit", 0, [(at[0], store.log.end - at[0])])
    write_units(root, "orders", 1, [(at[2], at[4] - at[2])])
    assert pruned(root, "rare") == [at[0], at[2], at[3], at[5]]


@pytest.mark.usefixtures("_always")
def test_nor_is_what_lies_there_between_others_that_are_right(tmp_path: Path) -> None:
    """Of its queue the first and the last are looked at, which are where they are named."""
    log = LogWriter(tmp_path / "store")
    places = {b"orders": [0, 1, 2, 4], b"rare": [0, 1]}
    for topic in (b"orders", b"orders", b"orders", b"rare", b"rare", b"orders"):
        log.append(b"x" * 100, topic=topic, queue_id=1, queue_offset=places[topic].pop(0))
    *before, hidden, also_hidden, last = log.offsets
    write_units(log.root, "audit", 0, [(before[0] + 10, log.end - before[0] - 10)])
    bounds = pairwise([*before, hidden, last, log.end])
    write_units(log.root, "orders", 1, [(one, following - one) for one, following in bounds])
    assert pruned(log.root, "rare") == [hidden, also_hidden]


@pytest.mark.usefixtures("_always")
def test_a_light_queue_does_not_say_whose_topic_a_message_is_of(tmp_path: Path) -> None:
    """One that was read after its message was dispatched, while the topic's own queue had been read before."""
    store = make_store(random.Random(7), tmp_path / "store", is_ledger=False)
    root, light = store.log.root, store.units["rare", 0]
    expected = scanned(root, "rare")
    write_units(root, "%LMQ%one", 0, light)
    shutil.rmtree(root / "consumequeue" / "rare" / "0")
    assert light
    assert pruned(root, "rare") == expected


def test_a_light_queue_costs_nothing(tmp_path: Path) -> None:
    """Of messages that another queue names, too: taken for a second claim on them it would have all of them read."""
    store, report = large_store(tmp_path / "store", count=6000), ReadReport()
    for number in range(3):
        write_units(store.log.root, "%LMQ%one", number, store.units[f"common-{number}", number])
    assert len(offsets(store.log.root, report, topics=("rare",))) == 6
    assert report.bytes_read < report.bytes_asked_for / 10


@pytest.mark.usefixtures("_always")
def test_files_that_were_put_aside_below_the_queues_are_none(tmp_path: Path) -> None:
    store = make_store(random.Random(8), tmp_path / "store", is_ledger=False)
    root = store.log.root
    expected, of_rare = scanned(root, "rare"), root / "consumequeue" / "rare"
    (of_rare / "old").mkdir()
    for queue in range(3):
        (of_rare / str(queue)).rename(of_rare / "old" / str(queue))
    assert pruned(root, "rare") == expected


def test_parts_that_begin_behind_the_last_record_of_a_file_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large messages: such a part holds the rest of one, and the blank that ends the file."""
    for limit in ("MIN", "MAX"):
        monkeypatch.setattr(f"rmqha.spark.replay.job._TASK_BYTES_{limit}", 3_000_000)
    store = Store(LogWriter(tmp_path / "store", file_size=4 << 20))
    for _ in range(3):
        for topic, size in (("rare", 800_000), ("orders", 1_400_000), ("orders", 1_400_000)):
            store.put(topic, 0, bytes(size))
    store.dispatch()
    options = ReplayOptions(str(store.log.root), str(tmp_path / "out"), read=ReadOptions(topics=("rare",)))
    report = replay(options, start=in_process)
    assert (report.messages, report.end) == (3, store.log.end)
    assert report.bytes_read < report.bytes_asked_for


def test_an_object_store_is_read_as_a_whole(tmp_path: Path) -> None:
    """Another file system than this machine's stands for it."""
    store = large_store(tmp_path / "store", count=3000)
    options, (filesystem, path) = ReadOptions(topics=("rare",)), open_filesystem(str(store.log.root))
    assert QueuePruning(filesystem, path, options).topics >= {"rare", "common-1"}
    assert QueuePruning(fs.SubTreeFileSystem("/", filesystem), path, options).topics == set()
