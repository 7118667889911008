"""MetadataService: saves the broker's tables, and hands them to slaves (requests 21, 43, 45, 201, 21021).

Source: spec: ha §12, remoting §2.6; rocketmq-all-4.9.8 SlaveSynchronize.java, AdminBrokerProcessor.java.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

import structlog
import trio

from rmqha.broker.config_files import (
    CONSUMER_OFFSET,
    DELAY_OFFSET,
    QUEUE_ENDS,
    SUBSCRIPTION_GROUP,
    TOPICS,
    ConfigFiles,
    encode_in_turns,
)
from rmqha.broker.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.queue_ends import QueueEnds
from rmqha.broker.topic_config_manager import TopicConfigManager
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import StoreReadError, StoreWriteError
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.waiting import DeadlineService

logger = structlog.get_logger()

_PAUSE_SHARE: Final = 3
"""After each save a pause so many times as long: topics made meanwhile share the next, which may be a large one."""
_PAUSE_MAX_S: Final = 0.5
"""A disk that hung for a minute may be well again; sends to new topics wait two seconds for a save."""

_NO_GROUPS: dict[str, Any] = {"dataVersion": {"counter": 0, "timestamp": 0}, "subscriptionGroupTable": {}}
_NO_DELAYS: dict[str, Any] = {"offsetTable": {}}


class SavedTable(Protocol):
    """A table that has its own file."""

    dirty: bool
    """It has changed since it was saved."""

    async def to_json_in_turns(self) -> dict[str, Any]:
        """The table as its file holds it. It may change meanwhile, and is dirty then; everybody else goes on."""
        ...


class MetadataService:
    """Topics and consumer offsets on disk and on the wire, and the ends of queues without messages.

    Delay offsets and subscription groups are kept as a store brought them: this version writes neither.

    Attributes:
        topics: which there are, with how many queues.
        offsets: how far consumer groups are.
        queue_ends: where queues end that hold no message.
    """

    def __init__(
        self,
        files: ConfigFiles,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        queue_ends: QueueEnds,
        *,
        interval_s: float,
    ) -> None:
        self._files = files
        self.topics: Final = topics
        self.offsets: Final = offsets
        self.queue_ends: Final = queue_ends
        self._interval_s = interval_s
        self._not_saved = ""
        self._asking: set[Connection] = set()
        self._making = trio.Lock()
        self._deadlines = DeadlineService(topics.saved.deadlines)
        self._changed = trio.Event()
        self._saving = trio.Lock()
        topics.on_put = queue_ends.on_learned = self._on_change

    def _on_change(self) -> None:
        self._changed.set()

    def load(self) -> None:
        """Read what was saved; a file that is missing or broken costs nothing that the log does not give back."""
        self._files.load(TOPICS, self.topics.replace_from_json)
        self._files.load(CONSUMER_OFFSET, self.offsets.replace_from_json)
        self._files.load(QUEUE_ENDS, self.queue_ends.merge_from_json)

    async def run(self) -> None:
        """Save what changed, every ``interval_s``, and at once topics that are made and ends that are learned.

        As in RocketMQ a new topic is saved before a send to it is answered. A RocketMQ broker that opens our store
        knows no other topics than the saved ones; ours finds them in the log, but not how many queues they had.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deadlines.run)
            while True:
                with trio.move_on_after(self._interval_s):
                    await self._changed.wait()
                self._changed = trio.Event()
                begun_at = trio.current_time()
                await self.save()
                await trio.sleep(min(_PAUSE_SHARE * (trio.current_time() - begun_at), _PAUSE_MAX_S))

    async def save(self) -> None:
        """Save what changed. What fails is tried again, and told once; sends that need the topic are refused."""
        try:
            async with self._saving:
                await self._save_topics()
                await self.queue_ends.note_gone()
                await self._save_if_dirty(self.queue_ends, QUEUE_ENDS)
                await self._save_if_dirty(self.offsets, CONSUMER_OFFSET)
        except (StoreWriteError, StoreReadError) as error:
            if self._not_saved != str(error):
                self._not_saved = str(error)
                logger.warning("metadata.not_saved", reason=self._not_saved)
        else:
            self._not_saved = ""

    async def _save_topics(self) -> None:
        made = self.topics.made
        try:
            await self._save_if_dirty(self.topics, TOPICS)
        except (StoreWriteError, StoreReadError):
            self.topics.saved.fail_all()
            raise
        self.topics.saved.advance(made)

    async def _save_if_dirty(self, table: SavedTable, name: str) -> None:
        if not table.dirty:
            return
        table.dirty = False
        try:
            await self._files.save(name, await table.to_json_in_turns())
        except BaseException:  # or cancelled: the last save, at the end, must not miss it
            table.dirty = True
            raise

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes by which slaves ask for the tables."""
        dispatcher.register(RequestCode.GET_ALL_TOPIC_CONFIG, self._answer_topics)
        dispatcher.register(RequestCode.GET_ALL_CONSUMER_OFFSET, self._answer_consumer_offsets)
        dispatcher.register(RequestCode.GET_ALL_DELAY_OFFSET, self._answer_delay_offsets)
        dispatcher.register(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self._answer_subscription_groups)
        self.queue_ends.register(dispatcher)

    def _answer_topics(self, connection: Connection, request: RemotingCommand) -> None:
        self._answer_table(connection, request, self.topics.to_json)

    def _answer_consumer_offsets(self, connection: Connection, request: RemotingCommand) -> None:
        self._answer_table(connection, request, self.offsets.to_json)

    def _answer_delay_offsets(self, connection: Connection, request: RemotingCommand) -> None:
        self._answer_table(connection, request, lambda: self._files.load(DELAY_OFFSET) or _NO_DELAYS)

    def _answer_subscription_groups(self, connection: Connection, request: RemotingCommand) -> None:
        self._answer_table(connection, request, lambda: self._files.load(SUBSCRIPTION_GROUP) or _NO_GROUPS)

    def _answer_table(
        self, connection: Connection, request: RemotingCommand, make: Callable[[], dict[str, Any]]
    ) -> None:
        """A request of 25 bytes may ask for megabytes: a connection gets a table after it took the last."""
        if connection in self._asking or not connection.takes_answers:
            remark = "answers wait to be taken: read them, then ask again"
            connection.respond(request, ResponseCode.SYSTEM_BUSY, remark=remark)
            return
        self._asking.add(connection)
        connection.start_soon(self._send_table, connection, request, make)

    async def _send_table(
        self, connection: Connection, request: RemotingCommand, make: Callable[[], dict[str, Any]]
    ) -> None:
        """One at a time, for all connections: made together, all tables would be in memory at once."""
        try:
            with connection.fenced(request):
                async with self._making:
                    body = await encode_in_turns(make())
                connection.respond(request, ResponseCode.SUCCESS, body=body)
        finally:
            self._asking.discard(connection)
