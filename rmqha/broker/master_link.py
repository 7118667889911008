"""MasterLink: what a broker asks of another broker by remoting: where its log begins and ends, and its tables.

Source: spec: ha §9 (request 28), §12 (metadata every 10 s). RocketMQ's slaves ask for it 3 s after their start first.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final, TypeVar

import structlog
import trio

from rmqha.broker import options
from rmqha.broker.group import ReplicationGroup, member_of
from rmqha.broker.schedule.delay_offsets import decode_delay_offsets
from rmqha.broker.tables.consumer_offset_manager import TOPIC_GROUP_SEPARATOR, OffsetTable, decode_offsets
from rmqha.broker.tables.metadata import MetadataService
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupTable
from rmqha.broker.tables.tables_origin import TablesOrigin, read_tables_origin
from rmqha.broker.tables.topic_config import TopicTable
from rmqha.broker.transaction.half_message import CONSUMER_GROUP, HALF_TOPIC, OP_TOPIC
from rmqha.codec import java_json
from rmqha.codec.acl import Signer
from rmqha.codec.codes import STATUS_KEY, RequestCode, ResponseCode
from rmqha.codec.remoting import HEADER_SIZE_MAX, RemotingCommand
from rmqha.codec.transfer import OFFSET_MAX
from rmqha.config import BrokerConfig, split_address
from rmqha.config.java_properties import parse_properties
from rmqha.errors import RemoteProtocolError, RemotingError, StoreError
from rmqha.ha.ha_client import BrokerStartingError, MasterAddress
from rmqha.remoting.client import RemotingClient, open_remoting_client
from rmqha.replication.group import GroupMember
from rmqha.replication.master_session import LogRange
from rmqha.threads import needing_a_thread
from rmqha.transport import Network

logger = structlog.get_logger()

_Table = TypeVar("_Table")
_TakeOver = Callable[[RemotingClient], Awaitable[None]]

RPC_TIMEOUT_S: Final = 3.0
TABLE_TIMEOUT_S: Final = 20.0
"""A busy master takes its time to make a table of megabytes."""
_READ_AT_ONCE_MAX: Final = 64 * 1024
"""Bytes of JSON, or of a configuration: some 20 milliseconds' work."""
_STATUS_SIZE_MAX: Final = 1024 * 1024
_FIRST_AFTER_S: Final = 3.0
"""At the latest, as RocketMQ's slaves; so soon again what has never been taken over yet."""
_INTERVAL_S: Final = 10.0
_LOOKS_AGAIN_S: Final = 0.1
_NEWS_AFTER_S: Final = 1.0
_NEWS_LOOKED_FOR_S: Final = 0.2
HA_PORT_DISTANCE: Final = 1
_TRANSACTION_KEYS: Final = tuple(topic + TOPIC_GROUP_SEPARATOR + CONSUMER_GROUP for topic in (HALF_TOPIC, OP_TOPIC))


class MasterLink:
    """Asks by short connections: a question every few seconds needs no connection of its own.

    Attributes:
        credentials: by which it signs what it asks, if the operator gave it any.
        failure: why a table could not be taken over the last time; empty if all were.
        rounds: how often all were.
        has_taken: whether all were since :meth:`run` began.
    """

    def __init__(
        self,
        network: Network,
        config: BrokerConfig,
        metadata: MetadataService,
        *,
        group: ReplicationGroup,
    ) -> None:
        self._network = network
        self._group = group
        self._config = config
        self.credentials: Final = options.credentials(config)
        self._topics = metadata.topics
        self._offsets = metadata.offsets
        self._groups = metadata.groups
        self._delay_offsets = metadata.delay_offsets
        self._unsettled: tuple[int, OffsetTable] | None = None
        """Where the master's log ended, and how far it had dealt with half messages: they may lie beyond this log."""
        self.failure = ""
        self.rounds = 0
        self.has_taken = False
        self._known_topics = frozenset[str]()
        """Those that the log alone had told of when tables were asked for the last time."""

    @property
    def has_news(self) -> bool:
        """Whether the log has told of a topic since tables were asked for: its first messages do not say all of it."""
        return not self._topics.learned <= self._known_topics

    async def probe(self, ha_address: MasterAddress) -> LogRange | None:
        """What the log of the broker with this HA port holds; None if it does not say.

        Its remoting port is one below its HA port, as with RocketMQ; if nobody answers for it there, it may be
        ``masterAddress``. That one is not asked first: of a slave that follows a slave it is another broker's.

        Raises:
            BrokerStartingError: it cannot say yet.
        """
        return await self._probe(ha_address, self._group.introduce())

    async def introduce(self, ha_address: MasterAddress, ha_client_port: int) -> LogRange | None:
        """As :meth:`probe`, and tell a master of ours that the HA connection from this local port is ours.

        RocketMQ does not look at the fields that say so.
        """
        return await self._probe(ha_address, self._group.introduce(ha_client_port))

    async def _probe(self, ha_address: MasterAddress, fields: dict[str, str]) -> LogRange | None:
        config, found = self._config, None
        if ha_address.port > HA_PORT_DISTANCE:
            beside = f"{ha_address.host}:{ha_address.port - HA_PORT_DISTANCE}"
            found = await self._ask_range(beside, ha_address.port, fields=fields)
        if found is None and config.master_address and split_address(config.ha_master_address) == tuple(ha_address):
            found = await self._ask_range(config.master_address, ha_address.port, fields=fields)
        return found

    async def _ask_range(self, address: str, ha_port: int, *, fields: dict[str, str]) -> LogRange | None:
        try:
            async with open_link(self._network, address, credentials=self.credentials) as client:
                answer = await _ask(client, RequestCode.GET_BROKER_RUNTIME_INFO, fields)
                table = answer.get("table") or {}
                is_ours = STATUS_KEY in table
                status = _status_of(table) if is_ours else {}
                _check_serving(address, status)
                if is_ours and status["ha"]["port"] != ha_port:
                    return None
                member = self._on_told(status) if is_ours else await _ask_rocketmq(client)
            ends = _offset(table["commitLogMinOffset"]), _offset(table["commitLogMaxOffset"])
            return LogRange(*ends, checks_reports=is_ours, member=member)
        except BrokerStartingError:
            raise
        except (RemotingError, RemoteProtocolError, OSError, AttributeError, KeyError, TypeError, ValueError) as error:
            logger.debug("master_link.range_unknown", address=address, reason=str(error))
            return None

    async def is_member(self, address: str, self_id: str, group: str) -> bool:
        """Whether the broker of RocketMQ's at this address is that member of a DLedger group."""
        try:
            async with open_link(self._network, address, credentials=self.credentials) as client:
                keys = await _ask_keys(client)
        except (RemotingError, RemoteProtocolError) as error:
            logger.debug("master_link.no_answer", address=address, reason=str(error))
            return False
        return (keys.get("dLegerSelfId"), keys.get("dLegerGroup")) == (self_id, group)

    async def is_no_master_yet(self, address: str) -> bool:
        """Whether a broker of ours there says so. What cannot be learned here :meth:`synchronize` tells of."""
        return (await self._ask_status(address) or {}).get("is_master") is False

    async def ask_tables_origin(self, address: str) -> TablesOrigin | None:
        """Whose tables a broker of the same DLedger group has; None if it does not answer, or is starting."""
        status = await self._ask_status(address)
        return None if status is None or "starting" in status else read_tables_origin(status)

    async def _ask_status(self, address: str) -> dict[str, Any] | None:
        """What a broker of ours says of itself; empty of one of RocketMQ's, None if there is no answer to use."""
        try:
            async with open_link(self._network, address, credentials=self.credentials) as client:
                fields = self._group.complain()
                table = (await _ask(client, RequestCode.GET_BROKER_RUNTIME_INFO, fields)).get("table") or {}
            return _status_of(table) if STATUS_KEY in table else {}
        except (RemotingError, RemoteProtocolError, OSError, AttributeError, TypeError, ValueError) as error:
            logger.debug("master_link.no_answer", address=address, reason=str(error))
            return None

    async def run(
        self,
        address: str,
        *,
        is_joined: Callable[[], bool] = lambda: True,
        is_apart: Callable[[], bool] = lambda: False,
    ) -> None:
        """Keep the tables like those of the master at ``address``, until cancelled; but not while ``is_apart``.

        They are asked for as soon as the log ``is_joined`` to the master's, and without that after some seconds: who
        has the log alone could not give a master with an empty store its tables back. Then every ten seconds, and a
        second after the last time if the log has told of a topic that no table had, or the master is lost: clients
        are told of such a topic once the table has come, or cannot come.
        """
        self._unsettled, self.has_taken = None, False
        with trio.move_on_after(_FIRST_AFTER_S):
            while not is_joined():  # noqa: ASYNC110 - a connection tells nobody
                await trio.sleep(_LOOKS_AGAIN_S)
        while True:
            was_joined, self._known_topics = is_joined(), frozenset(self._topics.learned)
            if not is_apart():
                await self.synchronize(address)
            elif self._group.trouble():
                await self._ask_status(address)
            with trio.move_on_after(_INTERVAL_S if self.has_taken else _FIRST_AFTER_S):
                await trio.sleep(_NEWS_AFTER_S)
                while not self.has_news and is_joined() >= was_joined:  # noqa: ASYNC110 - they tell nobody
                    await trio.sleep(_NEWS_LOOKED_FOR_S)

    async def synchronize(self, address: str) -> None:
        """Take over the tables; a failure is logged when it changes, and the next round tries again.

        All of them from ``listenPort``: RocketMQ's slaves ask for topics on ``listenPort - 2``, where firewalls forget
        about them (#2819), but its masters answer on both.
        """
        failures: list[str] = []
        try:
            async with open_link(self._network, address, credentials=self.credentials) as client:
                origin = await self.check_group(client)
                take_over_offsets = partial(self._take_over_offsets, origin=origin)
                tables: list[_TakeOver] = [self._take_over_topics, take_over_offsets, self._take_over_groups]
                for take_over in (*tables, self._take_over_delay_offsets):
                    try:
                        await take_over(client)
                    except RemoteProtocolError as error:
                        failures.append(str(error))
        except (RemotingError, RemoteProtocolError, StoreError, OSError) as error:
            failures.append(str(error))
        failure = "; ".join(failures)
        if failure and failure != self.failure:
            logger.warning("master_link.not_synchronized", address=address, reason=failure)
        self.failure = failure
        self.rounds += not failure
        self.has_taken = self.has_taken or not failure

    async def grow_learned_topics(self, address: str) -> None:
        """Have topics of which the log alone has told with as many queues as the broker at ``address`` knows of."""
        try:
            async with open_link(self._network, address, credentials=self.credentials) as client:
                await self.check_group(client)
                if topics := await _ask_table(client, RequestCode.GET_ALL_TOPIC_CONFIG, _decode_topics):
                    self._topics.grow_learned(topics)
        except (RemotingError, RemoteProtocolError, OSError) as error:
            logger.debug("master_link.no_answer", address=address, reason=str(error))

    async def _take_over_topics(self, client: RemotingClient) -> None:
        if topics := await _ask_table(client, RequestCode.GET_ALL_TOPIC_CONFIG, _decode_topics):
            self._topics.replace(topics)

    async def _take_over_offsets(self, client: RemotingClient, *, origin: TablesOrigin) -> None:
        """What a broker has found on its disk, and nothing newer, says nothing of what it lacks."""
        offsets = await _ask_table(client, RequestCode.GET_ALL_CONSUMER_OFFSET, decode_offsets)
        await self._offsets.make_room_for(offsets)
        told = {key: offsets.pop(key) for key in _TRANSACTION_KEYS if key in offsets}
        await self._offsets.merge_from_master(offsets, is_whole=origin.is_of_a_master)
        if told and self._unsettled is None:
            self._unsettled = await _ask_log_end(client), told
        if self._unsettled is not None and self._delay_offsets.is_settled(self._unsettled[0]):
            await self._offsets.merge_from_master(self._unsettled[1])
            self._unsettled = None

    async def _take_over_groups(self, client: RemotingClient) -> None:
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        self._groups.replace(await _ask_table(client, code, SubscriptionGroupTable.from_json))

    async def _take_over_delay_offsets(self, client: RemotingClient) -> None:
        """What was delivered when the offsets were told lies before the end that the master's log has after that."""
        offsets = await _ask_table(client, RequestCode.GET_ALL_DELAY_OFFSET, decode_delay_offsets)
        self._delay_offsets.take_over(offsets, log_end=await _ask_log_end(client))

    async def check_group(self, client: RemotingClient) -> TablesOrigin:
        """Whether this broker is of this group, and whose tables it has.

        It need not be that whose log is copied, which is asked for itself.

        Raises:
            RemoteProtocolError: it is of another group: its offsets would hide messages.
        """
        table = (await _ask(client, RequestCode.GET_BROKER_RUNTIME_INFO, self._group.complain())).get("table") or {}
        try:
            status = _status_of(table) if STATUS_KEY in table else {}
            member = self._on_told(status) if status else await _ask_rocketmq(client)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RemoteProtocolError(f"it does not say who it is: {error!r:.100}") from None
        if member is not None and (why := self._group.why_apart(member)):
            raise RemoteProtocolError(f"this is no broker of this group: {why}")
        return read_tables_origin(status)

    def _on_told(self, status: dict[str, Any]) -> GroupMember:
        return self._group.on_told(status, now=trio.current_time())


def open_link(
    network: Network, address: str, *, credentials: Signer | None = None
) -> AbstractAsyncContextManager[RemotingClient]:
    """A connection to another broker, whose answers hold nobody up: what is large in them is in the body."""
    return open_remoting_client(
        network, address, timeout_s=RPC_TIMEOUT_S, header_size_max=HEADER_SIZE_MAX, credentials=credentials
    )


async def _ask(client: RemotingClient, code: RequestCode, fields: dict[str, str] | None = None) -> dict[str, Any]:
    """The JSON object that answers ``code``; empty when the broker has nothing to say."""
    return await _ask_table(client, code, dict, fields=fields, timeout_s=RPC_TIMEOUT_S)


async def _ask_table(
    client: RemotingClient,
    code: RequestCode,
    decode: Callable[[dict[str, Any]], _Table],
    *,
    fields: dict[str, str] | None = None,
    timeout_s: float = TABLE_TIMEOUT_S,
) -> _Table:
    """What ``decode`` makes of the JSON object that answers ``code``, or of an empty one.

    To read and decode a large one may take seconds: a worker thread does it, and replication goes on.

    Raises:
        OSError: there is no thread.
        RemoteProtocolError: the answer is an error, or no JSON object, or ``decode`` does not take it.
    """
    answer = await client.invoke(RemotingCommand(code, ext_fields=fields or {}), timeout_s=timeout_s)
    if answer.code != ResponseCode.SUCCESS:
        remark = f"{answer.remark or 'no reason given'!s:.200}"
        raise RemoteProtocolError(f"request {code} ({code.name}) is answered with error {answer.code}: {remark}")
    if not answer.body:
        return decode({})
    return await read_table(answer, decode)


async def read_table(answer: RemotingCommand, decode: Callable[[dict[str, Any]], _Table]) -> _Table:
    """What ``decode`` makes of the JSON object that is an answer's body; of a large one in a worker thread.

    Raises:
        OSError: there is no thread.
        RemoteProtocolError: it is no JSON object, or ``decode`` does not take it.
    """

    def read() -> _Table:
        return decode(json_of(answer))

    if len(answer.body) <= _READ_AT_ONCE_MAX:
        return read()
    with needing_a_thread():
        return await trio.to_thread.run_sync(read)


def _decode_topics(value: dict[str, Any]) -> TopicTable | None:
    return TopicTable.from_json(value) if value else None


def json_of(answer: RemotingCommand) -> dict[str, Any]:
    """The JSON object that an answer's body is. Raises RemoteProtocolError if it is none."""
    value = java_json.loads(answer.body)
    if not isinstance(value, dict):
        raise RemoteProtocolError("the answer is no JSON object")
    return value


def _offset(text: str) -> int:
    """Where a log begins or ends; RocketMQ's that has no file begins at -1. Raises ValueError."""
    offset = int(text)
    if not -1 <= offset <= OFFSET_MAX:
        raise ValueError(f"no log begins or ends at {offset}")
    return offset


def _check_serving(address: str, status: dict[str, Any]) -> None:
    if "starting" in status:
        raise BrokerStartingError(f"the broker at {address} is starting: {status['starting'].get('what')}")


def _status_of(table: dict[str, Any]) -> dict[str, Any]:
    """What one of our brokers tells. Raises RemoteProtocolError, or TypeError, if it is no JSON object of some size."""
    if len(table[STATUS_KEY]) > _STATUS_SIZE_MAX:
        raise RemoteProtocolError(f"a status of {len(table[STATUS_KEY])} characters: more than any broker's")
    status = java_json.loads(table[STATUS_KEY], java_keys=False)
    if not isinstance(status, dict):
        raise TypeError("its status is no JSON object")
    return status


async def _ask_rocketmq(client: RemotingClient) -> GroupMember | None:
    """Who a RocketMQ broker is, by its configuration; None if it does not say."""
    keys = await _ask_keys(client)
    return member_of(keys) if keys else None


async def _ask_keys(client: RemotingClient) -> dict[str, str]:
    """The configuration of a broker of RocketMQ's (26); empty if it does not say."""
    answer = await client.invoke(RemotingCommand(RequestCode.GET_BROKER_CONFIG), timeout_s=RPC_TIMEOUT_S)
    if answer.code != ResponseCode.SUCCESS:
        return {}
    if len(answer.body) > _READ_AT_ONCE_MAX:
        raise RemoteProtocolError(f"a configuration of {len(answer.body)} bytes: more than any broker's")
    properties, _ = parse_properties(answer.body)
    return {one.key: one.value for one in properties}


async def _ask_log_end(client: RemotingClient) -> int:
    table = (await _ask(client, RequestCode.GET_BROKER_RUNTIME_INFO)).get("table") or {}
    try:
        return _offset(table["commitLogMaxOffset"])
    except (KeyError, TypeError, ValueError) as error:
        raise RemoteProtocolError(f"it does not say where its log ends: {error!r:.100}") from None
