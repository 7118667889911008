"""KVConfigProcessor: what operators keep in a name server, and its configuration (100-102, 219, 318, 319).

Source: spec: remoting §2.3; rocketmq-all-4.9.8 DefaultRequestProcessor.java.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import decode_header, encode_header
from rmqha.codec.host import host_of
from rmqha.codec.namesrv_headers import (
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    KVConfigRequestHeader,
    PutKVConfigRequestHeader,
)
from rmqha.codec.remoting import RemotingCommand
from rmqha.namesrv.kv_config_manager import KVConfigManager
from rmqha.remoting.answers_in_turns import AnswersInTurns
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.waiting import wait_reached

_SAVED_S: Final = 4.0
"""mqadmin waits for five seconds."""


class KVConfigProcessor:
    """A change is answered once it is on the disk, or when that takes too long."""

    def __init__(self, kv_config: KVConfigManager, *, properties: Callable[[], str]) -> None:
        """Take nothing yet.

        Args:
            kv_config: the names and values.
            properties: this name server's configuration, as Java properties.
        """
        self._kv_config: Final = kv_config
        self._properties: Final = properties
        self._saving: Final = AnswersInTurns()

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes of mqadmin."""
        dispatcher.register(RequestCode.PUT_KV_CONFIG, self.put_kv_config)
        dispatcher.register(RequestCode.GET_KV_CONFIG, self.get_kv_config)
        dispatcher.register(RequestCode.DELETE_KV_CONFIG, self.delete_kv_config)
        dispatcher.register(RequestCode.GET_KVLIST_BY_NAMESPACE, self.get_kv_list_by_namespace)
        dispatcher.register(RequestCode.UPDATE_NAMESRV_CONFIG, self.update_config)
        dispatcher.register(RequestCode.GET_NAMESRV_CONFIG, self.get_config)

    def put_kv_config(self, connection: Connection, request: RemotingCommand) -> None:
        """100: keep a value."""
        header = decode_header(PutKVConfigRequestHeader, request)
        host = host_of(connection.peer)
        self._kv_config.put_kv_config(header.namespace, header.key, value=header.value, host=host)
        self._answer_when_saved(connection, request)

    def delete_kv_config(self, connection: Connection, request: RemotingCommand) -> None:
        """102: forget a value, if there is one."""
        header = decode_header(KVConfigRequestHeader, request)
        self._kv_config.delete_kv_config(header.namespace, header.key)
        self._answer_when_saved(connection, request)

    def _answer_when_saved(self, connection: Connection, request: RemotingCommand) -> None:
        when_saved = partial(self._when_saved, self._kv_config.changes)
        self._saving.answer(connection, request, _nothing, settle=when_saved)

    async def _when_saved(self, changes: int) -> RemotingCommand:
        kept = self._kv_config
        if await wait_reached(kept.saved, changes, deadline=trio.current_time() + _SAVED_S):
            return RemotingCommand(ResponseCode.SUCCESS)
        why = kept.problem or "does the disk not answer?"
        remark = f"it is changed, but not saved yet, which is tried again: {why}"
        return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=remark)

    def get_kv_config(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """101: a value."""
        header = decode_header(KVConfigRequestHeader, request)
        value = self._kv_config.get_kv_config(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return RemotingCommand(ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return RemotingCommand(ResponseCode.SUCCESS, ext_fields=encode_header(GetKVConfigResponseHeader(value)))

    def get_kv_list_by_namespace(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """219: all values of a namespace."""
        namespace = decode_header(GetKVListByNamespaceRequestHeader, request).namespace
        table = self._kv_config.get_kv_list_by_namespace(namespace)
        if not table:
            remark = f"No config item, Namespace: {namespace}"
            return RemotingCommand(ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return RemotingCommand(ResponseCode.SUCCESS, body=java_json.dumps({"table": table}).encode())

    def update_config(self, _connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        """318: nobody changes a configuration from afar."""
        remark = "a name server's configuration is changed where it is started, not from afar"
        return RemotingCommand(ResponseCode.NO_PERMISSION, remark=remark)

    def get_config(self, _connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        """319: the keys that RocketMQ knows."""
        return RemotingCommand(ResponseCode.SUCCESS, body=self._properties().encode())


async def _nothing() -> None:
    """A change is made at once."""
    await trio.lowlevel.checkpoint()
