"""`rmqha log verify` of entries: what is damaged, and what is no damage."""

import struct

import pytest

from rmqha.codec.dledger_entry import BODY_OFFSET, DLedgerEntry
from rmqha.codec.dledger_properties import LedgerCheckpoint
from rmqha.dledger import ledger_verify
from rmqha.dledger.ledger_reader import ledger_files
from rmqha.dledger.ledger_verify import LedgerVerification, dispatch_requests, verify_ledger
from rmqha.dledger.term_barrier import barrier_body
from tests.dledger.ledger_log import ledger_log
from tests.dledger.ledgers import DATA, FILE_SIZE, blank, entries, entry, put_file, put_log
from tests.dledger.members import CONFIG
from tests.memory_log import record
from tests.sim.sim_disk import SimDisk, SimMount

FULL = entries(0, 3) + blank(56)


@pytest.fixture
def mount() -> SimMount:
    return SimDisk().mount()


def verify(mount: SimMount, *, kept: int = -1, directory: str = DATA) -> LedgerVerification:
    return verify_ledger(ledger_files(mount, [directory]), LedgerCheckpoint(kept, kept))


def write(mount: SimMount, path: str, at: int, data: bytes) -> None:
    mount.open(path, writable=True).pwrite([data], at)


def test_good_entries_are_counted(mount: SimMount) -> None:
    put_log(mount, [FULL, entries(4, 5, pos=FILE_SIZE)])
    found = verify(mount, kept=5)
    assert (found.problems, found.records, found.blanks, found.segments) == ([], 6, 1, 2)
    assert (found.begin_index, found.end_index) == (0, 5)
    assert (found.min_offset, found.end_offset) == (0, FILE_SIZE + 100)
    assert found.tail is not None
    assert (found.tail.offset, found.tail.reason) == (FILE_SIZE + 100, "zeros, no entry")


@pytest.mark.parametrize(
    ("data", "end"), [(entries(4, 5, pos=FILE_SIZE), FILE_SIZE + 100), (b"", FILE_SIZE)], ids=["some", "none yet"]
)
def test_a_log_begins_where_its_first_file_does(mount: SimMount, data: bytes, end: int) -> None:
    """What was before it has expired."""
    put_file(mount, FILE_SIZE, data)
    found = verify(mount)
    assert (found.problems, found.min_offset, found.end_offset) == ([], FILE_SIZE, end)


def test_an_empty_store_is_good(mount: SimMount) -> None:
    assert verify(mount) == LedgerVerification()


@pytest.mark.parametrize("at", [0, 3, 4, 12, 30, 44])
def test_an_entry_that_is_damaged_is_named_and_reading_goes_on_behind_it(mount: SimMount, at: int) -> None:
    path = put_log(mount, [FULL, entries(4, 7, pos=FILE_SIZE)])[1]
    good = mount.open(path, writable=True).pread(1, 50 + at)[0]
    write(mount, path, 50 + at, bytes([good ^ 0x55]))
    found = verify(mount, kept=7)
    (problem,) = found.problems
    assert (problem.path, problem.position, problem.offset) == (path, 50, FILE_SIZE + 50)
    assert (found.records, found.end_index) == (7, 7)


def test_behind_damage_an_entry_is_found_wherever_it_begins(mount: SimMount, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is searched is searched in pieces, and a magic code may lie over the end of one."""
    path = put_log(mount, [FULL])[0]
    write(mount, path, 50, b"\x55")
    for size in range(1, 60):
        monkeypatch.setattr(ledger_verify, "_CHUNK_BYTES", size)
        found = verify(mount)
        assert [problem.position for problem in found.problems] == [50]
        assert (found.records, found.end_index) == (3, 3)


def test_a_hole_between_entries_is_damage(mount: SimMount) -> None:
    put_log(mount, [entries(0, 1), entries(4, 7, pos=FILE_SIZE)])
    (problem,) = verify(mount).problems
    assert (problem.offset, problem.reason) == (100, "zeros, no entry")


def test_a_first_entry_of_another_index_hides_no_damage(mount: SimMount) -> None:
    path = put_log(mount, [entries(0, 3)])[0]
    write(mount, path, 8, b"\x01")
    assert "index 3 was committed" in verify(mount, kept=3).problems[-1].reason


def test_what_was_committed_may_have_expired_since_the_checkpoint(mount: SimMount) -> None:
    """Files were deleted by force, and the checkpoint is written each minute: no start takes that for damage."""
    put_file(mount, FILE_SIZE, entries(4, 5, pos=FILE_SIZE))
    assert verify(mount, kept=3).problems == []
    assert "index 6 was committed" in verify(mount, kept=6).problems[-1].reason


def test_files_that_are_missing_or_of_another_size(mount: SimMount) -> None:
    put_file(mount, 0, FULL)
    put_file(mount, 2 * FILE_SIZE, entries(8, 9, pos=2 * FILE_SIZE), size=FILE_SIZE * 2)
    reasons = [problem.reason for problem in verify(mount).problems]
    assert reasons == [
        f"data file {FILE_SIZE:020d} is missing, or of a wrong length",
        "512 bytes, but the first file has 256",
    ]


def test_a_blank_that_ends_elsewhere_is_damage(mount: SimMount) -> None:
    put_log(mount, [entries(0, 3) + blank(50), entries(4, 5, pos=FILE_SIZE)])
    (problem,) = verify(mount).problems
    assert "a blank of 50 bytes does not reach exactly to the end" in problem.reason


def test_a_log_that_ends_before_what_was_committed(mount: SimMount) -> None:
    assert "index 3 was committed, the last one here is -1" in verify(mount, kept=3).problems[0].reason
    path = put_log(mount, [FULL, entries(4, 5, pos=FILE_SIZE)])[1]
    write(mount, path, 50, bytes(50))
    (problem,) = verify(mount, kept=5).problems
    assert (problem.path, problem.position) == (path, 50)
    assert problem.reason == (
        "zeros, no entry, but the checkpoint says that index 5 was committed, the last one here is 4"
    )


@pytest.mark.parametrize("files", [[FULL], [FULL, entries(4, 7, pos=FILE_SIZE) + blank(56)]])
def test_a_last_file_that_is_being_made_is_no_damage(mount: SimMount, files: list[bytes]) -> None:
    """Nor is what a crash left of it."""
    put_log(mount, files)
    put_file(mount, len(files) * FILE_SIZE, b"", size=100)
    found = verify(mount)
    assert (found.problems, found.tail, found.segments) == ([], None, len(files))


def test_a_group_s_only_entry_is_missed_too(mount: SimMount) -> None:
    assert "index 0 was committed, the last one here is -1" in verify(mount, kept=0).problems[0].reason
    put_log(mount, [entries(0, 0)])
    assert verify(mount, kept=0).problems == []


def test_what_a_truncate_left_is_no_damage_but_what_lies_behind_the_end(mount: SimMount) -> None:
    """The next leader's entry was written over the beginning of what was cut; index 4 of term 1 is still whole."""
    put_file(mount, 0, entries(0, 1) + entry(2, pos=100, term=2, body=b"another one") + entries(0, 4)[159:])
    found = verify(mount, kept=2)
    assert (found.problems, found.end_index) == ([], 2)
    assert found.tail is not None
    assert found.tail.position == 159


@pytest.mark.parametrize(("index", "term", "is_damage"), [(2, 1, False), (2, 2, True), (3, 2, False), (1, 2, False)])
def test_what_may_not_follow_the_last_entry_was_cut(index: int, term: int, is_damage: bool, mount: SimMount) -> None:
    """By its term, though the next index is the right one: a shorter entry was written over a longer one before it."""
    between = bytes(40)
    put_file(mount, 0, entry(0, pos=0) + entry(1, pos=53, term=2) + between + entry(index, pos=146, term=term))
    found = verify(mount, kept=1)
    assert [problem.position for problem in found.problems] == [106] * is_damage
    assert found.end_index == (2 if is_damage else 1)


def test_messages_in_entries_are_checked_and_dispatched() -> None:
    log = ledger_log()
    for number in range(4):
        log.append(b"number %d" % number)
    mount = log._ground.disk
    files = ledger_files(mount, CONFIG.data_store_paths)
    assert verify_ledger(files, LedgerCheckpoint()).problems == []
    requests = list(dispatch_requests(files))
    assert [request.queue_offset for request in requests] == [0, 1, 2, 3]
    data = mount.open(files[0].path, writable=True)
    raw = data.pread(requests[1].msg_size, requests[1].commit_log_offset)
    body_at = requests[1].commit_log_offset + raw.index(b"number 1")
    data.pwrite([b"N"], body_at)
    files = ledger_files(mount, CONFIG.data_store_paths)
    (problem,) = verify_ledger(files, LedgerCheckpoint()).problems
    assert problem.offset == requests[1].commit_log_offset - 48
    assert problem.reason.startswith("entry 1: ")
    assert [request.queue_offset for request in dispatch_requests(files)] == [0, 1, 2, 3]


def test_a_damaged_last_message_is_what_a_server_may_be_writing() -> None:
    log = ledger_log()
    log.append(b"whole")
    log.append(b"torn")
    mount = log._ground.disk
    (file,) = ledger_files(mount, CONFIG.data_store_paths)
    raw = bytes(file.view())
    mount.open(file.path, writable=True).pwrite([b"\0\0\0\0"], raw.index(b"torn"))
    found = verify_ledger(ledger_files(mount, CONFIG.data_store_paths), LedgerCheckpoint())
    assert found.problems == []
    assert found.tail is not None
    assert found.tail.reason.startswith("entry 1: ")


@pytest.mark.parametrize(("behind", "reasons"), [(b"", []), (b"more", ["entry 1: 4 bytes of a record's header"])])
def test_bytes_behind_the_message_of_an_entry_are_damage(behind: bytes, reasons: list[str], mount: SimMount) -> None:
    data = b""
    for index, rest in enumerate((b"", behind, b"")):
        at = len(data)
        data += entry(index, pos=at, body=record(at + BODY_OFFSET, b"x") + rest)
    put_file(mount, 0, data, size=1024)
    assert [problem.reason for problem in verify(mount).problems] == reasons


def test_bodies_of_a_group_without_brokers_are_anything(mount: SimMount) -> None:
    put_log(mount, [entry(0, pos=0, body=struct.pack(">ii", 100, 7))])
    assert verify(mount).problems == []


def test_the_entry_by_which_a_leader_began_makes_no_messages_of_the_bodies_behind_it() -> None:
    """A group without brokers: the barrier is a whole message, the bodies that are appended there are anything."""
    log = ledger_log()
    ledger = log.ledger
    ledger.append_as_leader(DLedgerEntry(barrier_body(ledger, now_ms=1)))
    for number in range(3):
        ledger.append_as_leader(DLedgerEntry(b"anything %d" % number))
    files = ledger_files(log._ground.disk, CONFIG.data_store_paths)
    found = verify_ledger(files, LedgerCheckpoint())
    assert (found.problems, found.records) == ([], 4)
