"""Directory names for topics, escaped as Hive and Spark do it, so that every reader finds the topic's name again."""

import re
from typing import Final

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]")
_AN_ESCAPE: Final = re.compile(r"%(?=[0-9A-Fa-f]{2})")
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_UNDERSCORE: Final = re.compile(r"^_")
_NAME_SIZE_MAX: Final = 255


def partition_directory(topic: str) -> str:
    """``topic=%25RETRY%25group`` for ``%RETRY%group``; ``|`` is escaped too, as not every file system has it.

    A name longer than file systems have is escaped as little as readers need: only what looks like an escape. One that
    is Hive's word for no value at all is escaped, too.
    """
    if topic == _NULL:
        return f"topic={_escaped(_UNDERSCORE, topic)}"
    name = f"topic={_escaped(_UNSAFE, topic)}"
    return name if len(name) <= _NAME_SIZE_MAX else f"topic={_escaped(_AN_ESCAPE, topic)}"


def _escaped(what: re.Pattern[str], topic: str) -> str:
    return what.sub(lambda match: f"%{ord(match[0]):02X}", topic)
