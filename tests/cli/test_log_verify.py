import errno
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqha.cli import verified
from rmqha.cli.main import run
from rmqha.codec.checkpoint import decode_checkpoint, encode_checkpoint
from rmqha.dledger.ledger_verify import LedgerVerification, verify_ledger
from rmqha.errors import StoreReadError
from rmqha.store.log_verify import LogVerification, verify_log
from tests.spark.logs import LedgerWriter, record
from tests.stores import expected_log, expected_messages, unpack

Output = pytest.CaptureFixture[str]


@pytest.mark.parametrize("name", ["basic", "rolled", "trimmed", "v6", "empty", "odd"])
def test_stores_that_rocketmq_stopped_cleanly_are_good(name: str, tmp_path: Path, capsys: Output) -> None:
    store = unpack(name, tmp_path)
    assert run(["log", "verify", str(store), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["good"], found["problems"]) == (True, [])
    assert found["records"] == len(expected_messages(name))
    assert found["end_offset"] == expected_log(name)["maxOffset"]


def test_the_first_bad_byte_is_named(tmp_path: Path, capsys: Output) -> None:
    store = unpack("basic", tmp_path)
    bad = expected_messages("basic")[5]["physicalOffset"]
    path = store / "commitlog" / ("0" * 20)
    with path.open("r+b") as file:
        file.seek(bad + 90)
        file.write(b"\xff\xff\xff\xff")
    assert run(["log", "verify", str(store)]) == 1
    first, *_, verdict = capsys.readouterr().out.splitlines()
    assert first.startswith(f"bad: {path}, position {bad} (offset {bad}): ")
    assert verdict.startswith(f"bad: {len(expected_messages('basic')) - 1:,} records")


def test_a_log_that_ends_before_its_checkpoint_is_bad(tmp_path: Path, capsys: Output) -> None:
    store = unpack("basic", tmp_path)
    checkpoint = decode_checkpoint((store / "checkpoint").read_bytes())
    end = expected_log("basic")["maxOffset"]
    for durable, code in ((end, 0), (end + 1, 1)):
        (store / "checkpoint").write_bytes(encode_checkpoint(replace(checkpoint, master_flushed_offset=durable)))
        assert run(["log", "verify", str(store)]) == code
    assert f"the checkpoint says that it was durable up to {end + 1}" in capsys.readouterr().out


@pytest.mark.parametrize("begins", [False, True], ids=["has one", "has none yet"])
def test_a_checkpoint_that_is_saved_while_the_log_is_read_is_no_sign_of_a_loss(
    begins: bool, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that runs appends behind what was read, and says a moment later that it is durable."""
    store, end = unpack("basic", tmp_path), expected_log("basic")["maxOffset"]
    path = store / "checkpoint"
    checkpoint = replace(decode_checkpoint(path.read_bytes()), master_flushed_offset=end)
    path.write_bytes(encode_checkpoint(checkpoint))
    if begins:
        path.unlink()

    def verify(*args: Any, **keys: Any) -> LogVerification:
        found = verify_log(*args, **keys)
        path.write_bytes(encode_checkpoint(replace(checkpoint, master_flushed_offset=end + 1000)))
        return found

    monkeypatch.setattr("rmqha.cli.verified.verify_log", verify)
    assert run(["log", "verify", str(store), "--no-queues"]) == 0
    assert "is missing, or was cut" not in capsys.readouterr().out
    monkeypatch.undo()
    assert run(["log", "verify", str(store), "--no-queues"]) == 1, "of one that was saved before the log is"


@contextmanager
def held(lock: Path) -> Iterator[None]:
    """As a process that runs on a store holds it."""
    hold = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX, 1, 0); print(); input()"
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield


def damage_the_last_record(store: Path) -> int:
    last: int = expected_messages("bench")[-1]["physicalOffset"]
    path = max((store / "commitlog").iterdir(), key=lambda p: (int(p.name) <= last, p.name))
    with path.open("r+b") as file:
        file.seek(last - int(path.name) + 120)
        file.write(b"\xff\xff\xff\xff")
    return last


def test_a_bad_last_record_is_bad_unless_a_broker_may_be_writing_it(tmp_path: Path, capsys: Output) -> None:
    store = unpack("bench", tmp_path)
    last = damage_the_last_record(store)
    assert run(["log", "verify", str(store), "--no-queues"]) == 1
    assert f"(offset {last})" in capsys.readouterr().out.splitlines()[0]

    with held(store / "lock"):
        assert run(["log", "verify", str(store), "--no-queues"]) == 0
        assert f"(offset {last})" in capsys.readouterr().out.splitlines()[-1]


def test_a_store_without_queues_says_so_when_they_are_to_be_compared(tmp_path: Path, capsys: Output) -> None:
    store = unpack("basic", tmp_path)
    assert run(["log", "verify", str(store / "commitlog"), "--queues"]) == 1
    assert "there are no consume queues" in capsys.readouterr().err


def test_queues_are_compared_unless_told_otherwise(tmp_path: Path, capsys: Output) -> None:
    store = unpack("basic", tmp_path)
    unit = next(path for path in (store / "consumequeue").rglob("0" * 20) if any(path.read_bytes()[:20]))
    with unit.open("r+b") as file:
        file.seek(12)
        file.write(b"\xff" * 8)  # the tag's hash
    assert run(["log", "verify", str(store)]) == 1
    assert "the unit is" in capsys.readouterr().out
    for arguments in ([str(store), "--no-queues"], [str(store / "commitlog")]):
        assert run(["log", "verify", *arguments]) == 0
        assert capsys.readouterr().out.splitlines()[-2] == "queues: not compared"


def test_the_help_says_what_no_checksum_covers(capsys: Output) -> None:
    assert run(["log", "verify", "--help"]) == 0
    assert "A record's CRC covers its body." in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("crashed", "code"), [(False, 0), (True, 1)], ids=["clean", "crashed"])
def test_what_a_start_would_cut_as_torn_is_bad(tmp_path: Path, capsys: Output, crashed: bool, code: int) -> None:
    """No checksum covers properties, but the zeros that a torn write leaves show."""
    store = unpack("rolled", tmp_path)
    last = expected_messages("rolled")[-1]
    end = last["physicalOffset"] + last["storeSize"]
    with (store / "commitlog" / f"{end // 65536 * 65536:020d}").open("r+b") as file:
        file.seek(end % 65536 - 1)
        file.write(b"\0")
    if crashed:
        (store / "abort").touch()
    assert run(["log", "verify", str(store), "--no-queues"]) == code
    told = capsys.readouterr().out
    assert (f"(offset {last['physicalOffset']}): its properties were torn" in told) == crashed
    assert f"{len(expected_messages('rolled')) - crashed:,} records" in told


def member_of(root: Path, count: int = 200) -> LedgerWriter:
    """The store of a broker that has always been a member: messages in entries, and a queue that has them."""
    log = LedgerWriter(root)
    places = [log.put(b"%d" % number * 300, queue_offset=number) for number in range(count)]
    log.commit()
    queue = root / "consumequeue" / "orders" / "0"
    queue.mkdir(parents=True)
    tag = sum(ord(char) * 31 ** (3 - at) for at, char in enumerate("TagA")) & 0x7FFFFFFF
    sizes = [len(record(0, b"%d" % number * 300)) for number in range(count)]
    units = [struct.pack(">qiq", place, size, tag) for place, size in zip(places, sizes, strict=True)]
    (queue / ("0" * 20)).write_bytes(b"".join(units).ljust(20 * 1000, b"\0"))
    return log


def test_of_a_member_the_entries_and_its_queues_are_checked(tmp_path: Path, capsys: Output) -> None:
    """The monthly unit of each member failed: there is no commitlog."""
    log = member_of(tmp_path)
    assert run(["log", "verify", str(tmp_path), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["good"], found["records"], found["segments"]) == (True, 200, 3)
    assert found["queues"] == {"queues": 1, "units": 200, "behind": 0}
    assert found["entries"] == {"entries": 200, "files": 3, "begin_index": 0, "end_index": 199}
    assert run(["log", "verify", str(log.member)]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "queues: not compared",
        "entries: 200 in 3 files, indexes 0 to 199",
    ]


@pytest.mark.parametrize("number", [0, 2], ids=["deleted", "begun"])
def test_of_a_member_a_file_may_come_or_go_meanwhile(
    number: int, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units of messages in a file that its broker began while the others were read pointed at no record."""
    log = member_of(tmp_path)
    log.commit(sum(offset < 2 * log.file_size for offset in log.offsets) - 1)
    path, aside = log.path(number * log.file_size), tmp_path / "aside"
    if number:
        path.rename(aside)

    def verify(*args: Any, **keys: Any) -> LedgerVerification:
        found = verify_ledger(*args, **keys)
        if number:
            aside.rename(path)
        else:
            path.rename(aside)
        return found

    monkeypatch.setattr("rmqha.cli.verified.verify_ledger", verify)
    assert run(["log", "verify", str(tmp_path)]) == 0
    agreeing = [offset for offset in log.offsets if number or offset >= log.file_size]
    assert f"units that agree: {len(agreeing)}," in capsys.readouterr().out


def test_of_a_member_a_damaged_body_is_named(tmp_path: Path, capsys: Output) -> None:
    log = member_of(tmp_path)
    log.write(log.offsets[7] + 48 + 100, b"\xff\xff")
    assert run(["log", "verify", str(tmp_path)]) == 1
    first, *_, verdict = capsys.readouterr().out.splitlines()
    assert first.startswith(f"bad: {log.path(0)}, position {log.offsets[7]} (offset {log.offsets[7]}): entry 7: ")
    assert verdict.startswith("bad: 199 records")


@pytest.mark.parametrize(
    ("named", "lock"),
    [("", None), ("", "lock"), ("", "dledger-n0/lock"), ("dledger-n0", None), ("dledger-n0", "dledger-n0/lock")],
)
def test_of_a_member_a_bad_last_entry_is_bad_unless_it_may_be_being_written(
    named: str, lock: str | None, tmp_path: Path, capsys: Output
) -> None:
    """By its broker, which holds the store's lock, or by a member without a broker, which holds its own alone."""
    log = member_of(tmp_path)
    last = log.offsets[-1]
    log.write(last + 48 + 100, b"\xff\xff")
    with ExitStack() as stack:
        if lock is not None:
            (tmp_path / lock).touch()
            stack.enter_context(held(tmp_path / lock))
        assert run(["log", "verify", str(tmp_path / named), "--no-queues"]) == (lock is None)
    lines = capsys.readouterr().out.splitlines()
    assert f"(offset {last})" in lines[0 if lock is None else -1]


def test_of_a_member_a_unit_of_its_queues_that_says_something_else_is_named(tmp_path: Path, capsys: Output) -> None:
    log = member_of(tmp_path)
    with (tmp_path / "consumequeue" / "orders" / "0" / ("0" * 20)).open("r+b") as file:
        file.seek(20 * 3)
        file.write(struct.pack(">q", log.offsets[1]))
    assert run(["log", "verify", str(tmp_path)]) == 1
    assert "the unit is" in capsys.readouterr().out


def test_a_broker_conf_says_where_the_logs_are(tmp_path: Path, capsys: Output) -> None:
    """Both storePathCommitLog and dataStorePath are on other disks; the store has the queues alone."""
    store, conf = unpack("basic", tmp_path), tmp_path / "broker.conf"
    (store / "commitlog").rename(tmp_path / "disk")
    conf.write_text(f"brokerName=a\nstorePathRootDir={store}\nstorePathCommitLog={tmp_path}/disk\n")
    assert run(["log", "verify", "-c", str(conf)]) == 0
    assert f"good: {len(expected_messages('basic'))} records" in capsys.readouterr().out

    log = member_of(tmp_path / "n0")
    (log.member / "data").rename(tmp_path / "data")
    conf.write_text(
        f"brokerName=g\nstorePathRootDir={tmp_path}/n0\nenableDLegerCommitLog=true\ndLegerSelfId=n0\ndLegerGroup=g\n"
        f"dLegerPeers=n0-127.0.0.1:1;n1-127.0.0.1:2;n2-127.0.0.1:3\nstorePathDLedgerCommitLog={tmp_path}/data\n"
    )
    assert run(["log", "verify", "--config", str(conf)]) == 0
    assert "good: 200 records" in capsys.readouterr().out
    (tmp_path / "data").rename(tmp_path / "unmounted")
    assert run(["log", "verify", "--config", str(conf)]) == 2
    assert f"nothing to verify: there is no directory {tmp_path}/data" in capsys.readouterr().err


@pytest.mark.parametrize("made", ["", "consumequeue"])
def test_nothing_to_verify_is_not_something_bad(made: str, tmp_path: Path, capsys: Output) -> None:
    store = tmp_path / "store"
    if made:
        (store / made).mkdir(parents=True)
    assert run(["log", "verify", str(store)]) == 2
    assert "nothing to verify: " in capsys.readouterr().err


@pytest.mark.parametrize(("refused", "code"), [(errno.EACCES, 2), (errno.EPERM, 2), (errno.EIO, 1)])
def test_what_may_not_be_read_is_not_called_bad(
    refused: int, code: int, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the disk cannot read is."""
    store = unpack("basic", tmp_path)

    def fails(*_: object, **__: object) -> None:
        raise StoreReadError(OSError(refused, os.strerror(refused)), operation="open", path="/s/commitlog/0")

    monkeypatch.setattr(verified, "verify_logs", fails)
    assert run(["log", "verify", str(store)]) == code
    told = capsys.readouterr().err
    assert "open failed on /s/commitlog/0" in told
    assert (f"run it as the owner of {store}" in told) == (code == 2)


@pytest.mark.parametrize("named_by", ["store", "config"])
def test_nor_is_a_store_whose_directory_is_closed(
    named_by: str, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a service's user mostly is: it ended with 1, and a bare errno."""
    store, conf = unpack("basic", tmp_path), tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={store}\nallowInsecure=true\n")
    is_dir = Path.is_dir

    def forbidden(self: Path) -> bool:
        if store in self.parents:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        return is_dir(self)

    monkeypatch.setattr(Path, "is_dir", forbidden)
    assert run(["log", "verify", *([str(store)] if named_by == "store" else ["-c", str(conf)])]) == 2
    told = capsys.readouterr().err
    assert "nothing was verified: [Errno 13] Permission denied: " in told
    assert "run it as the owner of " in told


@pytest.mark.parametrize("arguments", [[], ["store", "-c", "broker.conf"]])
def test_a_store_or_a_broker_conf_is_named(arguments: list[str], capsys: Output) -> None:
    assert run(["log", "verify", *arguments]) == 2
    assert "one of them" in capsys.readouterr().err
