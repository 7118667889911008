"""AwaitedNameServers: which name servers have to know a new topic before clients are told that it is there.

Those that answer soon. One that does not is waited for once, and again when it has.

Source: rocketmq-all-4.9.8 BrokerOuterAPI.java, which waits for all, for six seconds each time.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from rmqha.broker.tables.topic_config_manager import TopicConfigManager

LIMIT_S: Final = 0.5
"""So long answers wait for name servers after the topic is saved."""


class AwaitedNameServers:
    """Has what is told (:attr:`UntoldTopics.told`) follow what is saved, :data:`LIMIT_S` behind it at most."""

    def __init__(
        self,
        topics: TopicConfigManager,
        *,
        tells_topics: Callable[[], bool],
        on_news: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """No name server is there yet.

        Args:
            topics: of this broker.
            tells_topics: whether name servers take topics from this broker: it is master.
            on_news: there is something to be told.
            clock: in seconds; that of ``untold.told.deadlines``, which somebody has to expire.
        """
        self._saved: Final = topics.saved
        self._untold: Final = topics.untold
        self._tells_topics: Final = tells_topics
        self._on_news: Final = on_news
        self._clock: Final = clock
        self._knows: Final = dict[str, int]()
        """How much of what is saved each knows that is waited for."""

    @contextmanager
    def holding(self, name_servers: Iterable[str]) -> Iterator[None]:
        """In the block answers wait for these."""
        self._knows.update(dict.fromkeys(name_servers, self._saved.value))
        self._untold.tell = self._tell
        try:
            yield
        finally:
            self._untold.tell = self._untold.told.advance
            self._untold.tell(self._saved.value)

    def _tell(self, number: int) -> None:
        self._on_news()
        if not (self._knows and self._tells_topics()):
            self._untold.told.advance(number)
            return
        self._untold.told.add(number, self._clock() + LIMIT_S, partial(self._settle, number))

    def _settle(self, number: int, is_told: bool, _value: int) -> None:
        """Wait no longer for those that do not know it in time."""
        if not is_told:
            for name_server in [name for name, known in self._knows.items() if known < number]:
                self.lost(name_server)

    def knows(self, name_server: str, number: int, *, took_s: float) -> None:
        """It knows so much of what is saved; ``took_s`` says whether it will be waited for."""
        if took_s <= LIMIT_S:
            self._knows[name_server] = number
            self._advance()
        else:
            self.lost(name_server)

    def lost(self, name_server: str) -> None:
        """It does not know this broker, or takes too long."""
        self._knows.pop(name_server, None)
        self._advance()

    def _advance(self) -> None:
        self._untold.told.advance(min([self._saved.value, *self._knows.values()]))
