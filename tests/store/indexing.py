"""What the tests of the index share: messages with keys, and what is found by them."""

from typing import Final

import trio

from rmqha.codec.index_file import IndexHeader
from rmqha.codec.record.encoder import PreparedRecord
from rmqha.store.index_query import Query
from rmqha.store.message_store import DefaultMessageStore
from tests.store.helpers import message

ALWAYS: Final = (0, (1 << 63) - 1)


def uniq_key(number: int) -> str:
    """As Java's producers make them."""
    return f"7F000001527A4E0E2F2A6472{number >> 4:04X}{number:04X}"


def keyed(number: int, *, topic: str = "TopicTest", keys: str = "", sys_flag: int = 0) -> PreparedRecord:
    """A message with a unique key, and perhaps others."""
    properties = f"UNIQ_KEY\x01{uniq_key(number)}" + (f"\x02KEYS\x01{keys}" if keys else "")
    return message(f"{number}".encode(), topic=topic, properties=properties.encode(), sys_flag=sys_flag)


async def indexed(store: DefaultMessageStore) -> None:
    """Return when every message is dispatched and in the index."""
    with trio.fail_after(600):
        while store.reput_from_offset < store.max_offset or not store.index.is_complete:  # noqa: ASYNC110 - only tests wait
            await trio.sleep(0.01)


async def offsets_of(
    store: DefaultMessageStore,
    key: str,
    *,
    topic: str = "TopicTest",
    max_num: int = 64,
    times: tuple[int, int] = ALWAYS,
) -> list[int]:
    """Where the messages lie that a query finds."""
    result = await store.query_message(Query(topic, key, max_num, *times))
    return [store.physical_offset_of(view) for view in result.views]


def headers_of(store: DefaultMessageStore) -> list[IndexHeader]:
    """Of its index's files."""
    return [file.header for file in store.index.files]


def entries_of(store: DefaultMessageStore) -> list[int]:
    """Where in the log each entry of the index leads, oldest first."""
    return [offset for file in store.index.files for _, offset in [*file.last_entries()][::-1]]
