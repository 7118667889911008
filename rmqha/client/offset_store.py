"""OffsetStore: how far a group has got, kept by the brokers (RocketMQ: RemoteBrokerOffsetStore)."""

from collections.abc import Mapping

from rmqha.client.message import MessageQueue
from rmqha.client.pull_api import PullApi
from rmqha.errors import MQClientError, RmqhaError


class OffsetStore:
    """Asks each queue's master, or a slave while it does not answer."""

    def __init__(self, api: PullApi, *, group: str | None) -> None:
        self._api = api
        self._group = group

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit them all; a broker that failed once is not asked again.

        Raises:
            MQClientError: no group was named.
            RemotingError, MQBrokerError: a broker does not answer, or refuses. The other brokers have it.
        """
        self._check_group()
        failed: dict[str, RmqhaError] = {}
        for queue, offset in offsets.items():
            if queue.broker_name in failed:
                continue
            try:
                await self._api.commit_offset(queue, offset)
            except RmqhaError as error:
                failed[queue.broker_name] = error
        if failed:
            raise next(iter(failed.values()))

    async def read(self, queue: MessageQueue) -> int | None:
        """What was committed; None, or 0 if the queue begins there, if nothing was.

        Raises:
            MQClientError: no group was named.
            RemotingError, MQBrokerError: no answer, or a refusal.
        """
        self._check_group()
        return await self._api.committed_offset(queue)

    def _check_group(self) -> None:
        if self._group is None:
            raise MQClientError("offsets are committed for a group: name one when the consumer is opened (group=)")
