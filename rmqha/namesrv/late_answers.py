"""LateAnswers: what takes long to answer is done beside everything else, one request at a time."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from rmqha.codec.codes import ResponseCode
from rmqha.codec.host import host_of
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.connection import Connection
from rmqha.waiting import FairLock

Make = Callable[[], Awaitable[RemotingCommand]]
"""Makes the answer, and lets others have their turn meanwhile. What it raises is answered as by any processor."""

WAITING_MAX: Final = 16
"""Requests of one connection that wait for their turn."""


class LateAnswers:
    """Those of different hosts have their turn one after the other, however many one asks."""

    def __init__(self) -> None:
        self._turns: Final = FairLock()
        self._waiting: Final = Counter[Connection]()

    def later(self, connection: Connection, request: RemotingCommand, make: Make) -> RemotingCommand | None:
        """Have ``request`` answered later, which None says; or refuse it now, for this client has asked too much."""
        if self._waiting[connection] >= WAITING_MAX or not connection.takes_answers:
            remark = "earlier requests wait for their turn, or their answers to be taken: ask again later"
            return RemotingCommand(ResponseCode.SYSTEM_BUSY, remark=remark)
        self._waiting[connection] += 1
        connection.start_soon(self._answer, connection, request, make)
        return None

    async def _answer(self, connection: Connection, request: RemotingCommand, make: Make) -> None:
        try:
            with connection.fenced(request):
                async with self._turns.turn(host_of(connection.peer)):
                    answer = await make()
                connection.send_reply(request, answer)
        finally:
            self._waiting[connection] -= 1
            if not self._waiting[connection]:
                del self._waiting[connection]
