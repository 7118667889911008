"""Which messages of a log are deleted: rmqha's brokers note it beside their topics, while the log still holds them."""

import logging
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import pyarrow as pa
from pyarrow import fs

from rmqha.codec import java_json
from rmqha.codec.deleted_topic import DeletedTopic, decode_deleted
from rmqha.errors import RemoteProtocolError, StoreError
from rmqha.spark.fields import Fields, Mask
from rmqha.spark.segments import is_directory, store_root

logger = logging.getLogger("rmqha.spark")

Deleted = Mapping[str, DeletedTopic]
"""By topic."""


def read_deleted(filesystem: fs.FileSystem, path: str) -> Deleted:
    """What is deleted of the store whose root, log or DLedger member this is; nothing if no table of topics is there.

    Where it is missing, its backup tells, as to a broker. A store that has neither, though it is more than a copy of a
    log, is told of once.

    Raises:
        StoreError: the table cannot be understood, and messages that are deleted would be taken for others.
    """
    root = store_root(filesystem, path)
    table = f"{root}/config/topics.json"
    for file in (table, f"{table}.bak"):
        try:
            with filesystem.open_input_stream(file) as stream:
                deleted = decode_deleted(java_json.loads(stream.read()).get("deletedTopics"))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(f"{file}, which says what topics are deleted, cannot be read: {error}") from error
        except (RemoteProtocolError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise StoreError(
                f"{file} does not say which topics are deleted: {error!r:.200}; start the broker, which repairs it, or "
                "include what is deleted (includeDeleted, --include-deleted)"
            ) from None
        if file != table:
            _tell_once(f"{table} is missing: its backup says which topics are deleted, and lacks the last change")
        return deleted
    if any(is_directory(filesystem, f"{root}/{part}") for part in ("config", "consumequeue")):
        _tell_once(f"{table} is missing: messages of topics that were deleted cannot be told from others")
    return {}


@lru_cache(maxsize=256)
def _tell_once(problem: str) -> None:
    """A stream asks again for each batch."""
    logger.warning("topics_table.missing: %s", problem)


def shown_rows(fields: Fields, topics: pa.DictionaryArray, deleted: Deleted) -> Mask:
    """Rows that are not deleted."""
    shown = np.ones(len(topics), np.bool_)
    for code, topic in enumerate(topics.dictionary.to_pylist()):
        if (one := deleted.get(topic.decode(errors="replace"))) is None:
            continue
        rows = np.flatnonzero(topics.indices.to_numpy() == code)
        ends = np.array([one.ends.get(queue_id, 0) for queue_id in fields.column("queue_id")[rows].tolist()], np.int64)
        is_before = fields.column("physical_offset")[rows] < one.before
        shown[rows] = ~(is_before & (fields.column("queue_offset")[rows] < ends))
    return shown
