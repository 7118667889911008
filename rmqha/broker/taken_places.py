"""TakenPlaces: another broker that registers in this one's place at a name server, again and again.

Each registration takes the other's place in the routes, so clients find now this one, now that one: each has messages
that the other has not. One that takes the place once may be this broker's successor; one that takes it again after this
broker had it back is there at the same time.
"""

from typing import Final, NamedTuple

import structlog

from rmqha.broker.identity import Identity

logger = structlog.get_logger()

_REMEMBERED_S: Final = 150.0
"""Brokers register every 60 s at the slowest: twice, and some."""


class _Taken(NamedTuple):
    """A name server named another broker where this one had been registered."""

    identity: Identity
    address: str
    """Of the other."""
    at: float
    is_again: bool


class TakenPlaces:
    """The last sight of another broker at each name server."""

    def __init__(self) -> None:
        self._taken: Final = dict[str, _Taken]()

    def saw(self, name_server: str, identity: Identity, address: str, *, now: float) -> None:
        """The broker ``identity`` was registered there, and its place is that of ``address`` since."""
        former = self._taken.get(name_server)
        is_again = former is not None and former.identity == identity and now <= former.at + _REMEMBERED_S
        self._taken[name_server] = _Taken(identity, address, now, is_again)
        if is_again and former is not None and not former.is_again:
            logger.warning("name_servers.place_taken", name_server=name_server, by=address, **identity._asdict())

    def describe(self, identity: Identity, *, now: float) -> list[str]:
        """Who shares the place of ``identity``, and where that was seen a moment ago, a sentence each."""
        return [
            f"name server {name_server} names now this broker at {identity.address}, now the one at {taken.address}: "
            f"both register as brokerName={identity.broker_name}, brokerId={identity.broker_id}, and clients reach "
            "only one of them. Stop the one that is not to be, or make it a slave with a brokerId of its own"
            for name_server, taken in self._taken.items()
            if taken.is_again and taken.identity == identity and now <= taken.at + _REMEMBERED_S
        ]
