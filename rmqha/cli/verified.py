"""What ``rmqha log verify`` finds in a store: its classic log, a member's entries, and the queues against both."""

from dataclasses import dataclass, field, replace

from rmqha.cli.log_places import LogPlaces
from rmqha.cli.progress import progress
from rmqha.cli.store_place import deleted_queues, has_queues, is_in_use, queue_directory
from rmqha.codec.dledger_properties import CHECK_POINT_FILE
from rmqha.dledger.ledger_reader import ledger_files, read_checkpoint
from rmqha.dledger.ledger_verify import LedgerVerification, dispatch_requests, verify_ledger
from rmqha.store.disk import Disk
from rmqha.store.known_end import known_end
from rmqha.store.log_verify import LogVerification, Problem, left_by_crash_from, verify_log
from rmqha.store.open_files import OpenFiles
from rmqha.store.os_disk import OsDisk
from rmqha.store.queue_verify import Entries, QueueVerification, verify_queues


@dataclass(slots=True)
class Verified:
    """All of it."""

    log: LogVerification
    """Of a member: the numbers of its old commitlog and of its entries together."""
    entries: LedgerVerification | None = None
    queues: QueueVerification | None = None
    problems: list[Problem] = field(default_factory=list)
    """In the order of the log; then those of the queues, and what lies behind an end."""
    ends: list[Problem] = field(default_factory=list)
    """What lies behind an end and is no problem, as a broker may be writing it."""


def verify_logs(places: LogPlaces, *, queues: bool | None = None) -> Verified:
    """Read all of a store; ``queues`` None: those are compared if there are any.

    Raises:
        StoreError: something cannot be read.
        CliError: there are no queues, and they are to be compared.
    """
    disk = OsDisk()
    in_use = is_in_use(places.root) or bool(places.member and is_in_use(places.member))
    known = known_end(disk, places.root, checkpoint_only=True)
    checkpoint = read_checkpoint(disk, f"{places.member}/{CHECK_POINT_FILE}")
    files = ledger_files(disk, places.data)
    torn_from = None if in_use else left_by_crash_from(disk, places.root)
    with progress("verifying", unit="segments") as advance:
        log = verify_log(disk, places.commit_log, torn_from=torn_from, on_segment=lambda _: advance(1))
        entries = verify_ledger(files, checkpoint, on_file=lambda: advance(1)) if places.member else None
    found = Verified(log, entries, problems=[*log.problems, *(entries.problems if entries else ())])
    if known.offset > log.end_offset and entries is None:
        reason = f"the log ends here, but {known.who} up to {known.offset}: a segment is missing, or was cut"
        found.problems.append(Problem(places.commit_log, 0, log.end_offset, reason))
    if queues or (queues is None and has_queues(places.root)):
        found.queues = _verify_queues(disk, places)
        found.problems += found.queues.problems
    tails = [one.tail for one in (log, entries) if one is not None and one.tail is not None]
    left = [tail for tail in tails if not _is_unwritten(tail)]
    (found.ends if in_use else found.problems).extend(left)
    if entries is not None:
        found.log = _together(log, entries)
    return found


def _verify_queues(disk: Disk, places: LogPlaces) -> QueueVerification:
    def list_entries(open_files: OpenFiles) -> Entries:
        files = ledger_files(disk, places.data, open_files=open_files)
        return files[0].offset if files else 0, dispatch_requests(files)

    return verify_queues(
        disk,
        places.commit_log,
        queue_directory(places.root),
        deleted=deleted_queues(disk, places.root),
        list_entries=list_entries,
    )


def _is_unwritten(tail: Problem) -> bool:
    """Zeros behind the end are what a segment made in advance is full of."""
    return tail.reason.startswith("zeros")


def _together(log: LogVerification, entries: LedgerVerification) -> LogVerification:
    if not log.segments:
        return entries
    return replace(
        log,
        end_offset=max(log.end_offset, entries.end_offset),
        segments=log.segments + entries.segments,
        records=log.records + entries.records,
        blanks=log.blanks + entries.blanks,
        tail=entries.tail or log.tail,
    )
