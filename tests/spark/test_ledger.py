"""DLedger logs: what a member's checkpoint says was committed; bodies of bare groups, messages of brokers."""

import random
import shutil
import struct
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import trio

from rmqha.codec.dledger_entry import encode_index
from rmqha.errors import ConfigError, CorruptLogError, StoreError
from rmqha.spark import CorruptRange, OnCorrupt, ReadReport, ledger
from rmqha.spark.commit_log import open_log
from rmqha.spark.replay import ReplayOptions, replay
from rmqha.spark.source_options import parse_options
from rmqha.store.os_disk import OsDisk
from tests.dledger.ledger_log import ledger_log
from tests.dledger.ledgers import expected_lines, unpack
from tests.spark.in_process import in_process
from tests.spark.logs import LedgerWriter, LogWriter, record
from tests.spark.readers import offsets, read, split_offsets

ENTRIES = [line for line in expected_lines() if "blank" not in line]
BARRIER = b"RMQHA_SYS_TERM_BEGAN"


@pytest.fixture
def group(tmp_path: Path) -> Path:
    """Of DLedger 0.3.1.2, without brokers."""
    return unpack(tmp_path / "group")


@pytest.fixture
def log(tmp_path: Path) -> LedgerWriter:
    """200 messages of 1 to 900 bytes in entries."""
    writer, chance = LedgerWriter(tmp_path / "store"), random.Random(1)
    for _ in range(200):
        writer.put(chance.randbytes(chance.randint(1, 900)))
    writer.commit()
    return writer


class TestBareGroup:
    @pytest.mark.parametrize("member", ["n0", "n1", "n2"])
    def test_entries_are_rows(self, group: Path, member: str) -> None:
        report = ReadReport()
        rows = read(group / f"dledger-{member}", report)
        assert [
            (row["queueOffset"], dict(row["properties"])["term"], row["physicalOffset"], row["storeSize"])
            for row in rows
        ] == [(line["index"], str(line["term"]), line["pos"], line["size"]) for line in ENTRIES]
        assert [sha256(row["body"]).hexdigest() for row in rows] == [line["bodySha256"] for line in ENTRIES]
        assert {row["topic"] for row in rows} == {"entries"}
        for nothing in ("bornTimestamp", "storeTimestamp", "bornHost", "storeHost", "keys", "tags"):
            assert {row[nothing] for row in rows} == {None}
        last = ENTRIES[-1]
        assert (report.next, report.messages) == (last["pos"] + last["size"], len(ENTRIES))

    @pytest.mark.parametrize("split_bytes", [61, 997, 7919])
    def test_any_split_gives_the_same_entries(self, group: Path, split_bytes: int) -> None:
        found, report = split_offsets(group / "dledger-n0", split_bytes)
        assert found == [line["pos"] for line in ENTRIES]
        assert report.records == len(ENTRIES)

    @pytest.mark.parametrize("has_index", [True, False])
    @pytest.mark.parametrize("committed", [0, 1, 30, 53])
    def test_nothing_is_read_that_is_not_known_to_be_committed(
        self, group: Path, committed: int, *, has_index: bool
    ) -> None:
        member = group / "dledger-n1"
        (member / "checkpoint").write_text(f"committedIndex={committed}\nendIndex=54\n")
        if not has_index:
            shutil.rmtree(member / "index")
        assert [row["queueOffset"] for row in read(member)] == list(range(committed + 1))
        assert open_log(str(member)).unfinished.startswith(f"entries behind index {committed}") or committed == 0

    def test_a_unit_that_leads_elsewhere_is_not_believed(self, group: Path) -> None:
        """The entry is looked for then, as without an index."""
        member = group / "dledger-n1"
        with next((member / "index").glob("0" * 20)).open("r+b") as file:
            file.seek(20 * 32)
            other = file.read(32)
            file.seek(30 * 32)
            file.write(other)
        (member / "checkpoint").write_text("committedIndex=30\nendIndex=54\n")
        assert [row["queueOffset"] for row in read(member)] == list(range(31))

    @pytest.mark.parametrize("text", ["", "endIndex=54\n", "committedIndex=-1\nendIndex=54\n"])
    def test_without_a_word_of_it_nothing_is_known(self, group: Path, text: str) -> None:
        (group / "dledger-n0" / "checkpoint").write_text(text)
        assert read(group / "dledger-n0") == []
        assert "names no committed entry" in open_log(str(group / "dledger-n0")).unfinished

    @pytest.mark.parametrize(
        ("others", "last"),
        [
            ({".tmp": 30, ".bak": 20}, 30),
            ({".bak": 20}, 20),
            ({}, -1),
        ],
    )
    def test_while_it_is_replaced_the_new_one_counts(self, group: Path, others: dict[str, int], last: int) -> None:
        """A member of Java's has none for a moment, each 3 s: the log was empty, or cut, for who read just then."""
        member = group / "dledger-n1"
        (member / "checkpoint").unlink()
        for suffix in (".tmp", ".bak"):
            path = member / f"checkpoint{suffix}"
            path.unlink(missing_ok=True)
            if suffix in others:
                path.write_text(f"committedIndex={others[suffix]}\nendIndex=54\n")
        assert [row["queueOffset"] for row in read(member)] == list(range(last + 1))

    def test_entries_that_a_truncate_left_in_the_file_are_not_read(self, tmp_path: Path) -> None:
        """DLedger has 81 again when it opens this store; 51 were left, and committed."""
        rows = read(unpack(tmp_path, "cut") / "dledger-n0")
        assert 0 < len(rows) <= 51

    def test_a_copy_that_lacks_what_its_checkpoint_vouches_for_is_refused(self, group: Path) -> None:
        member = group / "dledger-n0"
        (member / "checkpoint").write_text("committedIndex=99\nendIndex=99\n")
        with pytest.raises(StoreError, match="index 99 was committed, the last one here up to it is 54"):
            read(member)

    @pytest.mark.parametrize("has_index", [True, False])
    def test_damage_of_the_last_entry_is_found(self, group: Path, *, has_index: bool) -> None:
        """With its unit it is known where it lies; without, that it is not there."""
        member, victim = group / "dledger-n0", ENTRIES[-1]
        if not has_index:
            shutil.rmtree(member / "index")
        with next((member / "data").glob(f"{victim['pos'] // 8192 * 8192:020d}")).open("r+b") as file:
            file.seek(victim["pos"] % 8192)
            file.write(bytes(victim["size"]))
        with pytest.raises(CorruptLogError if has_index else StoreError):
            read(member)

    def test_damage_is_found(self, group: Path) -> None:
        victim = ENTRIES[20]
        path = next((group / "dledger-n0" / "data").glob(f"{victim['pos'] // 8192 * 8192:020d}"))
        with path.open("r+b") as file:
            file.seek(victim["pos"] % 8192 + 24)
            file.write(b"\1")
        with pytest.raises(CorruptLogError, match="an entry's pos would be") as raised:
            read(group / "dledger-n0")
        assert raised.value.offset == victim["pos"]
        report = ReadReport()
        rows = read(group / "dledger-n0", report, on_corrupt=OnCorrupt.SKIP)
        assert [row["queueOffset"] for row in rows] == [index for index in range(55) if index != 20]
        [damage] = report.corrupt
        assert (damage.start, damage.end) == (victim["pos"], victim["pos"] + victim["size"])

    def test_a_body_is_summed_as_nobody_else_does(self, group: Path) -> None:
        import zlib  # noqa: PLC0415 - not what is under test

        for row in read(group / "dledger-n0"):
            assert row["bodyCrc"] == zlib.crc32(row["body"]) & 0x7FFFFFFF
        assert {row["bodyCrc"] for row in read(group / "dledger-n0", check_crc=False)} == {0}

    def test_what_a_leader_appended_for_itself_is_no_client_s(self, tmp_path: Path) -> None:
        writer = LedgerWriter(tmp_path)
        writer.append(b"one")
        writer.put(b"", topic=BARRIER, properties=b"")
        writer.append(b"two")
        writer.commit()
        assert [row["body"] for row in read(tmp_path)] == [b"one", b"two"]
        assert [row["topic"] for row in read(tmp_path, include_system_topics=True)] == [
            "entries", BARRIER.decode(), "entries",
        ]  # fmt: skip

    def test_bounds_beside_an_entry_without_a_body(self, tmp_path: Path) -> None:
        """It is as long as a header: that is where an entry begins whose message lies at the next one's place."""
        writer = LedgerWriter(tmp_path)
        for body in (b"one", b"", b"two", b"", b"", b"three"):
            writer.append(body)
        writer.commit()
        for number, at in enumerate(writer.offsets):
            assert offsets(tmp_path, starting_offset=at) == writer.offsets[number:]
            assert offsets(tmp_path, ending_offset=at) == writer.offsets[:number]

    def test_it_has_no_times(self, group: Path) -> None:
        with pytest.raises(ConfigError, match="have no times: give offsets"):
            read(group / "dledger-n0", starting_timestamp_ms=5)

    def test_many_lanes(self, tmp_path: Path) -> None:
        """Several MiB, of bodies that are full of beginnings of entries."""
        writer, chance = LedgerWriter(tmp_path, file_size=4 << 20), random.Random(3)
        for number in range(6000):
            image = struct.pack(">iiqqqiiii", 1, 60, 5, 1, writer.end + 48, 0, 0, 0, 12) + bytes(12)
            writer.append(image + chance.randbytes(chance.randint(0, 1200)) if number % 3 else b"\0\0\0\1" * 300)
        writer.commit()
        assert offsets(tmp_path) == writer.offsets
        assert split_offsets(tmp_path, 100_003)[0] == writer.offsets


class TestMessages:
    def test_messages_are_where_they_say(self, log: LedgerWriter) -> None:
        rows = read(log.root)
        assert [row["physicalOffset"] for row in rows] == [at + 48 for at in log.offsets]
        assert {row["topic"] for row in rows} == {"orders"}
        assert rows[0]["tags"] == "TagA"
        ends = [row["physicalOffset"] + row["storeSize"] for row in rows]
        assert sum(end == begin for end, begin in zip(ends, log.offsets[1:], strict=False)) == 198, (
            "but at a file's end"
        )

    @pytest.mark.parametrize("split_bytes", [500, 7919, 1 << 20])
    def test_any_split_gives_the_same(self, log: LedgerWriter, split_bytes: int) -> None:
        assert split_offsets(log.root, split_bytes)[0] == [at + 48 for at in log.offsets]

    def test_large_logs_are_walked_by_lanes(self, tmp_path: Path) -> None:
        writer, chance = LedgerWriter(tmp_path, file_size=8 << 20), random.Random(2)
        messages = [writer.put(chance.randbytes(chance.randint(0, 2000))) for _ in range(3000)]
        writer.commit()
        assert offsets(tmp_path) == messages
        assert split_offsets(tmp_path, 100_003)[0] == messages

    @pytest.mark.parametrize("split_bytes", [997, 7919, 1 << 30])
    @pytest.mark.parametrize(
        ("at", "data"), [(48 + 88, b"\xff\xfe"), (48 + 4, b"\0"), (24, b"\1"), (44, b"\1"), (4, b"\1")]
    )
    def test_damage_is_found_once_whatever_the_splits(
        self, log: LedgerWriter, split_bytes: int, at: int, data: bytes
    ) -> None:
        """A CRC, a message's magic code, an entry's pos, body length, size."""
        log.write(log.offsets[57] + at, data)
        found, report = split_offsets(log.root, split_bytes, on_corrupt=OnCorrupt.SKIP)
        assert found == [offset + 48 for number, offset in enumerate(log.offsets) if number != 57]
        assert [(damage.start, damage.end) for damage in report.corrupt] == [(log.offsets[57], log.offsets[58])]
        with pytest.raises(CorruptLogError):
            read(log.root)

    def test_an_entry_that_holds_no_message_is_damage(self, tmp_path: Path) -> None:
        writer = LedgerWriter(tmp_path)
        writer.put(b"one")
        at = writer.append(b"what no broker made")
        writer.put(b"two")
        writer.commit()
        report = ReadReport()
        assert [row["body"] for row in read(tmp_path, report, on_corrupt=OnCorrupt.SKIP)] == [b"one", b"two"]
        assert [(damage.start, damage.end) for damage in report.corrupt] == [(at, at + 48 + 19)]

    def test_bounds_are_physical_offsets_of_messages_or_of_entries(self, log: LedgerWriter) -> None:
        messages = [at + 48 for at in log.offsets]
        for starting in (messages[50], log.offsets[50]):
            for ending in (messages[90], log.offsets[90]):
                assert offsets(log.root, starting_offset=starting, ending_offset=ending) == messages[50:90]
                source = parse_options(
                    {"path": str(log.root), "startingOffsets": str(starting), "endingOffsets": str(ending)}
                )
                assert source.range_of("broker", open_log(str(log.root))) == (log.offsets[50], log.offsets[90])

    def test_a_bound_right_behind_damage_is_an_entry_s(self, log: LedgerWriter) -> None:
        """It lies a header's length behind damage, and so it was no message's of an entry there."""
        log.write(log.offsets[57], bytes(log.offsets[58] - log.offsets[57]))
        messages = [at + 48 for at in log.offsets]
        assert offsets(log.root, starting_offset=log.offsets[58]) == messages[58:]
        assert offsets(log.root, starting_offset=messages[58]) == messages[58:]

    def test_what_lies_behind_a_damaged_last_entry_is_no_start(self, log: LedgerWriter) -> None:
        """It is committed, as the index knows, and not written to its end: the log ends with it, not with the file."""
        last, size = log.offsets[-1], log.end - log.offsets[-1]
        unit = encode_index(pos=last, size=size, magic=1, index=len(log.offsets) - 1, term=1)
        (log.member / "index").mkdir()
        (log.member / "index" / f"{0:020d}").write_bytes(bytes(len(unit) * (len(log.offsets) - 1)) + unit)
        log.write(last + 200, bytes(size - 200))
        found = open_log(str(log.root))
        assert found.end == log.end
        assert found.start_at(last + 150) == log.end
        report = ReadReport()
        assert offsets(log.root, report, on_corrupt=OnCorrupt.SKIP) == [at + 48 for at in log.offsets[:-1]]
        assert [(damage.start, damage.end) for damage in report.corrupt] == [(last, log.end)]
        assert report.next == log.end

    def test_times_lead_to_messages(self, tmp_path: Path) -> None:
        writer = LedgerWriter(tmp_path)
        messages = [writer.put(bytes(700), stored_ms=1_700_000_000_000 + 1000 * number) for number in range(300)]
        writer.commit()
        for number in (0, 1, 150, 299):
            since = 1_700_000_000_000 + 1000 * number
            assert offsets(tmp_path, starting_timestamp_ms=since) == messages[number:]
            assert offsets(tmp_path, ending_timestamp_ms=since) == messages[:number]

    def test_only_what_is_committed(self, log: LedgerWriter) -> None:
        log.commit(120)
        assert len(offsets(log.root)) == 121

    def test_a_log_that_grows_while_it_is_opened_is_read_as_far_as_it_was(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What the checkpoint names is in a file by then: it may name what lies in one that was not there before."""
        writer, known = LedgerWriter(tmp_path / "store"), 0

        def grow_after(name: str) -> None:
            real = getattr(ledger, name)

            def look_and_grow(*where: Any) -> Any:
                nonlocal known
                found = real(*where)
                if len(writer.offsets) == known:
                    writer.put(bytes(40_000))
                    writer.put(bytes(40_000))
                    writer.commit()
                return found

            monkeypatch.setattr(ledger, name, look_and_grow)

        for body in (b"one", b"two"):
            writer.put(body)
        writer.commit()
        known = len(writer.offsets)
        for name in ("_checkpoint", "_list_files"):
            grow_after(name)
        assert len(offsets(writer.root)) == known

    def test_a_leader_s_own_message_is_hidden(self, tmp_path: Path) -> None:
        writer = LedgerWriter(tmp_path)
        writer.put(b"", topic=BARRIER, properties=b"")
        writer.put(b"one")
        writer.commit()
        assert [row["body"] for row in read(tmp_path)] == [b"one"]
        assert len(read(tmp_path, include_system_topics=True)) == 2

    def test_behind_a_classic_log(self, tmp_path: Path) -> None:
        """Of a broker that came to DLedger: its first entry lies where the classic log's last file ends (§6.3)."""
        classic = LogWriter(tmp_path)
        before = [classic.append(bytes(500)) for _ in range(150)]
        classic.roll()
        assert classic.end == 2 * classic.file_size
        ledger = LedgerWriter(tmp_path, end=classic.end)
        (ledger.member / "data").mkdir(parents=True)
        assert offsets(tmp_path) == before
        behind = [ledger.put(bytes(500)) for _ in range(150)]
        assert offsets(tmp_path) == before, "nothing is committed yet"
        ledger.commit()
        assert offsets(tmp_path) == before + behind
        assert split_offsets(tmp_path, 7919)[0] == before + behind
        classic.path(0).unlink()
        assert offsets(tmp_path) == [at for at in before if at >= classic.file_size] + behind

    def test_an_old_log_that_is_named_alone_is_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Its broker goes on elsewhere: who reads it each night would have nothing new, without a word."""
        classic = LogWriter(tmp_path)
        before = [classic.append(bytes(500)) for _ in range(3)]
        classic.roll()
        ledger = LedgerWriter(tmp_path, end=classic.end)
        (ledger.member / "data").mkdir(parents=True)
        old = tmp_path / "commitlog"
        assert offsets(old) == before
        assert caplog.text == "", "nothing goes on there yet"
        behind = ledger.put(b"new")
        ledger.commit()
        assert offsets(tmp_path) == [*before, behind]
        assert caplog.text == ""
        for _ in range(3):
            assert offsets(old) == before
        assert caplog.text.count(f"only the old log is read, which goes on in '{ledger.member}'") == 1, "once"
        monkeypatch.chdir(tmp_path)
        assert offsets(Path("commitlog")) == before
        assert "goes on in './dledger-n0'" in caplog.text

    def test_what_lies_under_the_blank_that_closes_a_classic_log_off_is_not_read(self, tmp_path: Path) -> None:
        """RocketMQ closes it off where it found damage, however much of the last file lies behind that."""
        classic = LogWriter(tmp_path, file_size=40 << 20)
        before = [classic.append(bytes(500))]
        classic.roll()
        before += [classic.append(bytes(500)) for _ in range(3)]
        closed_at = classic.end
        stale = [classic.append(bytes(1 << 20)) for _ in range(35)]
        classic.end = closed_at
        classic.roll()
        ledger = LedgerWriter(tmp_path, file_size=1 << 20, end=classic.end)
        behind = [ledger.put(b"one"), ledger.put(b"two")]
        assert open_log(str(tmp_path)).end == closed_at, "nothing is committed yet"
        aside = (ledger.member / "data").rename(tmp_path / "aside")
        (ledger.member / "data").mkdir()
        assert open_log(str(tmp_path)).end == closed_at, "no entry is there yet"
        (ledger.member / "data").rmdir()
        aside.rename(ledger.member / "data")
        ledger.commit()
        assert offsets(tmp_path) == before + behind
        assert split_offsets(tmp_path, 4 << 20)[0] == before + behind
        assert open_log(str(tmp_path)).start_at(stale[30]) == classic.end

    def test_a_log_that_began_anew_in_the_middle_of_a_file(self, tmp_path: Path) -> None:
        """A blank at the beginning of a file ends before the file does."""
        writer = LedgerWriter(tmp_path, end=5000)
        writer.write(0, struct.pack(">ii", -1, 5000))
        messages = [writer.put(bytes(300)) for _ in range(300)]
        writer.commit()
        assert offsets(tmp_path) == messages
        assert split_offsets(tmp_path, 997)[0] == messages

    def test_what_rmqha_writes_is_read(self, tmp_path: Path) -> None:
        """A store of :class:`DLedgerCommitLog`."""
        log = ledger_log(OsDisk(), store_base_dir=str(tmp_path), mapped_file_size_for_entry_data=4096)
        for number in range(30):
            log.append(b"body %d" % number)
        log.confirm_all()
        trio.run(log.ledger.shutdown)
        assert [row["body"] for row in read(tmp_path)] == [b"body %d" % number for number in range(30)]


class TestPlaces:
    def test_a_store_is_named_by_its_member_or_the_directory_above(self, log: LedgerWriter) -> None:
        assert offsets(log.member) == offsets(log.root) == offsets(log.member / "data")
        renamed = log.member.rename(log.root / "copy")
        assert len(offsets(renamed)) == 200

    def test_a_broker_s_store_may_be_named_like_a_member(self, tmp_path: Path) -> None:
        ledger, classic = LedgerWriter(tmp_path / "dledger-a"), LogWriter(tmp_path / "dledger-b")
        message, before = ledger.put(b"one"), classic.append(b"two")
        ledger.commit()
        assert (offsets(ledger.root), offsets(classic.root)) == ([message], [before])

    def test_several_members_are_not_guessed(self, group: Path) -> None:
        with pytest.raises(StoreError, match=r"the stores of several members: name one of .*dledger-n0, .*dledger-n1"):
            read(group)

    def test_data_files_that_lie_elsewhere_are_missed(self, log: LedgerWriter) -> None:
        (log.member / "data").rename(log.root / "elsewhere")
        with pytest.raises(StoreError, match="dataStorePath"):
            read(log.root)

    def test_a_file_that_is_missing_is_told(self, log: LedgerWriter) -> None:
        for number in range(300):
            log.put(b"more %d" % number)
        log.commit()
        last = log.path(2 * log.file_size)
        last.rename(last.with_name("kept"))
        with pytest.raises(StoreError, match="lacks entries: its checkpoint says that index 499 was committed"):
            read(log.root)
        last.with_name("kept").rename(last)
        log.path(log.file_size).unlink()
        with pytest.raises(StoreError, match="the log has a gap"):
            read(log.root)

    def test_a_new_member_has_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "dledger-n0" / "data").mkdir(parents=True)
        assert read(tmp_path) == []


class TestReplay:
    def run(self, store: Path, out: Path) -> Any:
        return replay(ReplayOptions(str(store), str(out)), start=in_process)

    def test_each_run_goes_on_where_the_last_one_ended(self, log: LedgerWriter, tmp_path: Path) -> None:
        log.commit(100)
        first = self.run(log.root, tmp_path / "out")
        assert (first.messages, first.end) == (101, log.offsets[101])
        assert "not known to be committed" in first.unfinished
        log.commit()
        second = self.run(log.root, tmp_path / "out")
        assert (second.begin, second.messages, second.end) == (first.end, 99, log.end)
        assert self.run(log.root, tmp_path / "out").manifest is None

    def test_entries_of_a_bare_group_have_a_directory_of_their_own(self, group: Path, tmp_path: Path) -> None:
        report = self.run(group / "dledger-n0", tmp_path / "out")
        assert list(report.topics) == ["entries"]
        assert report.topics["entries"].messages == 55
        assert list((tmp_path / "out" / "topic=entries").glob("*.parquet"))


def test_damage_is_a_range(log: LedgerWriter) -> None:
    report = ReadReport()
    log.write(log.offsets[199] + 48 + 88, b"\xff\xfe")
    offsets(log.root, report, on_corrupt=OnCorrupt.SKIP)
    assert report.corrupt == [CorruptRange(log.offsets[199], log.end, "the body's CRC does not match BODYCRC")]


def test_records_are_what_java_writes() -> None:
    """The hand-made message of these tests (spec: dledger §6.1) claims the place behind the entry's header."""
    assert record(48, b"x")[28:36] == (48).to_bytes(8, "big")
