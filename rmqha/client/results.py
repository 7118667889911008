"""How sends and pulls end."""

from enum import Enum
from typing import NamedTuple

from rmqha.client.message import MessageExt, MessageQueue
from rmqha.codec.codes import ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.send_answers import decode_send_response
from rmqha.errors import MQBrokerError, RemoteProtocolError, RemotingConnectError, RemotingError, RmqhaError


class SendStatus(Enum):
    """How safe a stored message is. In all four cases it *is* in the master's log and will be consumed."""

    SEND_OK = ResponseCode.SUCCESS
    """As safe as the broker is configured to make it."""
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    """Not flushed to the master's disk in time."""
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
    """Not acknowledged by enough slaves in time."""
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    """Too few slaves are connected, or they are too far behind."""


_STATUS_BY_CODE = {int(status.value): status for status in SendStatus}


class SendResult(NamedTuple):
    """The broker's answer to a send.

    Attributes:
        msg_id: the id that consumers will show (UNIQ_KEY); for a batch all of them, joined by commas.
        offset_msg_id: where the message lies; for a batch all of them, joined by commas.
        queue_offset: its place in ``queue``; for a batch that of the first message. A delayed message's belongs to
            the broker's own schedule queue.
    """

    status: SendStatus
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None

    @property
    def is_ok(self) -> bool:
        """Whether the message is as safe as the broker is configured to make it."""
        return self.status is SendStatus.SEND_OK


SendOutcome = SendResult | RmqhaError
"""What becomes of a send in a pipeline. An error is a value there, with the same attributes as when raised."""


class PullStatus(Enum):
    """How a pull ended."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW_MSG = ResponseCode.PULL_NOT_FOUND
    """The queue ends here for now."""
    NO_MATCHED_MSG = ResponseCode.PULL_RETRY_IMMEDIATELY
    """Nothing passed the filter; continue at ``next_begin_offset``."""
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED
    """The offset lies outside the queue; ``next_begin_offset`` is the nearest inside."""


PULL_STATUS_BY_CODE = {int(status.value): status for status in PullStatus}


class PullResult(NamedTuple):
    """The broker's answer to a pull. ``messages`` have passed the tag filter; the queue is [min, max) now."""

    status: PullStatus
    messages: list[MessageExt]
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggest_which_broker_id: int


def read_send_outcome(outcome: RemotingCommand | RemotingError, queue: MessageQueue, msg_id: str) -> SendOutcome:
    """A send's answer as a value."""
    if isinstance(outcome, RemotingError):
        return outcome
    status = _STATUS_BY_CODE.get(outcome.code)
    if status is None:
        return broker_error(outcome)
    try:
        header = decode_send_response(outcome)
    except RmqhaError as error:
        return error
    queue = queue if header.queue_id == queue.queue_id else queue._replace(queue_id=header.queue_id)
    return SendResult(status, msg_id, header.msg_id, queue, header.queue_offset, header.transaction_id)


def may_be_stored(error: RmqhaError) -> bool:
    """Whether an error that a send ended with leaves open what became of the message."""
    if isinstance(error, MQBrokerError):
        return error.code == ResponseCode.SYSTEM_ERROR
    if isinstance(error, RemoteProtocolError):  # of what answered a send, whose status may have been SUCCESS
        return True
    return isinstance(error, RemotingError) and not isinstance(error, RemotingConnectError)


def broker_error(response: RemotingCommand) -> MQBrokerError:
    """What a broker's refusal becomes."""
    try:
        code = ResponseCode(response.code)
    except ValueError:
        return MQBrokerError(response.code, response.remark)
    return MQBrokerError(code, response.remark)
