"""``rmqha log dump``: the messages of a store, one JSON object a line."""

import base64
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from rmqha.cli.errors import CliError
from rmqha.cli.options import time_option, words_option
from rmqha.cli.output import takes_unicode

if TYPE_CHECKING:
    from rmqha.codec.record.message import StoredMessage
    from rmqha.errors import ProtocolError
    from rmqha.store.log_reader import LogReader

_TOPICS_TOLD: Final = 20
_SETTLES_S: Final = 0.02
"""A record that a running broker is writing is whole after less."""


@click.command(
    epilog="""\b
Examples:
  rmqha log dump /data/s | head
  rmqha log dump /data/s --topic orders --tag new --since @2026-11-21T10:00 --until @-5m
  rmqha log dump /data/s --from-offset 1048576 --limit 1 --body
  rmqha log dump /data/s --key 4711 | jq -r .offsetMsgId

\b
Exit codes: 0 read to the end, 1 the log is corrupt at some place, or has no message of a topic that was named,
2 wrong usage.
"""
)
@click.argument("store")
@click.option("--topic", "topics", multiple=True, help="Only this topic; can be repeated.")
@click.option("--queue", "queue_ids", type=int, multiple=True, help="Only this queue id; can be repeated.")
@click.option("--tag", "tags", multiple=True, callback=words_option, help="Only this tag; can be repeated.")
@click.option("--key", "keys", multiple=True, callback=words_option,
              help="Only messages with this key, or with this UNIQ_KEY.")  # fmt: skip
@click.option("--since", callback=time_option, metavar="TIME", help="First store time: 2026-11-21T10:00, ms, -15m.")
@click.option("--until", callback=time_option, metavar="TIME", help="Store time before which to end.")
@click.option("--from-offset", type=click.IntRange(0), default=0, help="First physical offset; need not be a record's.")
@click.option("--to-offset", type=click.IntRange(0), help="Physical offset before which to end.")
@click.option("-n", "--limit", type=click.IntRange(1), help="End after so many messages.")
@click.option("--body", "with_body", is_flag=True, help="Add the body as text, or as base64 if it is not UTF-8.")
@click.option("--no-crc", is_flag=True, help="Do not check the bodies' CRCs.")
def dump(store: str, *, with_body: bool, **options: Any) -> None:
    """Print the messages of STORE as JSON lines, in the order of the log.

    STORE is a store's directory or its commitlog directory. The keys are: physicalOffset storeSize topic queueId
    queueOffset flag sysFlag bornTimestamp bornHost bornHostHex storeTimestamp storeHost storeHostHex reconsumeTimes
    preparedTransactionOffset bodyCRC bodyLength bodySha256 plainLength plainSha256 offsetMsgId msgId properties
    recordSha256 dispatch tagsCode.
    """
    from rmqha.cli.store_place import commit_log_directory, member_directory  # noqa: PLC0415
    from rmqha.errors import CorruptLogError  # noqa: PLC0415
    from rmqha.store.log_reader import LogReader, dump_line  # noqa: PLC0415
    from rmqha.store.os_disk import OsDisk  # noqa: PLC0415

    reader = LogReader(OsDisk(), commit_log_directory(store), wait=lambda: time.sleep(_SETTLES_S))
    problems: Counter[str] = Counter()
    topics = _TopicsSeen()
    if member := member_directory(store):
        click.echo(
            f"Note: only the old commitlog is read; its group's entries: 'rmqha dledger dump {member}'", err=True
        )
    try:
        for message in _selected(reader, topics, **options):
            line = dump_line(message, on_problem=lambda error: problems.update([_kind_of(error)]))
            if with_body:
                line |= _body(message)
            sys.stdout.write(json.dumps(line, ensure_ascii=not takes_unicode(), separators=(",", ":")) + "\n")
    except CorruptLogError as error:
        raise CliError(
            str(error), hint=f"all before it was printed; behind it: --from-offset {error.offset + 1}"
        ) from None
    finally:
        first, asked = topics.first_offset, options["from_offset"]
        if first is not None and 0 < asked < first:
            click.echo(f"Note: no message begins at {asked}; the first that was read begins at {first}", err=True)
        elif first is None and asked:
            click.echo(f"Note: no message begins at {asked} or behind, in what was read", err=True)
        for problem, count in problems.items():
            click.echo(f"Note: {count:,} bodies were not inflated (plainLength is null): {problem}", err=True)
    if problem := topics.problem(options["topics"]):
        raise CliError(problem, why=topics.describe(), hint="is the topic's name right?")


class _TopicsSeen:
    """The topics of what was read, whether it was printed or not."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._is_whole = False
        self.first_offset: int | None = None

    def note(self, messages: "Iterator[StoredMessage]") -> "Iterator[StoredMessage]":
        """The same messages; if the last of them is not reached, too little is known to judge."""
        for message in messages:
            self._names[message.topic] = None
            if self.first_offset is None:
                self.first_offset = message.physical_offset
            yield message
        self._is_whole = True

    def problem(self, wanted: tuple[str, ...]) -> str:
        """What to tell about topics that no message has; empty if there are none."""
        missing = [topic for topic in wanted if topic not in self._names]
        if not (self._is_whole and missing):
            return ""
        return f"no message of topic {', '.join(map(repr, missing))} is in what was read of this log"

    def describe(self) -> str:
        """Some of the topics that there are."""
        if not self._names:
            return "it holds no message"
        names = sorted(self._names)
        more = f" and {len(names) - _TOPICS_TOLD:,} more" if len(names) > _TOPICS_TOLD else ""
        return f"the topics in it are {', '.join(names[:_TOPICS_TOLD])}{more}"


def _kind_of(error: "ProtocolError") -> str:
    from rmqha.errors import LocalProtocolError  # noqa: PLC0415

    return str(error) if isinstance(error, LocalProtocolError) else "they are damaged, or too large"


def _selected(
    reader: "LogReader",
    topics_seen: _TopicsSeen,
    *,
    from_offset: int,
    to_offset: int | None,
    limit: int | None,
    no_crc: bool,
    since: int | None,
    until: int | None,
    **fields: tuple[Any, ...],
) -> Iterator["StoredMessage"]:
    from rmqha.cli.message_filter import MessageFilter  # noqa: PLC0415

    wanted = MessageFilter(since_ms=since, until_ms=until, **fields)
    for message in topics_seen.note(reader.messages(from_offset, end=to_offset, check_crc=not no_crc)):
        if wanted.takes(message):
            yield message
            limit = limit and limit - 1
            if limit == 0:
                return


def _body(message: "StoredMessage") -> dict[str, str]:
    from rmqha.codec.compression import inflate  # noqa: PLC0415
    from rmqha.errors import ProtocolError  # noqa: PLC0415

    try:
        body = inflate(message.body, message.sys_flag)
    except ProtocolError:
        body = message.body
    try:
        return {"body": body.decode("utf-8")}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(body).decode("ascii")}
