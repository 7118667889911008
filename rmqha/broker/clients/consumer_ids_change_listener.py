"""ConsumerIdsChangeListener: tells the members of a group at once that others have come or gone (request 40).

Each then shares out the queues anew; without it they would do so every 20 s. What changes while members are being told
is told once more, to all, and not once for each change: a thousand members that come together are not told a million
times.

Source: spec: remoting §2.8, §6 row 12; rocketmq-all-4.9.8 DefaultConsumerIdsChangeListener.java, Broker2Client.java.
"""

from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Final

import trio

from rmqha.broker.clients.consumer_manager import ConsumerManager
from rmqha.broker.tables.retry_topics import RETRY_GROUP_TOPIC_PREFIX
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupManager
from rmqha.broker.tables.untold_topics import UntoldTopics
from rmqha.codec.codes import RequestCode
from rmqha.codec.group_headers import ConsumerGroupRequestHeader
from rmqha.codec.headers import encode_header
from rmqha.codec.remoting import RemotingCommand

_AT_ONCE: Final = 32
"""Members that are told, or groups that are looked at, before everybody else has a turn."""
_PAUSE_SHARE: Final = 3
"""After these a pause so many times as long: no coming and going takes more than a quarter of the time."""
_SAVED_S: Final = 1.0
"""Members wait so long at most until their group's retry topic is in ``topics.json``."""


class ConsumerIdsChangeListener:
    """One task; a member that takes no answers is not told, and will find out within 20 s.

    Members that are told ask a name server for their group's retry topic, if they do not know it, and again only after
    20 s: so they are told when name servers know it.

    Invariant: only groups that have members are to be told.
    """

    def __init__(
        self, consumers: ConsumerManager, groups: SubscriptionGroupManager, untold: UntoldTopics, *, is_enabled: bool
    ) -> None:
        """``untold``: among these may be the groups' retry topics."""
        self._consumers: Final = consumers
        self._groups: Final = groups
        self._untold: Final = untold
        self._waiting: Final = set[str]()
        """Groups that are to be told when their retry topics are known."""
        self._changed: Final[OrderedDict[str, None]] = OrderedDict()
        self._has_changed = trio.Event()
        if is_enabled:
            consumers.on_changed = self._on_changed

    def _on_changed(self, group: str) -> None:
        if self._consumers.find_group(group) is None:
            self._changed.pop(group, None)
        elif group in self._waiting:
            return
        elif (topic := RETRY_GROUP_TOPIC_PREFIX + group) in self._untold.numbers:
            self._waiting.add(group)
            self._untold.when_told(topic, trio.current_time() + _SAVED_S, partial(self._on_told, group))
        else:
            self._note(group)

    def _on_told(self, group: str, _is_told: bool, _count: int) -> None:
        self._waiting.discard(group)
        if self._consumers.find_group(group) is not None:
            self._note(group)

    def _note(self, group: str) -> None:
        self._changed[group] = None
        self._has_changed.set()

    async def run(self) -> None:
        """Tell whom it concerns, until cancelled."""
        while True:
            await self._has_changed.wait()
            self._has_changed = trio.Event()
            steps, taken = self._steps(), _AT_ONCE
            while taken == _AT_ONCE:
                begun_at = trio.current_time()
                taken = sum(1 for _ in islice(steps, _AT_ONCE))
                await trio.sleep(_PAUSE_SHARE * (trio.current_time() - begun_at))

    def _steps(self) -> Iterator[None]:
        """Tell one member of one group after another; between two of them more may change."""
        while self._changed:
            name, _ = self._changed.popitem(last=False)
            yield
            group, config = self._consumers.find_group(name), self._groups.select(name)
            if group is None or (config is not None and not config.notify_consumer_ids_changed_enable):
                continue
            fields = encode_header(ConsumerGroupRequestHeader(name))
            for connection in list(group.members):
                connection.notify(RemotingCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext_fields=fields))
                yield
