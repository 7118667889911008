"""RuntimeInfoProcessor: what a broker tells about itself to anybody who asks.

Source: spec: remoting §2.7 (28, 315); rocketmq-all-4.9.8 AdminBrokerProcessor.java.
"""

from collections.abc import Callable

from rmqha.broker.broker_stats_manager import BrokerStatsManager
from rmqha.broker.broker_status import BrokerStatus
from rmqha.broker.group import ReplicationGroup
from rmqha.broker.stats_item import DAY, HOUR, MINUTE
from rmqha.codec import java_json
from rmqha.codec.admin_headers import ViewBrokerStatsDataRequestHeader
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import decode_header
from rmqha.codec.host import host_of
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher


class RuntimeInfoProcessor:
    """Answers ``rmqha status``, mqadmin, and the brokers of the group."""

    def __init__(
        self,
        status: BrokerStatus,
        stats: BrokerStatsManager,
        group: ReplicationGroup,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._status = status
        self._stats = stats
        self._group = group
        self._clock = clock

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes this processor answers."""
        dispatcher.register(RequestCode.GET_BROKER_RUNTIME_INFO, self.get_broker_runtime_info)
        dispatcher.register(RequestCode.VIEW_BROKER_STATS_DATA, self.view_broker_stats_data)

    def get_broker_runtime_info(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """28: a table of strings. A broker that asks says who it is."""
        self._group.on_introduced(host_of(connection.peer), request.ext_fields, now=self._clock())
        body = java_json.dumps({"table": self._status.runtime_table()}).encode()
        return RemotingCommand(ResponseCode.SUCCESS, body=body)

    def view_broker_stats_data(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """315: one count, by the minute, the hour and the day."""
        header = decode_header(ViewBrokerStatsDataRequestHeader, request)
        found = self._stats.find(header.stats_name, header.stats_key)
        if found is None:
            remark = f"The stats <{header.stats_name:.100}> <{header.stats_key:.400}> not exist"
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=remark)
        spans = (("statsDay", DAY), ("statsHour", HOUR), ("statsMinute", MINUTE))
        item, what = found
        body = {name: self._stats.snapshot(item, span, what)._asdict() for name, span in spans}
        return RemotingCommand(ResponseCode.SUCCESS, body=java_json.dumps(body).encode())
