"""TopicPublishInfos: where a producer's messages go, looked up anew without holding up a send."""

from math import inf
from typing import Final

import trio

from rmqha.client.topic_routes import REFRESH_AFTER_S, TopicPublishInfo, TopicRoutes, TopicUnknownError
from rmqha.errors import NoRouteError, RemotingError, RmqhaError

_USABLE_S: Final = 2 * REFRESH_AFTER_S
"""A producer that was idle for longer looks first: the master may have moved long since."""
_BUSY_S: Final = 5.0
"""Who sent so shortly before has what is grown old looked up behind the send: it is not much older than it may be."""
_PATIENCE_S: Final = 0.5
"""For how long others wait for name servers, which as a rule answer at once, if there is something known."""
_DOUBTFUL_S: Final = 0.5
"""How old a route must be before a broker's refusal makes the producer look it up again, however many sends fail."""


class TopicPublishInfos:
    """What is known of each topic's queues (RocketMQ's topicPublishInfoTable).

    A route of 30 s is looked up again, as RocketMQ's producers do: in the background if there is much to send. Who
    sends seldom waits for it, but not for a slow name server. Where none answers, or knows the topic any more, what was
    known last goes on to be used.
    """

    def __init__(self, routes: TopicRoutes, *, nursery: trio.Nursery, default_queue_nums: int) -> None:
        """Use ``default_queue_nums`` queues of a topic that the first message creates."""
        self._routes: Final = routes
        self._nursery: Final = nursery
        self._default_queue_nums: Final = default_queue_nums
        self._infos: Final[dict[str, TopicPublishInfo]] = {}
        self._refreshed: Final[dict[str, trio.Event]] = {}
        """By topic that is looked up in the background: set once that has ended."""
        self._found: Final[dict[str, trio.Event]] = {}
        """Likewise of topics that are looked up by who waits for it."""

    def __contains__(self, topic: str) -> bool:
        return topic in self._infos

    def usable(self, topic: str, *, now: float) -> TopicPublishInfo | None:
        """What to send by at once; what grows old meanwhile is looked up in the background."""
        info = self._infos.get(topic)
        if info is None:
            return None
        if now > info.found_at + REFRESH_AFTER_S:
            if now > info.found_at + _USABLE_S or now > info.used_at + _BUSY_S:
                return None
            self._refresh_soon(topic, info)
        info.used_at = now
        return info

    def _refresh_soon(self, topic: str, known: TopicPublishInfo) -> None:
        if topic not in self._refreshed:
            self._refreshed[topic] = trio.Event()
            self._nursery.start_soon(self._refresh, topic, known)

    async def get(self, topic: str) -> TopicPublishInfo:
        """What to send by.

        Raises:
            NoRouteError, RemotingError, MQBrokerError: as for :meth:`TopicRoutes.find_publish_info`, and nothing is
                known from before.
        """
        now = trio.current_time()
        if (info := self.usable(topic, now=now)) is not None:
            return info
        known = self._infos.get(topic)
        if known is not None and now <= known.found_at + _USABLE_S:
            self._refresh_soon(topic, known)
            try:
                with trio.move_on_after(_PATIENCE_S) as patience:
                    await self._refreshed[topic].wait()
            finally:  # the next one, which may have even less time, waits no more
                known.used_at = trio.current_time()
            if patience.cancelled_caught:
                return known
        return await self.find(topic)

    async def find(self, topic: str) -> TopicPublishInfo:
        """As :meth:`get`, and not older than 30 s, if anybody answers."""
        known = self._infos.get(topic)
        if known is not None and trio.current_time() >= known.found_at + REFRESH_AFTER_S and topic in self._found:
            await self._found[topic].wait()  # a thousand sends after a pause need one look
            known = self._infos[topic]
        if known is not None and trio.current_time() < known.found_at + REFRESH_AFTER_S:
            return known
        found = self._found.setdefault(topic, trio.Event())
        try:
            return await self._look(topic, known)
        finally:
            self._found.pop(topic, None)
            found.set()

    async def _look(self, topic: str, known: TopicPublishInfo | None) -> TopicPublishInfo:
        try:
            info = await self._ask(topic, known)
        except (trio.Cancelled, BaseExceptionGroup):
            if known is not None:  # the next one, which may have no more time, sends, and looks in the background
                known.found_at = trio.current_time() - REFRESH_AFTER_S
            raise
        except (RemotingError, TopicUnknownError):
            if known is None:
                raise
            known.found_at = trio.current_time()
            return known
        self._note(topic, info)
        return info

    def _note(self, topic: str, info: TopicPublishInfo) -> None:
        if (former := self._infos.get(topic)) is not None:
            info.go_on_behind(former)
        self._infos[topic] = info

    async def _ask(self, topic: str, known: TopicPublishInfo | None) -> TopicPublishInfo:
        """A topic that was there is not made by another broker: the one that has it has yet to register again."""
        nums, may_make = self._default_queue_nums, known is None or known.is_of_makers
        return await self._routes.find_publish_info(topic, default_queue_nums=nums, may_make=may_make)

    async def _refresh(self, topic: str, known: TopicPublishInfo) -> None:
        try:
            info = await self._ask(topic, known)
        except RmqhaError as error:
            is_awaited = isinstance(error, NoRouteError) and error.retryable
            if not (is_awaited or isinstance(error, RemotingError | TopicUnknownError)):
                known.found_at = -inf  # the next send finds out, and tells
            elif known.found_at > -inf:
                known.found_at = trio.current_time()
        else:
            if self._infos[topic] is known and known.found_at > -inf:
                self._note(topic, info)
        finally:
            self._refreshed.pop(topic).set()

    def forget(self, topic: str) -> None:
        """Look the topic up before the next send: something went wrong with its broker."""
        info = self._infos.get(topic)
        if info is not None:
            info.found_at = -inf

    def doubt(self, topic: str) -> None:
        """A broker refused, as a former master does: as :meth:`forget`, if what is known is not brand-new."""
        info = self._infos.get(topic)
        if info is not None and trio.current_time() >= info.found_at + _DOUBTFUL_S:
            self.forget(topic)
