"""Read a commitlog directory without being its broker.

Takes no lock and writes nothing, so it works on any RocketMQ 4.x store: of a running broker, after a crash, or a copy.
The end is then wherever the records end; a blank at the end of the last segment counts as read.
"""

import hashlib
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final, Self

from rmqha.codec.compression import inflate
from rmqha.codec.record.message import StoredMessage, decode_scanned
from rmqha.codec.record.resync import find_record
from rmqha.codec.record.scan import Scan, Stop, scan_records
from rmqha.errors import CorruptLogError, LocalProtocolError, ProtocolError
from rmqha.store.disk import Disk
from rmqha.store.file_to_read import FileToRead
from rmqha.store.mapped_file import parse_file_name
from rmqha.store.open_files import OpenFiles

_OPEN_FILES_MAX: Final = 16
"""They are read one after the other."""
_ROUND_BYTES: Final = 1 << 20
_HOLE_BYTES: Final = 16 << 20
"""How far behind zeros a record is looked for."""


class Segment(FileToRead):
    """One file of the commitlog."""

    __slots__ = ()

    def scan(self, at: int, end: int | None = None, *, check_crc: bool = True, torn_from: int | None = None) -> Scan:
        """Walk the records from position ``at`` on, up to ``end`` or the file's end.

        What ends behind the offset ``torn_from`` was left by a crash: see :func:`scan_records`.
        """
        return scan_records(
            self.view(),
            at,
            self.size if end is None else min(end, self.size),
            phy_offset_base=self.offset,
            file_end=self.size,
            check_crc=check_crc,
            torn_from=None if torn_from is None else max(0, torn_from - self.offset),
        )


class LogReader:
    """The segments of a commitlog directory, oldest first, and their records.

    A file of a name that is no segment's is passed over here; :func:`~rmqha.store.log_verify.verify_log` reports it.
    With the end of a ``with`` block its files are closed; else some day, when Python looks for what nobody refers to.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        open_files: OpenFiles | None = None,
        wait: Callable[[], None] = lambda: None,
    ) -> None:
        """List the directory.

        Args:
            disk: where it is.
            directory: of the segments.
            open_files: of all that is read with them, if more is: one of two could leave the other no descriptor.
            wait: called where no good record lies, which a running broker may be writing, before it is read once more.

        Raises:
            StoreReadError: it cannot be read.
        """
        self._open_files: Final = OpenFiles(_OPEN_FILES_MAX) if open_files is None else open_files
        self._wait: Final = wait
        self.directory: Final = directory
        self.segments: Final[list[Segment]] = []
        for name in self._open_files.listdir(disk, directory):
            if (offset := parse_file_name(name)) is not None:
                segment = Segment(disk, f"{directory}/{name}", offset, open_files=self._open_files)
                self.segments.extend([segment] if segment.size else [])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open_files.close()

    @property
    def min_offset(self) -> int:
        """Where the log begins; 0 if it is empty."""
        return self.segments[0].offset if self.segments else 0

    def messages(self, start: int = 0, *, end: int | None = None, check_crc: bool = True) -> Iterator[StoredMessage]:
        """Every message of which the first byte lies in ``[start, end)``, in order.

        ``start`` need not be a record's: reading begins with the first record found at or behind it, also from within
        a segment that is missing.

        Raises:
            CorruptLogError: something else lies where a record should be. What came before was good.
        """
        at = max(start, self.min_offset)
        for number, segment in enumerate(self.segments):
            if segment.end_offset <= at:
                continue
            if end is not None and segment.offset >= end:
                return
            if number and segment.offset > at == self.segments[number - 1].end_offset:
                raise CorruptLogError(at, f"the segment before {segment.path} is missing")
            position = self._begin(segment, max(0, at - segment.offset))
            later = self.segments[number + 1 :]
            stop = yield from self._messages_of(segment, position, later=later, end=end, check_crc=check_crc)
            if stop not in {Stop.BLANK, Stop.END}:
                return
            at = segment.end_offset

    @staticmethod
    def _begin(segment: Segment, position: int) -> int:
        if position == 0 or segment.scan(position).records:
            return position
        found = find_record(segment.view(), position, segment.size, phy_offset_base=segment.offset)
        return segment.size if found is None else found

    def _messages_of(
        self, segment: Segment, at: int, *, later: list[Segment], end: int | None, check_crc: bool
    ) -> Generator[StoredMessage, None, Stop]:
        """Yield the messages of one segment from position ``at`` on; returns why it ended."""
        view = segment.view()
        limit, looked_again_at = segment.size if end is None else end - segment.offset, -1
        while at < limit:
            size = int.from_bytes(view[at : at + 4], "big", signed=True)
            scan = segment.scan(at, at + max(size, _ROUND_BYTES), check_crc=check_crc)
            while at < min(scan.end, limit):
                message = decode_scanned(view, at)
                yield message
                at += message.store_size
            if scan.records:
                continue
            if scan.stop is Stop.CORRUPT and at != looked_again_at:
                self._wait()
                looked_again_at = at
                continue
            if scan.stop in {Stop.CORRUPT, Stop.FOREIGN}:
                raise CorruptLogError(segment.offset + at, f"{scan.reason} ({segment.path}, position {at})")
            if scan.stop is Stop.ZERO and _record_follows(segment, at, later):
                if not _is_unwritten(segment, at):
                    continue  # written meanwhile
                raise CorruptLogError(segment.offset + at, f"zeros, no record ({segment.path}, position {at})")
            return scan.stop
        return Stop.END


def _record_follows(segment: Segment, at: int, later: list[Segment]) -> bool:
    """Whether zeros at ``at`` are a hole in the log, not its end."""
    end = min(segment.size, at + _HOLE_BYTES)
    if find_record(segment.view(), at + 1, end, phy_offset_base=segment.offset) is not None:
        return True
    return not all(_is_unwritten(one, 0) for one in later)


def _is_unwritten(segment: Segment, at: int) -> bool:
    scan = segment.scan(at, at + _ROUND_BYTES)
    return scan.stop is Stop.ZERO and not scan.records


def dump_line(message: StoredMessage, *, on_problem: Callable[[ProtocolError], None] | None = None) -> dict[str, Any]:
    """Everything about a message but its content: what ``rmqha log dump`` prints.

    A body that RocketMQ's clients cannot inflate either leaves a message without an id, as with them.
    ``on_problem`` is told why a body was not inflated.
    """
    plain: bytes | None = None
    msg_id: str | None = message.msg_id
    try:
        plain = inflate(message.body, message.sys_flag)
    except ProtocolError as error:
        msg_id = msg_id if isinstance(error, LocalProtocolError) else None
        if on_problem is not None:
            on_problem(error)
    return {
        "physicalOffset": message.physical_offset,
        "storeSize": message.store_size,
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp_ms,
        "bornHost": message.born_host,
        "bornHostHex": message.born_host_raw.hex(),
        "storeTimestamp": message.store_timestamp_ms,
        "storeHost": message.store_host,
        "storeHostHex": message.store_host_raw.hex(),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyCRC": message.body_crc,
        "bodyLength": len(message.body),
        "bodySha256": _sha256(message.body),
        "plainLength": None if plain is None else len(plain),
        "plainSha256": None if plain is None else _sha256(plain),
        "offsetMsgId": message.offset_msg_id,
        "msgId": msg_id,
        "properties": message.properties if message.properties_raw else None,
        "recordSha256": _sha256(message.encode()),
        "dispatch": True,
        "tagsCode": message.tags_code,
    }


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
