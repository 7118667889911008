"""LogSource: a slave's tables come from the master from which its log comes, or not at all."""

from collections.abc import Awaitable, Callable
from typing import Final

from rmqha.errors import RemoteProtocolError
from rmqha.replication.log_master import BrokerProcess, why_another

_AskProcess = Callable[[str], Awaitable[BrokerProcess | None]]
"""Asks the broker that listens there who it is; None: it does not say."""


class LogSource:
    """Compares who answers below the HA port with who tells tables.

    Attributes:
        master: where the master takes clients from which the log comes, as that one says; empty while it is not known.
    """

    def __init__(self, ask: _AskProcess) -> None:
        self.master = ""
        self._ask: Final = ask
        self._known_other = ("", "", "")
        """The two addresses at which two masters were found, and why they are two."""

    async def check(self, address: str, told: BrokerProcess | None, *, ha_address: tuple[str, int] | None) -> None:
        """Whether the broker at ``address`` is the one whose log comes from ``ha_address``, or that one's master.

        Once they were told apart they count as two while either does not answer: the right master may be restarting.

        Raises:
            RemoteProtocolError: they are two.
        """
        if ha_address is None:
            return
        host, ha_port = ha_address
        beside = f"{host}:{ha_port - 1}"
        source = told if beside == address else await self._ask(beside)
        if source is not None and source.ha_port != ha_port:
            source = None
        self.master = source.head if source is not None else ""
        if told is not None and source is not None:
            self._known_other = address, beside, why_another(told, source, ha_address=f"{host}:{ha_port}")
        if self._known_other[:2] == (address, beside) and (why := self._known_other[2]):
            raise RemoteProtocolError(f"nothing is taken over from {address}: {why}")
