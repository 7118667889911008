"""TopicRoutes: which brokers hold a topic's queues, as the given addresses tell."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

import trio

from rmqha.client.message import MessageQueue
from rmqha.client.results import broker_error
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import GetRouteInfoRequestHeader, encode_header
from rmqha.codec.remoting import RemotingCommand, SerializeType
from rmqha.codec.route import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    MASTER_ID,
    PERM_READ,
    PERM_WRITE,
    BrokerData,
    QueueData,
    TopicRouteData,
    decode_cluster_info,
    decode_route,
)
from rmqha.errors import (
    MQClientError,
    NoRouteError,
    RemotingConnectError,
    RemotingError,
    RmqhaError,
    UnreadableAnswerError,
)
from rmqha.remoting.client import address_problem
from rmqha.remoting.connections import Connections

REFRESH_AFTER_S: Final = 30.0
_PROBE_S: Final = 5.0


@dataclass(slots=True)
class TopicPublishInfo:
    """A topic's writable queues, each with its master's address, taken in turn."""

    queues: list[tuple[MessageQueue, str]]
    found_at: float
    used_at: float = -inf
    is_of_makers: bool = False
    """The topic does not exist: these brokers would make it."""
    _turn: int = field(default=0)

    def go_on_behind(self, former: "TopicPublishInfo") -> None:
        """Take the turn of what was known before: else each look would lead to the same queue, whatever it is worth."""
        self._turn = former._turn % len(self.queues)

    def select_one_message_queue(self, *, avoid_broker: str | None = None) -> tuple[MessageQueue, str]:
        """The next queue; on another broker than ``avoid_broker`` if there is one."""
        queues = self.queues
        self._turn = turn = (self._turn + 1) % len(queues)
        if avoid_broker is not None:
            for ahead in range(len(queues)):
                chosen = queues[(turn + ahead) % len(queues)]
                if chosen[0].broker_name != avoid_broker:
                    return chosen
        return queues[turn]


class TopicUnknownError(NoRouteError):
    """Nobody who answered knows the topic; a name server may have begun anew, and its brokers have yet to come."""


class TopicRoutes:
    """Asks every address and joins the answers: a broker speaks for itself, a name server for all.

    An address that did not answer the last time is only waited for if the others' answers do not do; otherwise it is
    asked in the background, and counts again when it answers.
    """

    def __init__(
        self,
        connections: Connections,
        addresses: Sequence[str],
        *,
        nursery: trio.Nursery,
        timeout_s: float,
        named_only: bool = False,
    ) -> None:
        self._connections = connections
        self._addresses = addresses
        self._nursery = nursery
        self._timeout_s = timeout_s
        self._named_only = named_only
        self._silent: set[str] = set()
        self._probed: set[str] = set()

    async def find(self, topic: str, *, needs_master: bool = False) -> TopicRouteData:
        """The topic's route.

        Args:
            topic: whose.
            needs_master: a route without any master does not do.

        Raises:
            NoRouteError: no broker that answered knows the topic.
            RemotingConnectError: nobody answered; an UnreadableAnswerError: nothing that can be read.
            MQBrokerError: refused for another reason.
        """
        silent = self._silent.copy()
        answers = await self._ask_all([address for address in self._addresses if address not in silent], topic)
        if any(isinstance(answer, TopicRouteData) and _does(answer, needs_master) for answer in answers):
            for address in silent - self._probed:
                self._probed.add(address)
                self._nursery.start_soon(self._probe, address)
        else:
            answers += await self._ask_all(silent, topic)
        routes = [answer for answer in answers if isinstance(answer, TopicRouteData)]
        if routes:
            return _joined(routes)
        raise _worst([answer for answer in answers if isinstance(answer, RmqhaError)])

    async def _ask_all(self, addresses: Iterable[str], topic: str) -> list[TopicRouteData | RmqhaError]:
        answers: list[TopicRouteData | RmqhaError] = []

        async def ask(address: str) -> None:
            answers.append(await self._ask(address, topic))

        async with trio.open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(ask, address)
        return answers

    async def _probe(self, address: str) -> None:
        while True:
            answer = await self._ask(address, AUTO_CREATE_TOPIC_KEY_TOPIC)
            if not isinstance(answer, RemotingError):
                break
            await trio.sleep(_PROBE_S)
        self._probed.discard(address)

    async def _ask(self, address: str, topic: str) -> TopicRouteData | RmqhaError:
        request = RemotingCommand(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            ext_fields=encode_header(GetRouteInfoRequestHeader(topic)),
            serialize=SerializeType.ROCKETMQ,
        )
        try:
            response = await self._connections.invoke(address, request, timeout_s=self._timeout_s)
        except trio.Cancelled:
            self._silent.add(address)
            raise
        except RmqhaError as error:
            self._silent.add(address)
            if isinstance(error, RemotingError):  # whatever became of this question: no message was sent
                return RemotingConnectError(address, _untold(topic, error.reason))
            return error
        self._silent.discard(address)
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return TopicUnknownError(f"{address} does not know topic {topic}: create it, or check the address")
        if response.code != ResponseCode.SUCCESS:
            return broker_error(response)
        try:
            route = decode_route(response.body)
        except RmqhaError as error:
            return UnreadableAnswerError(address, _untold(topic, error))
        return self._limited_to(address, route) if self._named_only else route

    async def _is_no_broker_registered(self) -> bool:
        """Whether all name servers that answer know of none; a broker knows of itself."""
        known: list[bool] = []

        async def ask(address: str) -> None:
            request = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)
            with suppress(RmqhaError):
                response = await self._connections.invoke(address, request, timeout_s=self._timeout_s)
                known.append(response.code != ResponseCode.SUCCESS or bool(decode_cluster_info(response.body)))

        async with trio.open_nursery() as nursery:
            for address in self._addresses:
                nursery.start_soon(ask, address)
        return bool(known) and not any(known)

    def _limited_to(self, address: str, route: TopicRouteData) -> TopicRouteData:
        """The route as if the broker that was asked were the only one; brokers rank by the order of the addresses."""
        rank = self._addresses.index(address)
        brokers = tuple(replace(broker, broker_addrs={rank: address}) for broker in route.broker_datas)
        return replace(route, broker_datas=brokers)

    async def find_publish_info(
        self, topic: str, *, default_queue_nums: int, may_make: bool = True
    ) -> TopicPublishInfo:
        """Where to send: the topic's own queues, or, with ``may_make``, those that its first message gives it.

        Raises:
            TopicUnknownError: without ``may_make``.
            NoRouteError: the topic does not exist and brokers create none, or no master is known.
            RemotingError, MQBrokerError: as for :meth:`find`.
        """
        try:
            route = await self.find(topic, needs_master=True)
            queue_nums_max, is_of_makers = 1 << 31, False
        except TopicUnknownError as unknown:
            if not may_make:
                raise
            try:
                route = await self.find(AUTO_CREATE_TOPIC_KEY_TOPIC, needs_master=True)
            except NoRouteError as error:
                told, retryable = "no broker known there makes topics (autoCreateTopicEnable)", unknown.retryable
                if await self._is_no_broker_registered():  # as while the only one is restarted
                    told, retryable = "no broker is registered there now: is one running?", True
                retryable = retryable or error.retryable
                raise NoRouteError(f"{unknown}; {told}", retryable=retryable) from None
            queue_nums_max, is_of_makers = default_queue_nums, True
        masters = {broker.broker_name: broker.broker_addrs.get(MASTER_ID) for broker in route.broker_datas}
        queues = [
            (MessageQueue(topic, data.broker_name, queue_id), master)
            for data in route.queue_datas
            if data.perm & PERM_WRITE and (master := masters.get(data.broker_name))
            for queue_id in range(min(data.write_queue_nums, queue_nums_max))
        ]
        if route.queue_datas and not any(data.perm & PERM_WRITE for data in route.queue_datas):
            raise NoRouteError(f"topic {topic} may not be sent to: its permission is without w")
        if not queues:
            raise NoRouteError(f"no master takes messages for topic {topic} now: is one running?", retryable=True)
        return TopicPublishInfo(queues, trio.current_time(), is_of_makers=is_of_makers)


def readable_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Those that consumers may read, broker by broker."""
    return [
        MessageQueue(topic, data.broker_name, queue_id)
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
        if data.perm & PERM_READ
        for queue_id in range(data.read_queue_nums)
    ]


def nothing_to_read(topic: str, route: TopicRouteData) -> NoRouteError:
    """What to raise where the route has no queue for consumers."""
    is_closed = bool(route.queue_datas) and not any(data.perm & PERM_READ for data in route.queue_datas)
    told = "may not be read: its permission is without r" if is_closed else "has no queue that may be read"
    return NoRouteError(f"topic {topic} {told}")


def _untold(topic: str, why: object) -> str:
    """What cannot be read says nothing either: it may know the topic, and others may tell."""
    return f"it does not say where topic {topic} is: {why}"


def _does(route: TopicRouteData, needs_master: bool) -> bool:
    return not needs_master or any(MASTER_ID in broker.broker_addrs for broker in route.broker_datas)


def _worst(errors: list[RmqhaError]) -> RmqhaError:
    """What to raise when no address gave a route. An address that did not answer may know the topic all the same."""
    unknown = next((error for error in errors if isinstance(error, NoRouteError)), None)
    silent = next((error for error in errors if isinstance(error, RemotingError)), None)
    if unknown and silent:
        return TopicUnknownError(f"{silent}; {unknown}", retryable=True)
    return unknown or errors[0]


def _joined(routes: list[TopicRouteData]) -> TopicRouteData:
    brokers: dict[str, BrokerData] = {}
    queues: dict[str, QueueData] = {}
    for route in routes:
        for broker in route.broker_datas:
            known = brokers.get(broker.broker_name)
            addrs = broker.broker_addrs | (known.broker_addrs if known else {})
            brokers[broker.broker_name] = BrokerData(broker.cluster, broker.broker_name, addrs)
        for queue in route.queue_datas:
            queues.setdefault(queue.broker_name, queue)
    return TopicRouteData(
        tuple(brokers[name] for name in sorted(brokers)), tuple(queues[name] for name in sorted(queues))
    )


def split_addresses(text: str) -> list[str]:
    """``host:port;host:port`` as a list.

    Raises:
        MQClientError: there is none, or one of them can be no address.
    """
    if not isinstance(text, str):
        raise MQClientError(f"addresses={text!r}: expected host:port, several separated by ';'")
    addresses = [part.strip() for part in text.replace(",", ";").split(";") if part.strip()]
    if not addresses:
        raise MQClientError("no broker address is given: expected host:port, several separated by ';'")
    for address in addresses:
        if problem := address_problem(address):
            raise MQClientError(f"{address!r} {problem}")
    return addresses
