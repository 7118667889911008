"""Transactions: a producer that ends them at once, late, or only when it is asked."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

import trio

from rmqha.broker.transaction.half_message import HALF_TOPIC, OP_TOPIC
from rmqha.codec.codes import RequestCode
from rmqha.codec.headers import decode_header, encode_header
from rmqha.codec.record.layout import SysFlag
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.transaction_headers import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from tests.sim.sim_clock import EPOCH_MS, stream
from tests.sim.swarm import CHAOS_S
from tests.sim.takeover.envoy import Envoy, fields_of
from tests.sim.takeover.ledger import Ledger
from tests.sim.workload import PAID, QUEUES, Message

if TYPE_CHECKING:
    from tests.sim.sim_client import SimClient
    from tests.sim.world import World

GROUP: Final = "payers"
_NUMBERS_FROM: Final = 400_000
_LOOK_S: Final = 1.0
_VISIBLE_S: Final = 15.0
"""So long an end may wait until its half message can be seen."""


@dataclass(eq=False, slots=True)
class Deal:
    """One transaction. It is ended from the ``chapter`` on; with ``is_silent`` only when somebody asks."""

    number: int
    commits: bool
    chapter: int
    is_silent: bool
    is_answered: bool = False
    """It is known whether the half message is SEND_OK."""
    place: tuple[int, int] | None = None
    committed_at: float = inf
    """When a commit was first sent."""

    @property
    def name(self) -> bytes:
        """What its body begins with."""
        return b"<t%d" % self.number


class Transactions:
    """One producer, and what is wrong with what came of its transactions."""

    def __init__(self, world: "World") -> None:
        self._world: Final = world
        self._random: Final = stream(world.seed, "takeover/transactions")
        self._envoy: Final = Envoy(world, greet=_heartbeat, on_question=self._on_question)
        self._deals: Final[dict[bytes, Deal]] = {}
        self.chapter = 0
        """How many times a master has been replaced at rest."""

    async def run(self) -> None:
        """Begin some during the chaos; afterwards stay connected, for questions."""
        for at in sorted(self._random.uniform(0.0, CHAOS_S) for _ in range(self._random.randint(0, 4))):
            await trio.sleep_until(at)
            await self._begin(self._draw(chapters=(0, 0, 1)))
        while True:
            await self._envoy.connected()
            await trio.sleep(_LOOK_S)

    async def begin_some(self, *, is_last: bool) -> None:
        """Some that end at once, and, unless this is the last chapter, some that stay open."""
        later = self.chapter if is_last else self.chapter + 1
        for chapters in ((self.chapter,), (later,), (self.chapter, later)):
            if self._random.random() < 0.7:
                await self._begin(self._draw(chapters=chapters))

    async def end_due(self, ledger: Ledger) -> None:
        """A chapter has begun: some end what they began in an earlier one, by the place that they were told then.

        And some commit what has ended, as the log said when all was at rest, by any of its places.
        """
        for deal in self._deals.values():
            if deal.chapter == self.chapter and not deal.is_silent:
                await self._end(deal)
            halves = ledger.records[HALF_TOPIC].get(deal.name, [])
            has_ended = any(b"%d" % half.queue_offset in ledger.records[OP_TOPIC] for half in halves)
            if has_ended and self._random.random() < 0.5 and (client := await self._envoy.connected()) is not None:
                half = self._random.choice(halves)
                place = half.queue_offset, half.physical_offset
                self._ask_end(client, deal, place, is_asked=True, how=SysFlag.TRANSACTION_COMMIT)

    def _draw(self, *, chapters: tuple[int, ...]) -> Deal:
        number, random = _NUMBERS_FROM + len(self._deals), self._random
        return Deal(number, random.random() < 0.6, random.choice(chapters), random.random() < 0.5)

    async def _begin(self, deal: Deal) -> None:
        self._deals[deal.name] = deal
        body = deal.name + b">" + self._random.randbytes(self._random.choice((0, 40, 200)))
        properties = f"TAGS\x01t\x02UNIQ_KEY\x01{deal.number:032X}\x02TRAN_MSG\x01true\x02PGROUP\x01{GROUP}"
        fields = fields_of(PAID, self._random.randrange(QUEUES), properties, sys_flag=SysFlag.TRANSACTION_PREPARED)
        request = RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=body)
        self._world.journal.record("half", deal.number, deal.commits, deal.chapter, deal.is_silent)
        deal.place = await self._envoy.send(request, Message(deal.number, trio.current_time(), HALF_TOPIC, 0, body))
        deal.is_answered = True
        if deal.place is None:  # as Java's producers: what is not SEND_OK is rolled back
            deal.commits = False
        elif deal.chapter <= self.chapter and not deal.is_silent:
            await self._end(deal)

    async def _end(self, deal: Deal) -> None:
        client = await self._envoy.connected()
        if client is not None and deal.place is not None:
            self._ask_end(client, deal, deal.place, is_asked=False)

    def _ask_end(
        self, client: "SimClient", deal: Deal, place: tuple[int, int], *, is_asked: bool, how: int | None = None
    ) -> None:
        if how is None:
            how = SysFlag.TRANSACTION_COMMIT if deal.commits else SysFlag.TRANSACTION_ROLLBACK
        if deal.commits:
            deal.committed_at = min(deal.committed_at, trio.current_time())
        header = EndTransactionRequestHeader(GROUP, *place, how, from_transaction_check=is_asked)
        self._world.journal.record("end", deal.number, how, is_asked)
        client.ask(
            RemotingCommand(RequestCode.END_TRANSACTION, ext_fields=encode_header(header)),
            lambda answer: self._world.journal.record("ended", deal.number, int(answer.code)),
            lambda _: None,
            timeout_s=_VISIBLE_S + self._world.swarm.patience_s,
        )

    def _on_question(self, client: "SimClient", question: RemotingCommand) -> None:
        if question.code != RequestCode.CHECK_TRANSACTION_STATE:
            return
        header = decode_header(CheckTransactionStateRequestHeader, question)
        deal = next((deal for deal in self._deals.values() if deal.name + b">" in question.body), None)
        if deal is None:
            self._violation(f"a producer is asked about what it never sent: {header}")
            return
        self._world.journal.record("asked", deal.number)
        if deal.is_answered and deal.chapter <= self.chapter:
            place = header.tran_state_table_offset, header.commit_log_offset
            self._world.later(0.0, partial(self._answer, client, deal, place))

    def _answer(self, client: "SimClient", deal: Deal, place: tuple[int, int]) -> None:
        if client.is_usable:
            self._ask_end(client, deal, place, is_asked=True)

    # ---- afterwards

    def names(self, chosen: Callable[[Deal], bool]) -> set[bytes]:
        """Of some of them."""
        return {name for name, deal in self._deals.items() if chosen(deal)}

    def lacks(self, ledger: Ledger) -> set[bytes]:
        """What should be visible by now, as soon as its producer was asked."""
        wanted = self.names(lambda deal: deal.commits and deal.place is not None and deal.chapter <= self.chapter)
        return wanted - ledger.records[PAID].keys()

    @property
    def are_open(self) -> bool:
        """Whether somebody is still to end in a later chapter."""
        return any(deal.chapter > self.chapter for deal in self._deals.values())

    def check(self, ledger: Ledger) -> None:
        """Nothing is visible that nobody committed, or before that."""
        for name, records in ledger.records[PAID].items():
            deal = self._deals.get(name)
            if deal is None or not deal.commits:
                self._violation(f"{name!r} is visible, and was never committed")
            elif self._world.clocks_agree and records[0].store_timestamp_ms < EPOCH_MS + int(1000 * deal.committed_at):
                self._violation(f"{name!r} is visible before its commit at {deal.committed_at:.3f}")

    def _violation(self, what: str) -> None:
        self._world.checker.violation("half", what)


def _heartbeat() -> RemotingCommand:
    body = b'{"clientID":"payer","consumerDataSet":[],"producerDataSet":[{"groupName":"%s"}]}' % GROUP.encode()
    return RemotingCommand(RequestCode.HEART_BEAT, body=body)
