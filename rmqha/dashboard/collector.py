"""Collector: asks brokers again and again, and keeps the last hour of what they say.

Each broker has a task of its own, so one that is silent or slow delays no other, and no page: pages are made of what is
kept. Invariant: at most :data:`BROKERS_MAX` brokers beside those that were named, and of each a
:class:`~rmqha.dashboard.history.History`, one view and one list of groups.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import trio

from rmqha.cli.named_brokers import NamedBroker
from rmqha.cli.top_samples import Sample
from rmqha.dashboard.history import SPAN_S, History
from rmqha.dashboard.questions import NO_ANSWER, Reading, why

BROKERS_MAX: Final = 64
LOOKS_AROUND_AFTER_S: Final = 30.0
"""Name servers are asked so often for brokers that have come."""
GROUPS_AFTER_S: Final = 30.0
FOLLOWING: Final = ("SLAVE", "FOLLOWER", "CANDIDATE")
"""Roles of brokers whose tables are another's."""
_GROUPS_SHARE: Final = 20
"""A broker spends at most a twentieth of its time on the question for its groups, at whose queues it looks for that."""
FORGOTTEN_AFTER_S: Final = SPAN_S
"""A broker that no name server knows any more, and that does not answer."""

Row = dict[str, Any]


class Asker(Protocol):
    """What asks brokers; it answers in bounded time."""

    async def brokers_at(self, address: str) -> tuple[NamedBroker, ...]:
        """Raises one of :data:`~rmqha.dashboard.questions.NO_ANSWER`."""
        ...

    async def read_broker(self, broker: NamedBroker, before: Sample | None, lags: dict[str, int] | None) -> Reading:
        """One that does not answer is a reading as well."""
        ...

    async def read_groups(self, broker: NamedBroker) -> list[Row]:
        """Raises one of :data:`~rmqha.dashboard.questions.NO_ANSWER`."""
        ...


@dataclass(eq=False)
class WatchedBroker:
    """What is known of a broker.

    Attributes:
        view: its last answer, as :func:`~rmqha.dashboard.broker_view.broker_view` has it; None: there was none.
        trouble: why it does not answer now; else empty.
        groups: as :func:`~rmqha.dashboard.questions.read_groups` has them; None: not asked yet, or no answer.
        groups_trouble: why they are not known; else empty.
        answered_ms: when it last answered; None: never.
        asked: set once it was.
        scope: of the tasks that ask it.
    """

    broker: NamedBroker
    history: History
    seen_at_s: float
    sample: Sample | None = None
    view: Row | None = None
    trouble: str = ""
    groups: list[Row] | None = None
    groups_trouble: str = ""
    answered_ms: int | None = None
    asked: trio.Event = field(default_factory=trio.Event)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    @property
    def name(self) -> str:
        """Its brokerName; what a name server says, or its address, until it has answered."""
        return str((self.view or {}).get("name") or self.broker.name)

    @property
    def cluster(self) -> str:
        """Its brokerClusterName; empty until it has said it."""
        return str((self.view or {}).get("cluster") or "")

    @property
    def is_slave(self) -> bool:
        """Whether its tables are another's."""
        return self.view["role"] in FOLLOWING if self.view and self.view["role"] else self.broker.is_slave


class Collector:
    """Watches the brokers at some addresses; :meth:`run` does it.

    Attributes:
        watched: by address, in the order in which they were found.
        troubles: by address, why a name server does not tell its brokers.
        interval_s: between two questions to a broker.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        asker: Asker,
        *,
        interval_s: float,
        with_groups: bool = True,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """Nobody is asked yet.

        Args:
            addresses: brokers', or name servers'.
            asker: asks them.
            interval_s: between two questions to a broker.
            with_groups: whether their groups are asked for.
            now_ms: the time of day.
        """
        self.watched: Final[dict[str, WatchedBroker]] = {}
        self.troubles: Final[dict[str, str]] = {}
        self.interval_s: Final = interval_s
        self.now_ms: Final = now_ms
        self._addresses: Final = tuple(addresses)
        self._asker: Final = asker
        self._with_groups: Final = with_groups
        self._found: Final[dict[str, tuple[NamedBroker, ...]]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                async with trio.open_nursery() as looking:
                    for address in self._addresses:
                        looking.start_soon(self._look_at, address, nursery)
                self._forget_the_gone()
                await trio.sleep(LOOKS_AROUND_AFTER_S)

    async def _look_at(self, address: str, nursery: trio.Nursery) -> None:
        """Find the brokers at an address, and have them watched. One that is silent is a broker until it says else."""
        try:
            found = await self._asker.brokers_at(address)
            self.troubles.pop(address, None)
        except NO_ANSWER as error:
            found = self._found.get(address, (NamedBroker(address, address),))
            if any(one.address != address for one in found):
                self.troubles[address] = why(error)
        self._found[address] = found
        for broker in found:
            self._watch(broker, nursery)
        if address in self.watched and all(one.address != address for one in found):
            self.watched.pop(address).scope.cancel()  # it was silent, and is a name server

    def _watch(self, broker: NamedBroker, nursery: trio.Nursery) -> None:
        known = self.watched.get(broker.address)
        if known is not None:
            known.broker, known.seen_at_s = broker, trio.current_time()
        elif broker.address in self._addresses or len(self.watched) < BROKERS_MAX:
            watched = WatchedBroker(broker, History(interval_s=self.interval_s), seen_at_s=trio.current_time())
            self.watched[broker.address] = watched
            nursery.start_soon(self._keep_asking, watched)

    def _forget_the_gone(self) -> None:
        now = trio.current_time()
        for address, watched in list(self.watched.items()):
            if watched.trouble and now - watched.seen_at_s > FORGOTTEN_AFTER_S:
                self.watched.pop(address).scope.cancel()

    def groups(self) -> dict[str, str]:
        """By address, what the broker's group is called: its brokerName, with the cluster where several have that name.

        One that has yet to say its cluster counts to the only one with its name.
        """
        clusters: dict[str, set[str]] = {}
        for one in self.watched.values():
            clusters.setdefault(one.name, set()).update({one.cluster} - {""})
        return {
            address: one.name if len(clusters[one.name]) < 2 else f"{one.name} ({one.cluster or 'cluster not known'})"
            for address, one in self.watched.items()
        }

    def readers(self) -> list[WatchedBroker]:
        """Who is asked for tables and messages: masters that answer; of a group without any a slave, or the silent."""
        best, groups = dict[str, list[WatchedBroker]](), self.groups()
        for watched in sorted(self.watched.values(), key=lambda one: (bool(one.trouble), one.is_slave)):
            known = best.setdefault(groups[watched.broker.address], [])
            if not known or not (watched.trouble or watched.is_slave):
                known.append(watched)
        return [watched for known in best.values() for watched in known]

    async def _keep_asking(self, watched: WatchedBroker) -> None:
        with watched.scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(_repeat, self._sample, watched, interval_s=self.interval_s, share=2))
                if self._with_groups:
                    await watched.asked.wait()
                    groups = partial(_repeat, self._ask_for_groups, watched, interval_s=GROUPS_AFTER_S)
                    nursery.start_soon(partial(groups, share=_GROUPS_SHARE))

    async def _sample(self, watched: WatchedBroker) -> None:
        groups = watched.groups
        lags = None if groups is None else {row["group"]: row["lag"] for row in groups}
        self._take(watched, await self._asker.read_broker(watched.broker, watched.sample, lags))
        watched.asked.set()

    async def _ask_for_groups(self, watched: WatchedBroker) -> None:
        if watched not in self.readers():
            watched.groups, watched.groups_trouble = None, ""
            return
        try:
            watched.groups = await self._asker.read_groups(watched.broker)
            watched.groups_trouble = ""
        except NO_ANSWER as error:
            watched.groups, watched.groups_trouble = None, why(error)

    def _take(self, watched: WatchedBroker, reading: Reading) -> None:
        now_ms = self.now_ms()
        watched.sample, watched.trouble = reading.sample, reading.sample.trouble
        watched.history.add(reading.sample, time_ms=now_ms)
        if reading.view is not None:
            watched.view, watched.answered_ms = reading.view, now_ms


async def _repeat(
    do: Callable[[WatchedBroker], Awaitable[None]], watched: WatchedBroker, *, interval_s: float, share: int
) -> None:
    """Each ``interval_s``, and for no more than one part of ``share`` of the time; until cancelled."""
    while True:
        began_at = trio.current_time()
        await do(watched)
        took_s = trio.current_time() - began_at
        await trio.sleep_until(began_at + max(interval_s, share * took_s))
