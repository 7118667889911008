"""``rmqha doctor``: the log of a broker that does not run: its end, and whether other replicas hold the same."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rmqha.broker.dledger.dledger_options import member_options
from rmqha.broker.options import store_options
from rmqha.broker.tuning import Tuning
from rmqha.cli.ask import BrokerConnection, RefusedError
from rmqha.cli.errors import CliError
from rmqha.cli.finding import FAIL, OK, WARN, Finding
from rmqha.cli.pages import Page
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import ViewMessageRequestHeader
from rmqha.codec.record.resync import find_record
from rmqha.codec.record.scan import Scan, Stop
from rmqha.config import BrokerConfig
from rmqha.dledger.membership import find_other_group
from rmqha.dledger.other_members import find_other_members, find_others_data
from rmqha.errors import StoreError
from rmqha.store.known_end import known_end
from rmqha.store.log_reader import LogReader, Segment
from rmqha.store.look import look_at_store
from rmqha.store.os_disk import OsDisk

Findings = Iterator[Finding]

_LOOKED_AT_BYTES: Final = 16 << 20
"""Behind the end, for a good record that would show damage before it."""


class LogEnd(NamedTuple):
    """Where a log lies, begins and ends; ``directory`` is that of its segments."""

    directory: str
    min_offset: int
    end_offset: int


def check_member(config: BrokerConfig) -> Findings:
    """Whether the store is that of this member of a DLedger group."""
    if not config.enable_dleger_commit_log:
        return
    try:
        member = member_options(config)
        ledger, disk = member.store, OsDisk()
        if others := (
            find_other_members(ledger, disk) or find_others_data(ledger, disk) or find_other_group(member, disk)
        ):
            yield Finding(FAIL, "store", f"{others.what}: a start refuses", others.next)
    except StoreError as error:
        yield Finding(FAIL, "store", f"whose store it is cannot be looked at: {error}")


def check_log(config: BrokerConfig) -> tuple[LogEnd | None, list[Finding]]:
    """Look at the store as a start does, and at the last segment that holds a record.

    None: there is no log that other replicas could be compared with.

    Args:
        config: of a broker that does not run.
    """
    directory, is_member = config.store_path_commit_log, config.enable_dleger_commit_log
    told = f"'rmqha log verify {config.store_path_root_dir}' reads all of it"
    if Path(directory) != Path(config.store_path_root_dir) / "commitlog":
        told = f"'rmqha log verify {directory}' reads all of it"
    if not os.path.isdir(directory):  # noqa: PTH112 - Path's raises where it may not look
        told = "docs/recovery.md"
    try:
        look_at_store(OsDisk(), store_options(config, Tuning()), is_member=is_member)
        if is_member:
            return None, []
        with LogReader(OsDisk(), directory) as reader:
            last = last_records(reader)
            if last is None:
                return None, _lacking(config, 0, told)
            segment, scan = last
            end_offset = end_of(segment, scan)
            finding = Finding(OK, "log", f"it ends at {end_offset:,}; {told}")
            if end_offset < segment.end_offset:
                finding = _behind_end(segment, scan, told) or finding
            lacking = _lacking(config, end_offset, told) if finding.level != FAIL else []
            findings = [finding] if finding.level != OK or not lacking else []
            return LogEnd(directory, reader.min_offset, end_offset), [*lacking, *findings]
    except StoreError as error:
        return None, [Finding(FAIL, "log", str(error), told)]


def _lacking(config: BrokerConfig, end_offset: int, told: str) -> list[Finding]:
    """What a log lacks that ends where this one does, as a start says, too: by its last segment a good one."""
    root = config.store_path_root_dir
    known = known_end(OsDisk(), root, checkpoint_only=os.path.exists(f"{root}/abort"))  # noqa: PTH110
    if known.offset <= end_offset:
        return []
    what = f"it ends at {end_offset:,}, but {known.who} up to {known.offset:,}: a segment is missing, or was cut"
    return [Finding(FAIL, "log", what, f"is the right disk mounted there? {told}; docs/recovery.md")]


def last_records(reader: LogReader) -> tuple[Segment, Scan] | None:
    """The last segment that is not empty: those behind it were made in advance, or are no more than a blank."""
    for segment in reversed(reader.segments):
        scan = segment.scan(0)
        if scan.records or scan.stop not in {Stop.ZERO, Stop.BLANK}:
            return segment, scan
    return None


def end_of(segment: Segment, scan: Scan) -> int:
    """Where a log ends whose last records are these; a blank behind them counts."""
    is_whole = scan.stop in {Stop.BLANK, Stop.END}
    return segment.end_offset if is_whole else segment.offset + scan.end


def _behind_end(segment: Segment, scan: Scan, told: str) -> Finding | None:
    """What is wrong with the bytes behind the last good record; None: nothing was ever written there."""
    at = f"at physical offset {segment.offset + scan.end}"
    if scan.stop is Stop.FOREIGN:
        return Finding(FAIL, "log", f"{at}: {scan.reason}", f"{told}; docs/recovery.md")
    limit = min(segment.size, scan.end + _LOOKED_AT_BYTES)
    following = find_record(segment.view(), scan.end + 1, limit, phy_offset_base=segment.offset)
    if following is not None:
        what = f"corrupt {at}, and a good record follows: {scan.reason or 'zeros, no record'}"
        return Finding(FAIL, "log", what, f"{told}; docs/recovery.md")
    if scan.stop is Stop.ZERO:
        return None
    what = f"its last bytes, {at}, are no record: a crash leaves such, and so does damage ({scan.reason})"
    return Finding(WARN, "log", what, told)


def compare(
    config: BrokerConfig, log: LogEnd, named: tuple[str, str], asked_at: str, held: LogEnd, *, timeout_s: float
) -> Findings:
    """Whether a replica holds other bytes at the last place that both logs have, or more of them.

    Args:
        config: of the broker that does not run.
        log: its.
        named: the key under which it names the replica, and the address there.
        asked_at: the replica's listenPort.
        held: by the replica, as it says; its ``directory`` is not known.
        timeout_s: for its answer.
    """
    key, address = named
    common = min(log.end_offset, held.end_offset)
    try:
        is_same = None
        if common > max(log.min_offset, held.min_offset):
            is_same = _is_same(log, common, asked_at, held, timeout_s=timeout_s)
    except (CliError, StoreError) as error:
        yield Finding(WARN, key, f"{address}: whether it holds the same log is unknown: {error}")
        is_same = None
    if is_same is False:
        what = f"{address}: it holds other bytes than the log here before offset {common:,}"
        yield Finding(FAIL, key, what, f"a start refuses, or does not follow it: {Page.DIVERGED}")
        return
    more = held.end_offset - log.end_offset
    unproved = "" if is_same else f"; if the logs differ: {Page.DIVERGED}"
    if config.is_slave and more < 0:
        what = f"{address}: the log here goes on for {-more:,} bytes beyond its end: this slave does not follow it so"
        yield Finding(WARN, key, what, f"{Page.AHEAD}{unproved}")
    elif not config.is_slave and more > 0:
        what = f"{address}: it holds {more:,} bytes more than the log here, which ends at {log.end_offset:,}"
        told = f"{config.ha_catch_up_at_start.value}: {Page.PEER_HOLDS_MORE}{unproved}"
        yield Finding(WARN, key, what, f"what a start does about it with haCatchUpAtStart={told}")


def _is_same(log: LogEnd, common: int, address: str, held: LogEnd, *, timeout_s: float) -> bool | None:
    """Whether the last record before ``common`` is one here, and the same there; None: the replica has lost it since.

    Raises:
        CliError: it does not say.
        StoreError: this log cannot be read.
    """
    with LogReader(OsDisk(), log.directory) as reader:
        record = _record_before(reader, common)
    if record is None:
        return False
    offset, own = record
    if offset < held.min_offset:
        return None
    try:
        with BrokerConnection(address, timeout_s=timeout_s) as connection:
            answer = connection.ask_for(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset))
    except RefusedError as error:
        if error.code == ResponseCode.SYSTEM_ERROR and "AclException" not in error.remark:
            return False  # no record begins there
        raise
    return bytes(answer.body) == own


def _record_before(reader: LogReader, end_offset: int) -> tuple[int, bytes] | None:
    """The record that ends there, and its offset; None if none does."""
    segment = next(one for one in reader.segments if one.offset < end_offset <= one.end_offset)
    view, limit = segment.view(), end_offset - segment.offset
    scan = segment.scan(0, limit, check_crc=False)
    at = start = 0
    while at < scan.end:
        start, at = at, at + int.from_bytes(view[at : at + 4], "big")
    is_end = scan.records and (at == limit or (scan.stop is Stop.BLANK and limit == segment.size))
    return (segment.offset + start, bytes(view[start:at])) if is_end else None
