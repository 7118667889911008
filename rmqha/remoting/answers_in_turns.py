"""AnswersInTurns: requests whose answers take long to make: a look at all queues of a topic, at all offsets."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from rmqha.codec.codes import ResponseCode
from rmqha.codec.host import host_of
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.connection import Connection
from rmqha.shares import Shares
from rmqha.waiting import FairLock

ASKED_MAX: Final = 16
"""Of one connection. mqadmin asks one after the other; the exporter's few tasks share a connection."""
WAITING_MAX: Final = 4096
"""Of all. Each is a task, and when clients leave, theirs end at one moment: ten thousand take a second."""


class AnswersInTurns:
    """One answer is made at a time, hosts taking turns; everybody else goes on meanwhile.

    Invariant: at most ``asked_max`` requests of a connection wait, :data:`WAITING_MAX` of all, and of one host no more
    than it leaves to all others.
    """

    def __init__(self, *, asked_max: int = ASKED_MAX) -> None:
        self._asked_max: Final = asked_max
        self._turns: Final = FairLock()
        self._asked: Final = Counter[Connection]()
        self._waiting = 0
        self._shares: Final = Shares()

    def answer(
        self,
        connection: Connection,
        request: RemotingCommand,
        make: Callable[[], Awaitable[RemotingCommand | None]],
        *,
        prepare: Callable[[], Awaitable[None]] | None = None,
        settle: Callable[[], Awaitable[RemotingCommand]] | None = None,
        keeps_request: bool = False,
    ) -> None:
        """Answer ``request`` with what ``make`` makes when it is its turn; an error of ours is the answer, too.

        Args:
            connection: that of the client.
            request: from it.
            make: makes the answer; None: it has sent it itself, or ``settle`` is to make it.
            prepare: awaited before its turn. It may take a while, and keeps nobody from a turn.
            settle: awaited when ``make`` has ended, and makes the answer. For what waits for a disk or a peer: it may
                take seconds, and keeps nobody from a turn.
            keeps_request: ``make`` needs the request's body: it stays on the account of what is in flight.
        """
        if problem := self._problem(connection):
            connection.respond(request, ResponseCode.SYSTEM_BUSY, remark=problem)
            return
        self._count(connection, 1)
        kept = request if keeps_request else connection.let_go(request)
        connection.start_soon(self._answer, connection, kept, prepare, make, settle)

    def _problem(self, connection: Connection) -> str:
        """Why nothing more is taken from this client now; empty if something is."""
        if self._asked[connection] >= self._asked_max or not connection.takes_answers:
            return "answers wait to be taken: read them, then ask again"
        if not self._shares.has_room(host_of(connection.peer), 1, free=WAITING_MAX - self._waiting):
            return f"{self._waiting} requests wait for their answers already: ask again later"
        return ""

    def _count(self, connection: Connection, change: int) -> None:
        self._asked[connection] += change
        if not self._asked[connection]:
            del self._asked[connection]
        self._waiting += change
        self._shares.add(host_of(connection.peer), change)

    async def _answer(
        self,
        connection: Connection,
        request: RemotingCommand,
        prepare: Callable[[], Awaitable[None]] | None,
        make: Callable[[], Awaitable[RemotingCommand | None]],
        settle: Callable[[], Awaitable[RemotingCommand]] | None,
    ) -> None:
        try:
            with connection.fenced(request):
                await connection.wait_taken()  # before its turn: who takes nothing keeps nobody else waiting
                if prepare is not None:
                    await prepare()
                async with self._turns.turn(host_of(connection.peer)):
                    response = await make()
                if settle is not None:
                    response = await settle()
                if response is not None:
                    connection.send_reply(request, response)
        finally:
            self._count(connection, -1)
