"""Have brokers show what they have taken: with ASYNC_FLUSH a message is seen once it is flushed, up to 10 s later."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from rmqha.cli.ask import ask_broker, no_broker_error
from rmqha.cli.errors import SilentError, UnreachableError
from rmqha.codec.admin_headers import TopicRequestHeader
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import encode_header
from rmqha.codec.remoting import RemotingCommand

_ANSWER_S: Final = 5.0


def wait_stored_is_seen(addresses: Sequence[str], topic: str) -> None:
    """Ask each broker where the topic's queues end: it answers when all that it took is flushed and dispatched.

    At most half a second later, if its disk or its group is not that fast. A RocketMQ broker does not wait. What goes
    wrong is for those to tell who read.

    Raises:
        CliError: one of the addresses is a name server's.
    """
    request = RemotingCommand(RequestCode.GET_TOPIC_STATS_INFO, ext_fields=encode_header(TopicRequestHeader(topic)))
    for address in addresses:
        with suppress(UnreachableError):
            if _is_no_broker(address, request):
                raise no_broker_error(address, timeout_s=_ANSWER_S)


def _is_no_broker(address: str, request: RemotingCommand) -> bool:
    try:
        answer = ask_broker(address, request, timeout_s=_ANSWER_S)
    except SilentError:  # as a name server of RocketMQ's is: this one is told from a broker then
        answer = ask_broker(address, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO), timeout_s=_ANSWER_S)
    return answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
