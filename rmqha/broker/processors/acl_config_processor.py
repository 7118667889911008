"""AclConfigProcessor: changes of accounts from afar, where the operator wants that (50 to 54).

Source: rocketmq-all-4.9.8 AdminBrokerProcessor.java.
"""

import json
from collections.abc import Callable
from typing import Final

import structlog

from rmqha.broker.acl.client_access import ClientAccess
from rmqha.broker.acl.plain_acl_edit import (
    Change,
    delete_access_config,
    update_access_config,
    update_global_white_addrs,
)
from rmqha.codec.acl_headers import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import decode_header, encode_header
from rmqha.codec.remoting import RemotingCommand
from rmqha.config import BrokerConfig
from rmqha.errors import ConfigError
from rmqha.log_limit import LogLimit
from rmqha.remoting.answers_in_turns import AnswersInTurns
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher

logger = structlog.get_logger()

_CODES: Final = (
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
    RequestCode.DELETE_ACL_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
)
_REFUSED: Final = "rmqha takes no accounts from remote: change plain_acl.yml, which is read again when it changes"
_NOT_SHOWN: Final = "rmqha shows its accounts to nobody: they are in plain_acl.yml, beside the broker"
_SHOWN_SIZE_MAX: Final = 100
_PROBLEMS_TOLD: Final = 3
_REASON_SIZE_MAX: Final = 2000


class AclConfigProcessor:
    """Refuses all, unless ``aclRemoteChangesEnable``: who may change accounts could grant himself everything.

    Then it changes one file at a time, for administrators and for addresses from where all requests are taken. An
    account's own address is not enough: there it signs nothing, and may do all else. An answer of SUCCESS means that
    the change is durable, and counts. Accounts are shown to nobody (54), as in RocketMQ 4.9.8.
    """

    def __init__(
        self,
        config: BrokerConfig,
        access: ClientAccess,
        *,
        broker_name: str,
        address: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._access: Final = access
        self._permissions: Final = access.permissions if config.acl_remote_changes_enable else None
        self._cluster: Final = config.broker_cluster_name
        self._broker_name: Final = broker_name
        self._address: Final = address
        self._now_ms: Final = now_ms
        self._answers: Final = AnswersInTurns()
        self._lines: Final = LogLimit()

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes this processor answers."""
        for code in _CODES:
            dispatcher.register(code, self.refuse)
        if self._permissions is not None:
            dispatcher.register(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, self.refuse_to_show)
            dispatcher.register(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, self.update_and_create_access_config)
            dispatcher.register(RequestCode.DELETE_ACL_CONFIG, self.delete_access_config)
            dispatcher.register(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, self.update_global_white_addrs_config)
            dispatcher.register(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, self.get_broker_acl_config_version)

    def refuse(self, _connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        """50 to 54."""
        return RemotingCommand(ResponseCode.NO_PERMISSION, remark=_REFUSED)

    def refuse_to_show(self, _connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        """54: accounts have keys."""
        return RemotingCommand(ResponseCode.NO_PERMISSION, remark=_NOT_SHOWN)

    def update_and_create_access_config(self, connection: Connection, request: RemotingCommand) -> None:
        """50: an account is to be like this."""
        header = decode_header(CreateAccessConfigRequestHeader, request)
        failed = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        self._change(connection, request, update_access_config(header), header.access_key, failed=failed)

    def delete_access_config(self, connection: Connection, request: RemotingCommand) -> None:
        """51: there is to be no such account."""
        header = decode_header(DeleteAccessConfigRequestHeader, request)
        failed = ResponseCode.DELETE_ACL_CONFIG_FAILED
        self._change(connection, request, delete_access_config(header), header.access_key, failed=failed)

    def update_global_white_addrs_config(self, connection: Connection, request: RemotingCommand) -> None:
        """53: from these addresses all requests are to be taken."""
        header = decode_header(UpdateGlobalWhiteAddrsConfigRequestHeader, request)
        failed = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        self._change(connection, request, update_global_white_addrs(header), header.global_white_addrs, failed=failed)

    def _change(
        self, connection: Connection, request: RemotingCommand, change: Change, what: str, *, failed: ResponseCode
    ) -> None:
        permissions = self._permissions
        assert permissions is not None, "it has registered for that"

        asker = self._access.asker_of(connection, request)

        async def make() -> RemotingCommand:
            permissions.check_administrator(asker, request.code)
            facts = {"code": request.code, "what": what[:_SHOWN_SIZE_MAX], "by": connection.peer}
            try:
                await permissions.change(change, now_ms=self._now_ms())
            except ConfigError as error:
                reason = "; ".join(error.problems[:_PROBLEMS_TOLD])[:_REASON_SIZE_MAX]
                self._lines.log(logger.warning, "acl.not_changed", reason=reason, **facts)
                return RemotingCommand(failed, remark=reason)
            self._lines.log(logger.info, "acl.changed", **facts)
            return RemotingCommand(ResponseCode.SUCCESS)

        self._answers.answer(connection, request, make)

    def get_broker_acl_config_version(self, _connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        """52: whose accounts these are, and how often each file was changed from afar."""
        assert self._permissions is not None, "it has registered for that"
        versions = self._permissions.versions
        none = {"counter": 0, "timestamp": 0}
        first = next((one for path, one in versions.items() if path.endswith("/conf/plain_acl.yml")), none)
        header = GetBrokerAclConfigResponseHeader(
            version=json.dumps(first, separators=(",", ":")),
            all_acl_file_version=json.dumps(versions, separators=(",", ":")),
            broker_name=self._broker_name,
            broker_addr=self._address,
            cluster_name=self._cluster,
        )
        return RemotingCommand(ResponseCode.SUCCESS, ext_fields=encode_header(header))
