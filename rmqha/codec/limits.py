"""Limits of a put, spec: commitlog §2.9. Each check returns the problem as a sentence, or an empty string."""

import re
from typing import Final

from rmqha.codec.record.layout import (
    BLANK_SIZE_MIN,
    PROPERTIES_SIZE_MAX,
    SCHEDULE_TOPIC,
    TOPIC_SIZE_MAX,
    is_legal_topic,
)
from rmqha.codec.remoting import FRAME_SIZE_MAX

STAMPS_SIZE_MAX: Final = 512 * 1024
"""Bytes of what a table tells of when its entries were changed; there are two such members at most."""
TABLE_SIZE_MAX: Final = FRAME_SIZE_MAX - 64 * 1024 - 2 * STAMPS_SIZE_MAX
"""Bytes of a broker's table, without these, that slaves, RocketMQ's too, can still fetch: an answer is one frame."""
GROUP_SIZE_MAX: Final = 255
_GROUP: Final = re.compile("[%|a-zA-Z0-9_-]+")

FORBIDDEN_SEND_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
"""Topics a producer may not send to (spec: remoting §2.4)."""


def topic_problem(topic: str) -> str:
    """A stored topic is not empty and holds only legal characters."""
    if not topic:
        return "the topic is empty"
    if len(topic) > TOPIC_SIZE_MAX:
        return f"the topic is longer than {TOPIC_SIZE_MAX} characters"
    if not is_legal_topic(topic.encode("ascii", "replace")):
        return f"the topic {topic!r} may only hold % | a-z A-Z 0-9 _ -"
    return ""


def group_problem(group: str) -> str:
    """As RocketMQ's clients check the name of a producer's or consumer's group (Validators.java, checkGroup)."""
    if not group:
        return "the group's name is empty"
    if len(group) > GROUP_SIZE_MAX:
        return f"the group's name is longer than {GROUP_SIZE_MAX} characters"
    if _GROUP.fullmatch(group) is None:
        return f"the group's name {group!r} may only hold % | a-z A-Z 0-9 _ -"
    return ""


def properties_problem(properties_size: int) -> str:
    """Properties have a 2-byte length; of a batch record, the merged ones count (RocketMQ lets that wrap)."""
    if properties_size > PROPERTIES_SIZE_MAX:
        return f"properties of {properties_size} bytes, at most {PROPERTIES_SIZE_MAX} can be stored"
    return ""


def body_problem(body_size: int, *, message_size_max: int) -> str:
    """Of a message that a client sends, or of a whole batch."""
    if body_size > message_size_max:
        return f"body of {body_size} bytes, maxMessageSize is {message_size_max}"
    return ""


def size_problem(record_size: int, *, file_size: int) -> str:
    """Of one record, or of all of a batch.

    What cannot fit into an empty file is refused; RocketMQ burns two files on it, and answers PUT_OK.
    """
    if record_size + BLANK_SIZE_MIN > file_size:
        return f"{record_size} bytes and {BLANK_SIZE_MIN} more do not fit into a commitlog file of {file_size}"
    return ""
