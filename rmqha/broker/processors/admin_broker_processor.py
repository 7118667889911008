"""AdminBrokerProcessor: what mqadmin asks of a broker as a whole.

Source: spec: remoting §2.7 (25, 26, 305, 306, 316, 329, 907); rocketmq-all-4.9.8 AdminBrokerProcessor.java.
"""

import os
from functools import cached_property
from typing import Any, Final

import structlog

from rmqha.broker.replication import Replication
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec import java_json
from rmqha.codec.codes import CONFIG_ORIGINS_FIELD, RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.config import BrokerConfig
from rmqha.config.java_properties import format_property
from rmqha.config.reference import shown_config
from rmqha.log_limit import LogLimit
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.store.message_store import DefaultMessageStore

logger = structlog.get_logger()

_IN_SYNC: Final = "in-sync"
_EXPORTED: Final = (
    ("clientCallbackExecutorThreads", str(os.cpu_count() or 1)),
    ("filterServerNums", "0"),
    ("traceOn", "true"),
)
"""Keys that cannot be set here, as this broker is; mqadmin's exportConfigs fails without them, and useTLS.

That one is of a broker as a client, of name servers. The first one exportMetrics shows as the number of processors.
"""
_REFUSED: Final = (
    "rmqha takes no configuration from remote: change broker.conf, check it with 'rmqha config check', and restart"
)


class AdminBrokerProcessor:
    """Tells the configuration and the state of replication, and cleans when it is asked to."""

    def __init__(
        self, config: BrokerConfig, store: DefaultMessageStore, topics: TopicConfigManager, replication: Replication
    ) -> None:
        self._config: Final = config
        self._store: Final = store
        self._topics: Final = topics
        self._replication: Final = replication
        self._lines: Final = LogLimit()

    @cached_property
    def _config_text(self) -> bytes:
        """``key=value`` lines, as java.util.Properties reads them; few brokers are ever asked for them."""
        shown = [(key.name, value) for key, value, _ in shown_config(self._config)]
        use_tls = str(self._config.namesrv_tls_enable).lower()
        return "".join(f"{format_property(*one)}\n" for one in [*shown, *_EXPORTED, ("useTLS", use_tls)]).encode()

    @cached_property
    def _origins(self) -> str:
        """Of each key that was set, where: file and line, or the command line."""
        shown = shown_config(self._config)
        return java_json.dumps({key.name: origin for key, _, origin in shown if origin != "default"})

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes this processor answers."""
        dispatcher.register(RequestCode.UPDATE_BROKER_CONFIG, self.update_broker_config)
        dispatcher.register(RequestCode.GET_BROKER_CONFIG, self.get_broker_config)
        dispatcher.register(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, self.get_system_topic_list)
        dispatcher.register(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, self.clean_what_is_clean)
        dispatcher.register(RequestCode.CLEAN_UNUSED_TOPIC, self.clean_what_is_clean)
        dispatcher.register(RequestCode.DELETE_EXPIRED_COMMITLOG, self.delete_expired_commit_log)
        dispatcher.register(RequestCode.GET_BROKER_HA_STATUS, self.get_broker_ha_status)

    def update_broker_config(self, connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        """25: refused. Anybody who reaches the port could turn off what keeps messages safe."""
        self._lines.log(logger.warning, "broker_config.update_refused", by=connection.peer)
        return RemotingCommand(ResponseCode.NO_PERMISSION, remark=_REFUSED)

    def get_broker_config(self, _connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        """26: the whole configuration, as Java properties; it never changes. Beside it, where each key was set."""
        version = java_json.dumps({"counter": 0, "timestamp": 0})
        fields = {"version": version, CONFIG_ORIGINS_FIELD: self._origins}
        return RemotingCommand(ResponseCode.SUCCESS, ext_fields=fields, body=self._config_text)

    def get_system_topic_list(self, _connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        """305: topics that nobody may make, change or delete."""
        body = java_json.dumps({"topicList": self._topics.system_topics()}).encode()
        return RemotingCommand(ResponseCode.SUCCESS, body=body)

    def clean_what_is_clean(self, _connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        """306 and 316: queues whose messages are gone, and those of deleted topics, are cleaned in any case."""
        return RemotingCommand(ResponseCode.SUCCESS)

    def delete_expired_commit_log(self, connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        """329: delete expired files of the log whatever the hour."""
        self._lines.log(logger.info, "commit_log.cleaning_requested", by=connection.peer)
        self._store.cleaner.execute_delete_files_manually()
        return RemotingCommand(ResponseCode.SUCCESS)

    def get_broker_ha_status(self, _connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        """907, RocketMQ 5's: how replication goes."""
        facts, end = self._replication.facts(), self._store.max_offset
        is_master = self._store.role.is_master
        connections = [_connection_info(one, end) for one in (facts.get("ha") or {}).get("connections", ())]
        body: dict[str, Any] = {
            "haClientRuntimeInfo": self._client_info(facts.get("ha_client") or {}),
            "haConnectionInfo": connections,
            "inSyncSlaveNums": sum(one["inSync"] for one in connections),
            "master": is_master,
            "masterCommitLogMaxOffset": end if is_master else 0,
        }
        return RemotingCommand(ResponseCode.SUCCESS, body=java_json.dumps(body).encode())

    def _client_info(self, client: dict[str, Any]) -> dict[str, Any]:
        """When it was last read or written is not kept: 0."""
        return {
            "lastReadTimestamp": 0,
            "lastWriteTimestamp": 0,
            "masterAddr": client.get("master") or "",
            "masterFlushOffset": 0,
            "maxOffset": self._store.max_offset,
            "transferredByteInSecond": 0,
        }


def _connection_info(connection: dict[str, Any], end: int) -> dict[str, Any]:
    acknowledged = connection["slave_ack_offset"]
    return {
        "addr": connection["peer"],
        "diff": end - max(acknowledged, 0),
        "inSync": connection["state"] == _IN_SYNC,
        "slaveAckOffset": acknowledged,
        "transferFromWhere": connection["next_transfer_from_where"],
        "transferredByteInSecond": int(connection["rate_bytes_s"]),
    }
