"""Whose tables the others have, for a leader that is to find what the last master was told in its last seconds."""

from collections.abc import Awaitable, Callable, Collection
from typing import Final, NamedTuple

import trio

from rmqha.broker.tables.tables_origin import TablesOrigin

_MAJORITY_S: Final = 5.0
"""So long they are asked again until a majority has told."""
_ALL_S: Final = 1.0
"""So long the answers of the others are waited for."""
_AGAIN_S: Final = 0.1


class Told(NamedTuple):
    """What a member says: where its broker is, as of DLedgerTables, and whose tables that has."""

    address: str | None
    origin: TablesOrigin | None


class Found(NamedTuple):
    """Whose tables are at which address."""

    origins: dict[str, TablesOrigin]
    is_sure: bool
    """None can be newer, or a majority told whose they are, and nobody else was silent."""


async def look_for_last_changes(
    others: Collection[str], ask: Callable[[str], Awaitable[Told]], *, last: TablesOrigin
) -> Found:
    """Ask all at once.

    This member may have stood still, and what a master acknowledged since is what a majority has: one of these is
    waited for, also if it is busy or starts. Who was killed is not.

    Args:
        others: the other members.
        ask: one of them; it has not told if it names an address, and no origin.
        last: the newest that there can be: of the last master, by itself.
    """
    origins, told, unheard = dict[str, TablesOrigin](), set[str](), set(others)
    silent = set[str]()
    """Those that do not say where their broker is, whose tables nobody here can know."""
    majority, waits_until = (len(others) + 1) // 2, trio.current_time() + _ALL_S

    def has_last() -> bool:
        return max(origins.values(), default=TablesOrigin()) >= last

    def is_done() -> bool:
        return has_last() or (len(told) >= majority and (not unheard or trio.current_time() >= waits_until))

    async def look_at(peer: str) -> None:
        while peer not in told:
            address, origin = await ask(peer)
            unheard.discard(peer)
            if address and origin is not None:
                origins[address] = origin
            if address == "" or origin is not None:
                told.add(peer)
            if address == "":
                silent.add(peer)
            if is_done():
                nursery.cancel_scope.cancel()
            await trio.sleep(_AGAIN_S)

    with trio.move_on_after(_MAJORITY_S):
        async with trio.open_nursery() as nursery:
            for peer in others:
                nursery.start_soon(look_at, peer)
            await trio.sleep_until(waits_until if others else 0)
            if is_done():
                nursery.cancel_scope.cancel()
    return Found(origins, has_last() or (len(told - silent) >= majority and not unheard))
