"""PopMessageProcessor: POP of RocketMQ 5 is not served; the operator is told who asks for it.

Such a consumer gets nothing, and takes the answer for one that may be better the next time: only its own log has it.

Source: rocketmq-all-5.3.3 RequestCode.java, PopMessageRequestHeader.java, QueryAssignmentRequestBody.java.
"""

from collections.abc import Mapping
from typing import Any, Final

import structlog

from rmqha.codec import java_json
from rmqha.codec.host import host_of
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.usual.sends import Request
from rmqha.errors import RemoteProtocolError
from rmqha.log_limit import RepeatLimit
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher, refuse_unknown

logger = structlog.get_logger()

_QUERY_ASSIGNMENT: Final = 400
"""A consumer that may pop asks which queues are its own, and in which way it gets their messages."""
_CODES: Final = (_QUERY_ASSIGNMENT, *range(200050, 200057), 200151)
"""The others: POP_MESSAGE, ACK_MESSAGE, PEEK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME, NOTIFICATION, POLLING_INFO,
POP_ROLLBACK and BATCH_ACK_MESSAGE."""
_NAME_SIZE_MAX: Final = 255
_BODY_SIZE_MAX: Final = 4096
_REASON: Final = (
    "POP of RocketMQ 5 is not there, and this consumer gets nothing: a push consumer with setClientRebalance(false) "
    "has to do without that, as by default; a client of RocketMQ's proxy (gRPC) has to be a remoting client. "
    "docs/clients.md, 'POP consumers of RocketMQ 5'"
)


class PopMessageProcessor:
    """Refuses these requests as any that is not known.

    Attributes:
        refused: how many, since the start.
    """

    def __init__(self) -> None:
        self.refused = 0
        self._lines: Final = RepeatLimit()

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes of POP."""
        dispatcher.register_batch(_CODES, self.refuse)

    def refuse(self, connection: Connection, requests: list[Request]) -> None:
        """A host has one line in ten minutes for each of its groups; all together get one a second."""
        self.refused += len(requests)
        for request in requests:
            self._tell(connection.peer, request.command)
        refuse_unknown(connection, requests)

    def _tell(self, peer: str, request: RemotingCommand) -> None:
        said = _body_of(request) if request.code == _QUERY_ASSIGNMENT else request.ext_fields
        group, topic = (_name(said.get(field)) for field in ("consumerGroup", "topic"))
        facts = {"peer": peer, "group": group, "topic": topic, "code": request.code, "reason": _REASON}
        self._lines.log(logger.warning, "pop.refused", key=(host_of(peer), group), **facts)


def _body_of(request: RemotingCommand) -> Mapping[str, Any]:
    if len(request.body) > _BODY_SIZE_MAX:
        return {}
    try:
        body = java_json.loads(request.body)
    except RemoteProtocolError:
        return {}
    return body if isinstance(body, dict) else {}


def _name(said: object) -> str | None:
    return said[:_NAME_SIZE_MAX] if isinstance(said, str) else None
