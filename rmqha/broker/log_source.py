"""LogSource: a slave's tables come from the master from which its log comes, or not at all."""

from collections.abc import Awaitable, Callable
from typing import Final

from rmqha.errors import RemoteProtocolError
from rmqha.replication.log_master import BrokerProcess, why_another

_AskProcess = Callable[[str], Awaitable[BrokerProcess | None]]
"""Asks the broker that listens there who it is; None: it does not say."""

_AWAY: Final = (
    "whether the broker at {} is the master of the log here is not known yet: the one at haMasterAddress={} is not "
    "followed, and nobody at {} says who that is"
)


class LogSource:
    """Compares who answers below the HA port with who tells tables.

    Attributes:
        master: where the master takes clients from which the log comes, as that one says; empty while it is not known.
    """

    def __init__(self, ask: _AskProcess) -> None:
        self.master = ""
        self._ask: Final = ask
        self._compared = ("", "", "")
        """Two addresses at which brokers have said who they are, and why they are two; empty: they are one."""

    async def check(
        self, address: str, told: BrokerProcess | None, *, ha_address: tuple[str, int] | None, is_joined: bool
    ) -> None:
        """Whether the broker at ``address`` is the one whose log comes from ``ha_address``, or that one's master.

        Once they were told apart they count as two while either does not answer: the right master may be restarting.
        Before that who is away may be another one, unless a log ``is_joined`` to this one: then it is where brokers
        of another layout are, which cannot be compared.

        Raises:
            RemoteProtocolError: they are two, or may be.
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
            self._compared = address, beside, why_another(told, source, ha_address=f"{host}:{ha_port}")
        is_compared = self._compared[:2] == (address, beside)
        if is_compared and (why := self._compared[2]):
            raise RemoteProtocolError(f"nothing is taken over from {address}: {why}")
        if not is_compared and told is not None and not is_joined:
            raise RemoteProtocolError(_AWAY.format(address, f"{host}:{ha_port}", beside))
