"""ConsumerManageProcessor: how the consumers of a group share out queues: who is there (38), and locks (41, 42).

A slave answers as well: consumers ask it when its master is gone.

Source: spec: remoting §2.5, §6 rows 11 and 32; rocketmq-all-4.9.8 ConsumerManageProcessor.java,
AdminBrokerProcessor.java.
"""

import trio

from rmqha.broker.acl.client_access import ClientAccess
from rmqha.broker.clients.consumer_manager import ConsumerManager
from rmqha.broker.clients.rebalance_lock_manager import RebalanceLockManager
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.group_headers import ConsumerGroupRequestHeader
from rmqha.codec.headers import decode_header
from rmqha.codec.host import host_of
from rmqha.codec.lock_batch import LockBatchRequestBody, decode_lock_batch, encode_lock_ok
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher


class ConsumerManageProcessor:
    """Any client may ask for any group; where there are accounts, for its own, and in its own name."""

    def __init__(self, consumers: ConsumerManager, access: ClientAccess) -> None:
        self._consumers = consumers
        self._access = access
        self._locks = RebalanceLockManager()

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes this processor answers."""
        dispatcher.register(RequestCode.GET_CONSUMER_LIST_BY_GROUP, self.get_consumer_list_by_group)
        dispatcher.register(RequestCode.LOCK_BATCH_MQ, self.lock_batch_mq)
        dispatcher.register(RequestCode.UNLOCK_BATCH_MQ, self.unlock_batch_mq)

    def get_consumer_list_by_group(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """38: the clients of a group, the one that asks among them as soon as its heartbeat is answered."""
        name = decode_header(ConsumerGroupRequestHeader, request).consumer_group
        group = self._consumers.find_group(name)
        if group is None:
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=f"no consumer for this group, {name[:80]}")
        return RemotingCommand(ResponseCode.SUCCESS, body=group.client_ids)

    def lock_batch_mq(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """41: a client wants to consume queues alone, or to go on doing so; it is told which it may."""
        asked = self._asked(connection, request)
        locked = self._locks.try_lock_batch(
            asked.consumer_group,
            asked.mq_set,
            client_id=asked.client_id,
            host=host_of(connection.peer),
            now=trio.current_time(),
        )
        return RemotingCommand(ResponseCode.SUCCESS, body=encode_lock_ok(locked))

    def unlock_batch_mq(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """42: a client is done with queues; that is fine if they are not its own."""
        asked = self._asked(connection, request)
        self._locks.unlock_batch(asked.consumer_group, asked.mq_set, client_id=asked.client_id)
        return RemotingCommand(ResponseCode.SUCCESS)

    def _asked(self, connection: Connection, request: RemotingCommand) -> LockBatchRequestBody:
        asked = decode_lock_batch(request.body)
        self._access.check_client_id(asked.client_id, connection, self._access.asker_of(connection, request))
        return asked
