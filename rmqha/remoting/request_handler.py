"""RequestHandler: what a connection asks of those who answer its requests."""

from typing import TYPE_CHECKING, Protocol

from rmqha.codec.usual.sends import Request

if TYPE_CHECKING:
    from rmqha.remoting.connection import Connection


class RequestHandler(Protocol):
    """Who answers the requests."""

    def process(self, connection: "Connection", requests: list[Request]) -> int:
        """Handle what arrived at once, or as many of the first as :attr:`Connection.is_turn_over` allows.

        Each request gets exactly one answer, now or later; for a one-way request that is
        :meth:`Connection.finish_oneway`, which :meth:`Connection.respond` and :meth:`Connection.send_reply` do.

        Returns:
            How many were handled, at least one; the others come again, in the next turn.
        """
        ...

    def connection_closed(self, connection: "Connection") -> None:
        """Forget ``connection``; answers to it go nowhere from now on."""
        ...
