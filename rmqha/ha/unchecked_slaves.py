"""UncheckedSlaves: who does not compare its log is sent nothing before a master has compared it.

A slave of RocketMQ's appends whatever comes behind its end. If what lies before is another history, what it then
acknowledges cannot be read there; and it hides the difference from a comparison of the logs' ends later. A master
that has it in ``haPeers`` can read over the HA port there what lies just before, and does so first.
"""

from collections.abc import Sequence
from typing import Final

import structlog
import trio

from rmqha.codec.host import host_of
from rmqha.errors import StoreError
from rmqha.ha.catch_up import PeerAsker
from rmqha.ha.ha_client import MasterAddress
from rmqha.ha.ha_connection import HAConnection
from rmqha.replication.master_session import Refusal, RefusedSlaveError

logger = structlog.get_logger()

_COMPARED_WITHIN_S: Final = 10.0
"""RocketMQ's slaves leave a master that has sent nothing for 20 s. Who cannot be asked in this time is served."""
_LOOKS_AGAIN_S: Final = 0.1


class UncheckedSlaves:
    """Slaves of a master that have not said their names, as ours do, which compare their logs themselves.

    Such a slave does not say which peer it is. It is one whose log ends exactly where the slave says that its own does;
    of several the one on its host, where that is known.

    Args:
        asker: asks a peer.
        peers: the HA addresses of ``haPeers``.
    """

    def __init__(self, asker: PeerAsker, peers: Sequence[MasterAddress]) -> None:
        self._asker: Final = asker
        self._peers: Final = peers

    async def meet(self, connection: HAConnection) -> None:
        """Return once that slave may be sent the log: what may be its log was compared, or cannot be asked.

        Raises:
            RefusedSlaveError: its log is not like the one here up to its end, or can never be.
        """
        if connection.replica.who.name:
            return
        found: dict[MasterAddress, str] = {}
        with trio.move_on_after(_COMPARED_WITHIN_S):
            async with trio.open_nursery() as waiting:
                waiting.start_soon(_until_named, connection, waiting.cancel_scope)
                async with trio.open_nursery() as asking:
                    for peer in self._peers:
                        asking.start_soon(self._look_at, peer, connection, found)
                waiting.cancel_scope.cancel()
        host = host_of(connection.peer)
        reasons = [why for peer, why in found.items() if peer.host == host] or list(found.values())
        if reasons and all(reasons) and not connection.replica.who.name:
            told = f"it does not compare its log with this one, and that does not fit: {reasons[0]}"
            raise RefusedSlaveError(Refusal.UNFIT, told, offset=connection.session.first_report)

    async def _look_at(self, peer: MasterAddress, connection: HAConnection, found: dict[MasterAddress, str]) -> None:
        try:
            why = await self._asker.why_unfit(peer, end=connection.session.first_report)
        except StoreError as error:  # of the log here; its start tells, and status
            logger.warning("unchecked_slaves.not_compared", peer=str(peer), reason=str(error))
            return
        if why is not None:
            found[peer] = why


async def _until_named(connection: HAConnection, waiting: trio.CancelScope) -> None:
    while not connection.replica.who.name:  # noqa: ASYNC110 - it is said on another connection
        await trio.sleep(_LOOKS_AGAIN_S)
    waiting.cancel()
