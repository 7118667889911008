"""AnswersInTurns: requests whose answers take long to make: a look at all queues of a topic, at all offsets."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from rmqha.codec.codes import ResponseCode
from rmqha.codec.host import host_of
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.connection import Connection
from rmqha.waiting import FairLock

ASKED_MAX: Final = 16
"""Of one connection. mqadmin asks one after the other; the exporter's few tasks share a connection."""


class AnswersInTurns:
    """One answer is made at a time, hosts taking turns; everybody else goes on meanwhile."""

    def __init__(self) -> None:
        self._turns: Final = FairLock()
        self._asked: Final = Counter[Connection]()

    def answer(
        self,
        connection: Connection,
        request: RemotingCommand,
        make: Callable[[], Awaitable[RemotingCommand]],
        *,
        keeps_request: bool = False,
    ) -> None:
        """Answer ``request`` with what ``make`` makes when it is its turn; an error of ours is the answer, too.

        Args:
            connection: that of the client.
            request: from it.
            make: makes the answer.
            keeps_request: ``make`` needs the request's body: it stays on the account of what is in flight.
        """
        if self._asked[connection] >= ASKED_MAX or not connection.takes_answers:
            remark = "answers wait to be taken: read them, then ask again"
            connection.respond(request, ResponseCode.SYSTEM_BUSY, remark=remark)
            return
        self._asked[connection] += 1
        kept = request if keeps_request else connection.let_go(request)
        connection.start_soon(self._answer, connection, kept, make)

    async def _answer(
        self, connection: Connection, request: RemotingCommand, make: Callable[[], Awaitable[RemotingCommand]]
    ) -> None:
        try:
            with connection.fenced(request):
                await connection.wait_taken()  # before its turn: who takes nothing keeps nobody else waiting
                async with self._turns.turn(host_of(connection.peer)):
                    response = await make()
                connection.send_reply(request, response)
        finally:
            self._asked[connection] -= 1
            if not self._asked[connection]:
                del self._asked[connection]
