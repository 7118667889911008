"""The header of CONSUMER_SEND_MSG_BACK. Source: spec: remoting §2.5 (36)."""

from dataclasses import dataclass

from rmqha.codec.headers import Int32, Int64


@dataclass(frozen=True, slots=True)
class ConsumerSendMsgBackRequestHeader:
    """36 CONSUMER_SEND_MSG_BACK; ``offset`` is that of the message in the log.

    ``origin_topic`` is where it was first, which is not where it lies if it came again.
    """

    offset: Int64
    group: str
    delay_level: Int32
    origin_topic: str = ""
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
