"""RuntimeInfoProcessor: what a broker tells about itself to anybody who asks.

Source: spec: remoting §2.7 (28); rocketmq-all-4.9.8 AdminBrokerProcessor.java.
"""

from collections.abc import Callable

from rmqha.broker.broker_status import BrokerStatus
from rmqha.broker.group import ReplicationGroup
from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.host import host_of
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher


class RuntimeInfoProcessor:
    """Answers ``rmqha status``, mqadmin, and the brokers of the group."""

    def __init__(self, status: BrokerStatus, group: ReplicationGroup, *, clock: Callable[[], float]) -> None:
        self._status = status
        self._group = group
        self._clock = clock

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the code this processor answers."""
        dispatcher.register(RequestCode.GET_BROKER_RUNTIME_INFO, self.get_broker_runtime_info)

    def get_broker_runtime_info(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """28: a table of strings. A broker that asks says who it is."""
        self._group.on_introduced(host_of(connection.peer), request.ext_fields, now=self._clock())
        body = java_json.dumps({"table": self._status.runtime_table()}).encode()
        return RemotingCommand(ResponseCode.SUCCESS, body=body)
