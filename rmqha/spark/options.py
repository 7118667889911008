"""What to read: the filters and choices that every reader (Python, Spark, job) shares."""

import re
from dataclasses import dataclass
from enum import StrEnum

from rmqha.codec.record.layout import BARRIER_TOPIC, SCHEDULE_TOPIC, is_legal_topic
from rmqha.errors import ConfigError

SPLIT_BYTES = 128 << 20
INFLATED_BYTES_MAX = 32 << 20

SYSTEM_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        BARRIER_TOPIC,
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
"""Topics in which the broker keeps its own books.  Source: spec: commitlog §2.10"""

SYSTEM_PREFIXES = ("rmq_sys_", "%RETRY%", "%DLQ%")
"""Retry and dead-letter topics hold second copies of ordinary messages."""


def is_utf8(text: str) -> bool:
    """Whether a text, perhaps of the command line, can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class OnCorrupt(StrEnum):
    """What to do with bytes that are no good record where one must be."""

    FAIL = "fail"
    SKIP = "skip"
    STOP = "stop"


@dataclass(frozen=True)
class ReadOptions:
    """Which messages, which columns. Offsets are physical; a record belongs to the range its first byte is in.

    Attributes:
        columns: names out of ``schema.COLUMNS``, in the wanted order; None: all of them.
        topics: only these topics (a system topic named here is delivered).
        topic_pattern: regular expression the whole topic name must match.
        queues: only these queue ids.
        keys: messages that have one of these among the words of ``KEYS``, or as ``UNIQ_KEY``.
        tags: messages with one of these tags.
        starting_offset: first physical offset; None: the oldest file's start.
        ending_offset: records starting at or after it are left out; None: the last whole record. The log must reach it.
        starting_timestamp_ms: start at the first record stored at or after this time. The log's store times
            are taken as ascending: the time is turned into a physical offset once, rows are not compared.
        ending_timestamp_ms: end before the first record stored at or after this time.
        include_system_topics: also deliver scheduled, half, retry, dead-letter and other topics of the broker.
        include_deleted: also deliver messages whose topic was deleted, as long as the log holds them. A copy of the log
            without the store's ``config/topics.json`` does not tell which these are.
        use_consume_queues: where topics are chosen, pass over what the store's consume queues name as other topics'.
            Damage there is not met.
        check_crc: verify each delivered body.
        on_corrupt: fail (CorruptLogError), skip to the next good record, or stop there; see ``ReadReport.corrupt``.
        decompress: deliver bodies inflated; bit 0 of ``sysFlag`` then says whether ``body`` *still* is compressed.
        inflated_bytes_max: a body that would grow larger stays as stored.
        broker_name: value of the ``brokerName`` column.
    """

    columns: tuple[str, ...] | None = None
    topics: tuple[str, ...] | None = None
    topic_pattern: str | None = None
    queues: tuple[int, ...] | None = None
    keys: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    starting_offset: int | None = None
    ending_offset: int | None = None
    starting_timestamp_ms: int | None = None
    ending_timestamp_ms: int | None = None
    include_system_topics: bool = False
    include_deleted: bool = False
    use_consume_queues: bool = True
    check_crc: bool = True
    on_corrupt: OnCorrupt = OnCorrupt.FAIL
    decompress: bool = False
    inflated_bytes_max: int = INFLATED_BYTES_MAX
    broker_name: str = "broker"

    def __post_init__(self) -> None:
        """Check what only a look at the whole tells.

        Raises:
            ConfigError: the pattern is no regular expression, or there are topics, too; a topic can be none; a word is
                not UTF-8, or empty, as none of a message is.
        """
        pattern = None if self.topic_pattern is None else (self.topic_pattern,)
        choices = {"topic": self.topics, "topic pattern": pattern, "key": self.keys, "tag": self.tags}
        for name, choice in choices.items():
            if "" in (choice or ()):
                raise ConfigError(f"a {name} is empty, as an unset variable is: leave it out to read all")
        for word in (*(self.topics or ()), *(self.keys or ()), *(self.tags or ()), self.broker_name):
            if not is_utf8(word):
                raise ConfigError(f"{word!r} is not UTF-8, as all names in a log are")
        for topic in self.topics or ():
            if not is_legal_topic(topic.encode()):
                raise ConfigError(f"{topic!r} can be no topic: one has up to 127 of % | a-z A-Z 0-9 _ -, and no others")
        if self.topics is not None and self.topic_pattern is not None:
            raise ConfigError("give topics or a topic pattern, not both")
        try:
            re.compile(self.topic_pattern or "")
        except re.error as error:
            raise ConfigError(f"topic pattern {self.topic_pattern!r} is no regular expression: {error}") from None
