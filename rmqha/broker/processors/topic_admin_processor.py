"""TopicAdminProcessor: an operator makes, changes and deletes topics.

Source: spec: remoting §2.7 (17, 215); rocketmq-all-4.9.8 AdminBrokerProcessor.java, TopicValidator.java.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import structlog
import trio

from rmqha.broker.broker_stats_manager import BrokerStatsManager
from rmqha.broker.tables.topic_config import TopicConfig, decode_attributes
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec.admin_headers import CreateTopicRequestHeader, TopicRequestHeader
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import decode_header
from rmqha.codec.limits import topic_problem
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.route import QUEUE_NUMS_MAX
from rmqha.errors import RemoteProtocolError
from rmqha.log_limit import LogLimit
from rmqha.remoting.answers_in_turns import AnswersInTurns
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.store.message_store import DefaultMessageStore
from rmqha.waiting import wait_reached

logger = structlog.get_logger()

_PERM_MAX: Final = 15
_SAVED_S: Final = 4.0
"""mqadmin waits for five seconds."""
_FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")
_MESSAGE_TYPE: Final = "message.type"
_DEFAULTS: Final = frozenset({("cleanup.policy", "DELETE"), ("queue.type", "SimpleCQ")})
"""As every topic is here, whether or not its attributes say so."""


class TopicAdminProcessor:
    """Answers when the table that says so is durable, and name servers know it, as far as they are waited for."""

    def __init__(
        self,
        store: DefaultMessageStore,
        topics: TopicConfigManager,
        stats: BrokerStatsManager,
        *,
        answers: AnswersInTurns,
    ) -> None:
        self._store: Final = store
        self._topics: Final = topics
        self._stats: Final = stats
        self._answers: Final = answers
        self._lines: Final = LogLimit()

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes this processor answers."""
        dispatcher.register(RequestCode.UPDATE_AND_CREATE_TOPIC, self.update_and_create_topic)
        dispatcher.register(RequestCode.DELETE_TOPIC_IN_BROKER, self.delete_topic)

    def update_and_create_topic(self, connection: Connection, request: RemotingCommand) -> None:
        """17: make a topic, or change its queues and permissions."""
        header = decode_header(CreateTopicRequestHeader, request)
        self._check(header.topic)
        _check_numbers(header)
        config = TopicConfig(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm,
            header.topic_filter_type,
            header.topic_sys_flag,
            attributes=_attributes(self._topics.select(header.topic), header.attributes or ""),
        )
        self._answer(connection, request, header.topic, partial(self._update, config, connection.peer))

    def delete_topic(self, connection: Connection, request: RemotingCommand) -> None:
        """215: forget a topic and its consume queues; what the log holds of it goes with the log's files.

        Not while a peer may hold more than this log: the topic's messages, or the topic itself, would come with that.
        """
        topic = decode_header(TopicRequestHeader, request).topic
        self._check(topic)
        self._check_log()
        self._answer(connection, request, topic, partial(self._delete, topic, connection.peer))

    def _answer(
        self, connection: Connection, request: RemotingCommand, topic: str, change: Callable[[], Awaitable[None]]
    ) -> None:
        self._answers.answer(connection, request, change, settle=partial(self._when_saved, topic))

    def _check(self, topic: str) -> None:
        """Raises RemoteProtocolError: it is not for this broker, or not for anybody, to change this topic."""
        self._check_role()
        if problem := topic_problem(topic):
            raise RemoteProtocolError(problem)
        if self._topics.is_system_topic(topic):
            raise RemoteProtocolError(f"The topic[{topic}] is conflict with system topic.")

    def _check_role(self) -> None:
        if not self._store.role.is_master:
            raise RemoteProtocolError("Can't modify topic from slave broker, please execute it from master broker.")

    def _check_log(self) -> None:
        flags = self._store.running_flags
        if flags.is_peer_longer:
            raise RemoteProtocolError(f"no topic is deleted at present, as more of it may come: {flags.refusal()}")

    async def _update(self, config: TopicConfig, peer: str) -> None:
        self._check_role()  # it may have changed while others had their turns
        self._topics.update_topic_config(config)
        self._lines.log(logger.info, "topic.updated", topic=config.topic_name, by=peer, **_numbers_of(config))

    async def _delete(self, topic: str, peer: str) -> None:
        """Everything put until now is deleted, visible or not, and what is put later is not.

        So there must be no checkpoint between the look at the queues' ends and the deletion.
        """
        queue_ids = await self._store.queues.ids_of_in_turns(topic)
        self._check_role()
        self._check_log()
        config = self._topics.select(topic)
        queue_ids |= set(range(config.queue_nums if config is not None else 0))
        ends = {one: self._end_of(topic, one) for one in sorted(queue_ids)}
        ends = {queue_id: end for queue_id, end in ends.items() if end > 0}
        self._topics.expire_deleted()
        self._topics.delete_topic_config(topic, ends, before=self._store.max_offset)
        for queue_id, end in ends.items():
            self._store.commit_log.learn_queue_offset(topic, queue_id, end)
        self._stats.on_topic_deleted(topic)
        facts = {"topic": topic, "by": peer, "queues": len(ends), "before": self._store.max_offset}
        self._lines.log(logger.info, "topic.deleted", **facts)

    def _end_of(self, topic: str, queue_id: int) -> int:
        """Behind the positions of all that the log holds: a RocketMQ master may have begun again with fewer."""
        return max(self._store.next_queue_offset(topic, queue_id), self._store.queues.hidden.end_of((topic, queue_id)))

    async def _when_saved(self, topic: str) -> RemotingCommand:
        number = self._topics.made
        if await wait_reached(self._topics.saved, number, deadline=trio.current_time() + _SAVED_S):
            await wait_reached(self._topics.untold.told, number)
            return RemotingCommand(ResponseCode.SUCCESS)
        remark = (
            f"topic {topic} is changed, but topics.json could not be saved yet: it is tried again. Is the disk full, "
            "or does it not answer?"
        )
        return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=remark)


def _attributes(known: TopicConfig | None, changes: str) -> tuple[tuple[str, str], ...]:
    """Those that the topic has then: the kind of its messages, which clients go by, and what was there before.

    Raises:
        RemoteProtocolError: another one is to be set, and would have no effect.
    """
    attributes = dict(known.attributes) if known is not None else {}
    for change in filter(None, (part.strip() for part in changes.split(","))):
        name, _, value = change[1:].partition("=")
        if change[0] == "-":
            attributes.pop(name, None)
        elif change[0] == "+" and (name == _MESSAGE_TYPE or (name, value) in _DEFAULTS):
            attributes[name] = value
        else:
            others = ", ".join(f"{name}={value}" for name, value in sorted(_DEFAULTS))
            raise RemoteProtocolError(
                f"the attribute {change!r:.100} would have no effect here: leave it out (of RocketMQ 5's those taken "
                f"are {_MESSAGE_TYPE}, {others})"
            )
    return decode_attributes(attributes)


def _check_numbers(header: CreateTopicRequestHeader) -> None:
    """Raises RemoteProtocolError: no topic can be like that."""
    for name, nums in (("readQueueNums", header.read_queue_nums), ("writeQueueNums", header.write_queue_nums)):
        if not 1 <= nums <= QUEUE_NUMS_MAX:
            raise RemoteProtocolError(f"{name} is {nums}: a topic has 1 to {QUEUE_NUMS_MAX} queues")
    if not 0 <= header.perm <= _PERM_MAX:
        raise RemoteProtocolError(f"perm is {header.perm}: it is a sum of 8, 4 (read), 2 (write) and 1 (inherit)")
    if header.topic_filter_type not in _FILTER_TYPES:
        raise RemoteProtocolError(f"topicFilterType is {header.topic_filter_type!r:.40}, none of {_FILTER_TYPES}")


def _numbers_of(config: TopicConfig) -> dict[str, int]:
    return {
        "read_queue_nums": config.read_queue_nums,
        "write_queue_nums": config.write_queue_nums,
        "perm": config.perm,
    }
