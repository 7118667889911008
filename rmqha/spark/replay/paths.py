"""Directory names for topics, escaped as Hive and Spark do it, so that every reader finds the topic's name again."""

import re
from typing import Final

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]")


def partition_directory(topic: str) -> str:
    """``topic=%25RETRY%25group`` for ``%RETRY%group``; ``|`` is escaped too, as not every file system has it."""
    return "topic=" + _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", topic)
