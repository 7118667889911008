"""What a replay did, in numbers that can be checked against its output."""

from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from rmqha.errors import CorruptLogError, StoreError
from rmqha.spark.report import CorruptRange


class Progress(NamedTuple):
    """Told from the first moment on.

    Attributes:
        messages: of tasks whose results are here.
        doing: what is going on, in a word or two.
    """

    done_bytes: int
    total_bytes: int
    messages: int
    doing: str


@dataclass
class TopicTotals:
    """Of one topic in one run. The sums do not depend on order or on how the log was split.

    ``bodyCrc`` and ``physicalOffset`` are columns of the output: ``select count(*), sum(bodyCrc),
    sum(physicalOffset)`` checks it. Bodies themselves are checked by ``bodyCrc``, unless they were decompressed.
    """

    messages: int = 0
    body_bytes: int = 0
    body_crc_sum: int = 0
    physical_offset_sum: int = 0
    first_offset: int = -1
    last_offset: int = -1

    def add(self, other: "TopicTotals") -> None:
        """Count another part of the same topic too."""
        self.messages += other.messages
        self.body_bytes += other.body_bytes
        self.body_crc_sum += other.body_crc_sum
        self.physical_offset_sum += other.physical_offset_sum
        firsts = [one.first_offset for one in (self, other) if one.first_offset >= 0]
        self.first_offset = min(firsts, default=-1)
        self.last_offset = max(self.last_offset, other.last_offset)

    def as_json(self) -> dict[str, int]:
        """With the manifest's key names."""
        return {_camel(name): value for name, value in asdict(self).items()}


class OutputFile(NamedTuple):
    """One file of the output.

    Attributes:
        path: relative to the output's root.
        crc32: of all its bytes (as in zlib).
        staged: the directory below ``_rmqha`` from which it moves to its place once the run is committed.
    """

    path: str
    topic: str
    messages: int
    bytes: int
    crc32: int
    staged: str


@dataclass
class ReplayReport:
    """The result of one run; everything in it is committed, see ``manifest``.

    Attributes:
        begin, end: the physical range that was replayed; the next run begins at ``end``.
        records: records walked over, before filters.
        messages: messages written.
        topics: totals by topic.
        files: files written.
        corrupt: damaged ranges that were left out.
        deleted: messages left out since their topic was deleted; before filters by tag and key.
        system: messages left out since their topic is a broker's own; 0 where topics are chosen.
        unmatched: topics that were asked for by name, of which neither this run nor an earlier one has a message.
        topics_met: if topics were asked for by name, those of the records that were read.
        not_inflated: messages whose body stayed compressed although decompression was asked for.
        unfinished: why reading ended where it did, if something follows there.
        bytes_asked_for: of the log, in the range.
        bytes_read: of them, and of the consume queues that told which to read.
        is_first: no earlier run has written to this output.
        manifest: its path; None if there was nothing new.
        master: where Spark ran the tasks; empty if there was nothing new.
    """

    begin: int
    end: int
    records: int = 0
    messages: int = 0
    topics: dict[str, TopicTotals] = field(default_factory=dict)
    files: list[OutputFile] = field(default_factory=list)
    corrupt: list[CorruptRange] = field(default_factory=list)
    deleted: int = 0
    system: int = 0
    unmatched: list[str] = field(default_factory=list)
    topics_met: set[str] = field(default_factory=set)
    not_inflated: int = 0
    unfinished: str = ""
    bytes_asked_for: int = 0
    bytes_read: int = 0
    is_first: bool = False
    manifest: str | None = None
    master: str = ""


class ReplayDamageError(CorruptLogError):
    """The log is damaged and the job was not told to skip; nothing of this run is in the output.

    Attributes:
        corrupt: every damaged range of the job's part of the log.
    """

    def __init__(self, corrupt: list[CorruptRange]) -> None:
        self.corrupt = corrupt
        listed = "; ".join(f"[{one.start}, {one.end}) {one.reason}" for one in corrupt[:10])
        more = f"; and {len(corrupt) - 10} more" if len(corrupt) > 10 else ""
        super().__init__(corrupt[0].start, f"{len(corrupt)} damaged range(s), nothing was written: {listed}{more}")


class UnplacedFilesError(StoreError):
    """A run is committed, but files of it are not in their places yet.

    Attributes:
        report: of that run; None: an earlier one's, which this one was to finish.
    """

    report: ReplayReport | None = None

    def __init__(self, problems: list[OSError], waiting_in: str) -> None:
        more = f" (and {len(problems) - 1} more directories)" if len(problems) > 1 else ""
        super().__init__(
            f"the run is committed, but files of it cannot be put in their places: {problems[0]}{more}. They wait in "
            f"{waiting_in}; repair that and run the same again, which moves them"
        )


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)
