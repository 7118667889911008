"""Header of the request by which a reply comes to who asked.

Source: spec: remoting §2.4 (324, 325), §2.8 (326).
"""

from dataclasses import dataclass

from rmqha.codec.headers import Int32, Int64


@dataclass(frozen=True, slots=True)
class ReplyMessageRequestHeader:
    """326 PUSH_REPLY_MESSAGE_TO_CLIENT: what the send of the reply said of it, and where it came from."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    born_host: str
    """``ip:port``, as ``store_host``."""
    store_host: str
    store_timestamp: Int64
    properties: str | None = None
    reconsume_times: Int32 = 0
    unit_mode: bool = False
