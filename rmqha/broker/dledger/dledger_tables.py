"""DLedgerTables: what a follower's broker has from its leader's: topics, consumers' offsets, where queues end.

The log alone is replicated by the group. Where the leader's broker is, its member says (METADATA, ``rmqhaStatus``):
no name server is needed. One of RocketMQ's does not say, but a name server may know; else there is the log alone.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final

import structlog
import trio

from rmqha.broker import options
from rmqha.broker.dledger.last_changes import Told, look_for_last_changes
from rmqha.broker.group import ReplicationGroup
from rmqha.broker.master_link import MasterLink
from rmqha.broker.name_servers import NameServers
from rmqha.broker.slave_synchronize import SlaveSynchronize
from rmqha.broker.tables.metadata import MetadataService
from rmqha.broker.tables.queue_ends_client import QueueEndsClient, not_learned
from rmqha.broker.tables.tables_origin import TablesOrigin
from rmqha.codec.host import join_address
from rmqha.config import BrokerConfig
from rmqha.dledger.dledger_client import open_dledger_client
from rmqha.dledger.peer_connection import NO_MEMBER
from rmqha.dledger.server_options import ServerOptions
from rmqha.errors import MQBrokerError, RmqhaError
from rmqha.store.message_store import DefaultMessageStore
from rmqha.tls import secured
from rmqha.transport import Network

logger = structlog.get_logger()

_AGAIN_S: Final = 0.5
_LOOKS_AGAIN_S: Final = 0.1
_NEXT: Final = "asked again; reads go on. If it is a broker of RocketMQ's, set namesrvAddr on all"
_LAGS_MS: Final = 90_000
"""A note on the disk may be so much older than the tables beside it, as one is made each minute."""
_WRONG_ADDRESS: Final = (
    "topics, groups and offsets stay there alone, and are lost with its leadership: stop all members, that one last, "
    "correct its brokerIP1 and listenPort, and start all"
)
_NEXT_WITHOUT_ENDS: Final = (
    "this broker takes messages all the same: in queues whose messages had all expired it begins at 0 again, and "
    "consumers that were farther pass over them until they are reset"
)
_NEXT_WITHOUT_TABLES: Final = (
    "this broker's own topics, groups and consumers' offsets are those of all from now on: see what is missing"
)
_NEXT_WITHOUT_CHANGES: Final = (
    "what the last master was told in its last seconds, or while this member stood still, may be missing: topics, "
    "groups, consumers' offsets"
)
_ANSWER_S: Final = 3.0
_OTHERS_S: Final = 5.0
"""So long a new leader tries to learn from the others what it lacks."""
_NEWS_S: Final = 1.0
"""So long it waits for those who may know of newer ones, or of newer topics."""


class DLedgerTables:
    """Asks the leader's member, and then its broker, by short connections."""

    def __init__(
        self,
        config: BrokerConfig,
        member: ServerOptions,
        store: DefaultMessageStore,
        metadata: MetadataService,
        *,
        network: Network,
        group: ReplicationGroup,
        names: NameServers,
        beginnings: Callable[[], int],
    ) -> None:
        """Nobody is asked yet.

        Args:
            config: the operator's decisions.
            member: the same for this member of the group.
            store: on the group's log.
            metadata: the tables.
            network: the door to the others.
            group: who this broker is.
            names: the name servers.
            beginnings: how often the log has begun anew.
        """
        self._names: Final = names
        self._member: Final = member
        self._store: Final = store
        self._metadata: Final = metadata
        self._plain: Final = network
        self._network: Final = secured(network, *options.client_tls(config))
        self._link: Final = MasterLink(self._network, config, group)
        self._slave_synchronize: Final = SlaveSynchronize(self._link, metadata)
        self._ends: QueueEndsClient | None = None
        """Of the leader that is followed."""
        self._beginnings: Final = beginnings
        self._ends_known_of = -1
        """Of the log's beginning of that number it was learned where queues ended before it."""
        self._followed: str | None = None
        """Which master was followed last, and how often tables had been taken over when that began; before there was
        one, any leader."""
        self._rounds_before = 0
        self._followed_term = -2
        self._origin = TablesOrigin()
        """Of the tables before those of :attr:`_followed`."""
        self._master_since = -inf
        self._has_no_broker = False
        """A leader is followed that does not say where its broker is."""
        metadata.offsets.elect(store.role)
        metadata.origin = lambda: self.origin

    @property
    def are_expected(self) -> bool:
        """Whether it did not fail the last time, as a follower, to find the leader's broker or to take over its own."""
        return not (self._has_no_broker or self._slave_synchronize.failure)

    @property
    def are_told(self) -> bool:
        """Whether another has been master since this broker was, and has told it its tables; or this never was."""
        return not self._origin.was_master or (self._followed is not None and self._has_tables)

    @property
    def credentials_kept(self) -> str:
        """As :attr:`MasterLink.credentials_kept`."""
        return self._link.credentials_kept

    async def find_broker(self, leader_id: str) -> str:
        """``host:port`` of the broker of the member that leads; asks until it says so."""
        if not self._has_had_tables:
            self._followed = leader_id
        self._has_no_broker = False
        while not (address := await self._ask(leader_id)):
            if not self._has_no_broker:
                self._has_no_broker = True
                logger.warning("dledger_tables.broker_unknown", leader=leader_id, next=_NEXT)
            await trio.sleep(_AGAIN_S)
        self._has_no_broker = False
        return address

    async def _ask(self, member_id: str) -> str | None:
        """Where the broker of a member is; empty if that does not say, None if it does not answer."""
        peers = {member_id: join_address(*self._member.peers[member_id])}
        try:
            async with open_dledger_client(group=self._member.group, peers=peers, network=self._plain) as client:
                told = await client.metadata(member_id, timeout_s=_ANSWER_S)
        except RmqhaError as error:
            if isinstance(error, MQBrokerError):
                self._slave_synchronize.failure = f"{member_id} at {peers[member_id]}: {NO_MEMBER}"
            logger.debug("dledger_tables.no_answer", member=member_id, reason=str(error))
            return None
        if told.rmqha_status is None:
            return await self._find_rocketmq(member_id)
        return told.rmqha_status.broker_address or ""

    async def _find_rocketmq(self, leader_id: str) -> str:
        """As a name server knows it, who may name the master of an earlier term: the broker is asked itself."""
        address = await self._names.find_master()
        return address if address and await self._link.is_member(address, leader_id, self._member.group) else ""

    async def follow(self, leader_id: str, address: str, *, term: int) -> None:
        """Keep the tables like those of the leader's broker at ``address``, which leads ``term``, until cancelled."""
        self._slave_synchronize.failure = ""
        self._ends = ends = self._ends_client(address)
        await self._wait_master(leader_id, address)
        self._origin = self.origin
        self._followed, self._followed_term, self._rounds_before = leader_id, term, self._slave_synchronize.rounds
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_ends, ends)
            nursery.start_soon(partial(self._slave_synchronize.run, address, term=term))

    async def _wait_master(self, leader_id: str, address: str) -> None:
        """What a leader has that is not yet master may be older than what is here, and just be asked for.

        Another member, or this one itself, never will be while that one leads: its leader says a wrong address.
        """
        while (found := await self._link.who_is_no_master_yet(address)) is not None:
            if found not in {"", leader_id} and not self._slave_synchronize.failure:
                failure = (
                    f"{leader_id} leads, and says that its broker is at {address}, where {found} is: {_WRONG_ADDRESS}"
                )
                self._slave_synchronize.failure = failure
                logger.warning("dledger_tables.wrong_address", leader=leader_id, address=address, found=found)
            await trio.sleep(_LOOKS_AGAIN_S)
        self._slave_synchronize.failure = ""

    def _ends_client(self, address: str) -> QueueEndsClient:
        return QueueEndsClient(
            self._network,
            address,
            store=self._store,
            queue_ends=self._metadata.queue_ends,
            check_group=self._link.check_group,
            credentials=self._link.credentials,
        )

    async def _follow_ends(self, ends: QueueEndsClient) -> None:
        """Learn them, and again whenever this log begins anew, as a follower's may at any time.

        Of what it has never had only others know where that ended.
        """
        while True:
            beginning = self._beginnings()
            await ends.run()
            self._ends_known_of = beginning
            while self._beginnings() == beginning:  # noqa: ASYNC110 - a log that begins anew tells nobody
                await trio.sleep(_AGAIN_S)

    @property
    def _knows_ends(self) -> bool:
        """Of all queues; a process before this one may have left its log without them."""
        return self._store.min_offset == 0 or self._ends_known_of == self._beginnings()

    @property
    def _has_tables(self) -> bool:
        """Whether those of the master that was followed last are taken over; who follows nobody has the newest."""
        return self._followed is None or self._slave_synchronize.rounds > self._rounds_before

    @property
    def _has_had_tables(self) -> bool:
        """Whether in this process's life they were once those of all."""
        return self._origin.was_master or self._slave_synchronize.rounds > 0

    @property
    def origin(self) -> TablesOrigin:
        """Whose tables these are: a leader that has just started takes the newest."""
        if self._followed is None and self._origin.was_master:
            return replace(self._origin, for_ms=int((trio.current_time() - self._master_since) * 1000))
        if self._followed is not None and self._has_tables and self._followed_term >= 0:
            told, term = self._slave_synchronize.origin, self._followed_term
            return TablesOrigin(term, for_ms=told.for_ms if told.term == term else 0, leader_id=self._followed)
        return max(self._origin, self._metadata.found)

    async def learn_as_leader(self) -> None:
        """Learn what a follower does, as a leader that is so new that it has not; for some seconds.

        It may even lead before it has followed anybody: a member that had stood for the present term, and is started
        again, asks for votes in the next at once, and others who hear of that follow their leader no more.
        Its tables may be as old as its last stop, and all others will have them. Without the ends of queues the places
        of messages that are deleted would be given again, to messages that consumers pass over.
        """
        if self._followed is not None and not self._has_tables:
            with trio.move_on_after(_OTHERS_S):
                await self._take_tables(self._followed)
        if self._has_had_tables:
            await self._take_last_changes()
        is_sure = self._has_had_tables or await self._take_newest()
        if not (self._has_tables and is_sure):
            logger.warning("dledger_tables.not_taken_over", leader=self._followed, next=_NEXT_WITHOUT_TABLES)
        if self._metadata.topics.learned:
            await self._grow_learned_topics()
        if not self._knows_ends:
            await self._ask_others(self._learn_ends_of, lambda: self._knows_ends)
            if not self._knows_ends:
                logger.warning("dledger_tables.ends_unknown", next=_NEXT_WITHOUT_ENDS)

    async def _grow_learned_topics(self) -> None:
        """Ask all, once, how many queues topics have that the last master made and did not live to tell this one of.

        The log tells of queues with messages alone, and all others will have what this one has.
        """

        async def ask_one(peer: str) -> None:
            if address := await self._ask(peer):
                await self._slave_synchronize.grow_learned_topics(address)

        with trio.move_on_after(_NEWS_S):
            async with trio.open_nursery() as nursery:
                for peer in self._others:
                    nursery.start_soon(ask_one, peer)

    @property
    def _others(self) -> list[str]:
        return [peer for peer in self._member.peers if peer != self._member.store.self_id]

    def note_is_master(self, term: int) -> None:
        """From now on, in ``term``, nobody's tables are newer than those of this broker."""
        self_id = self._member.store.self_id
        self._origin, self._followed = TablesOrigin(term, was_master=True, leader_id=self_id), None
        self._master_since = trio.current_time()

    async def _ask_others(self, ask: Callable[[str], Awaitable[bool]], is_done: Callable[[], bool]) -> None:
        """Ask all, and again those who did not answer, until it is done; no longer than some seconds."""
        silent = set(self._others)

        async def ask_one(peer: str) -> None:
            if await ask(peer):
                silent.discard(peer)

        with trio.move_on_after(_OTHERS_S):
            while silent and not is_done():
                with trio.move_on_after(_ANSWER_S):
                    async with trio.open_nursery() as nursery:
                        for peer in sorted(silent):
                            nursery.start_soon(ask_one, peer)
                if silent and not is_done():
                    await trio.sleep(_AGAIN_S)

    async def _take_tables(self, peer: str) -> None:
        if address := await self._ask(peer):
            await self._slave_synchronize.synchronize(address)

    async def _take_last_changes(self) -> None:
        """Take what the last master was told by clients since it was asked for its tables, if it has only handed over.

        It need not be that which was followed last: of two changes at once nobody may have noticed the first. One that
        was restarted meanwhile may have older tables, or none.
        """
        last = TablesOrigin(self._store.role.term - 1, was_master=True)
        found, is_sure = await look_for_last_changes(self._others, self._ask_origin, last=last)
        newest = max(found, key=lambda one: found[one], default="")
        if newest and found[newest] > self._of_this_history(self.origin):
            with trio.move_on_after(_OTHERS_S) as limit:
                await self._slave_synchronize.synchronize(newest)
            is_sure = is_sure and not limit.cancelled_caught
        if not is_sure:
            logger.warning("dledger_tables.last_changes_not_taken", next=_NEXT_WITHOUT_CHANGES)

    async def _ask_origin(self, peer: str) -> Told:
        address = await self._ask(peer)
        origin = await self._link.ask_tables_origin(address) if address else None
        return Told(address, None if origin is None else self._of_this_history(origin))

    def _of_this_history(self, origin: TablesOrigin) -> TablesOrigin:
        """Terms that are yet to come are of another one: somebody's copy of a disk."""
        return origin if origin.term < self._store.role.term else TablesOrigin(-1)

    async def _take_newest(self) -> bool:
        """Take the newest tables of those that others have, or found on their disks.

        What they had from this member, before it was restarted, is mostly older: a topic or a group is on its disk
        before anybody hears of it. Where that disk took nothing more for a while, or is a copy, it is newer, and
        these go forward by it.

        Returns:
            Whether a majority was heard, and what it has that is newer was taken; it is told of else.
        """
        found, own = dict[str, TablesOrigin](), self.origin
        peers = self._member.peers
        if own.term >= self._store.role.term:  # of another history, too
            own = TablesOrigin()

        async def look_at(peer: str) -> bool:
            address, origin = await self._ask_origin(peer)
            if address and origin is not None:
                found[address] = origin
            return address == "" or address in found

        def is_found() -> bool:
            """A former master has the newest; without one all are asked, as long as that may take."""
            return len(found) + 1 > len(peers) // 2 and (newest().was_master or are_own())

        def newest() -> TablesOrigin:
            return max(found.values(), default=TablesOrigin())

        def are_own() -> bool:
            is_told_here = newest().leader_id == self._member.store.self_id and self._metadata.had_topics
            return is_told_here and own.term in (-1, newest().term)

        await self._ask_others(look_at, is_found)
        is_far_behind = own.term == newest().term and own.for_ms + _LAGS_MS < newest().for_ms
        if are_own() and not is_far_behind:
            if own.term < newest().term or own.for_ms < newest().for_ms:
                return await self._go_forward(max(found, key=lambda one: found[one]))
            return True
        with trio.move_on_after(_OTHERS_S):
            for address in sorted(found, key=lambda one: found[one], reverse=True):
                if found[address] > own and not self._has_had_tables:
                    await self._slave_synchronize.synchronize(address)
        is_newest = self._has_had_tables or not newest() > own
        return is_newest and len(found) + 1 > len(peers) // 2

    async def _go_forward(self, address: str) -> bool:
        """Take what this member told the broker there, in a process before, and does not know any more; or say why."""
        failure = "it does not answer"
        with trio.move_on_after(_OTHERS_S):
            failure = (await self._slave_synchronize.merge(address, is_lost=False, next_offset=None)).failure
        logger.info("dledger_tables.gone_forward", address=address, failure=failure or None)
        return not failure

    async def _learn_ends_of(self, peer: str) -> bool:
        """Whether there is no use in asking it again."""
        address, beginning = await self._ask(peer), self._beginnings()
        if not address:
            return address == ""
        if not await self._ends_client(address).learn(before=self._store.min_offset):
            return False
        self._ends_known_of = beginning
        return True

    def not_learned(self) -> list[str]:
        """What a follower could not get from its leader's broker the last time it asked, a sentence each."""
        return not_learned(self._slave_synchronize.failure, self._ends, had_tables=self._slave_synchronize.rounds > 0)
