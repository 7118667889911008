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
from rmqha.codec.route import MASTER_ID
from rmqha.errors import RemoteProtocolError, StoreError
from rmqha.ha.catch_up import PeerAsker
from rmqha.ha.ha_client import MasterAddress
from rmqha.ha.ha_connection import HAConnection
from rmqha.replication.catch_up_plan import CatchUpPlan
from rmqha.replication.master_session import Refusal, RefusedSlaveError
from rmqha.replication.peer_knowledge import PeerState
from rmqha.waiting import STOOD_STILL_S

logger = structlog.get_logger()

_COMPARED_WITHIN_S: Final = 10.0
"""RocketMQ's slaves leave a master that has sent nothing for 20 s. Who cannot be asked in this time is served."""
_LOOKS_AGAIN_S: Final = 0.1


class UncheckedSlaves:
    """Slaves of a master that have not said their names, as ours do, which compare their logs themselves.

    Such a slave does not say which peer it is. It is one whose log ends exactly where the slave says that its own does;
    of several the one on its host, where that is known. One that was refused comes again until a person comes: so it is
    known where its log ended, for the time when nobody answers.

    Args:
        asker: asks a peer.
        peers: the HA addresses of ``haPeers``.
        plan: what is known of the peers besides.
    """

    def __init__(self, asker: PeerAsker, peers: Sequence[MasterAddress], plan: CatchUpPlan) -> None:
        self._asker: Final = asker
        self._peers: Final = peers
        self._plan: Final = plan
        self._unfit: Final[dict[MasterAddress, tuple[int, str]]] = {}
        """Where the logs of peers ended that did not fit when they were asked last, and why."""

    async def meet(self, connection: HAConnection) -> None:
        """Return once that slave may be sent the log: what may be its log was compared, or cannot be asked.

        Raises:
            RefusedSlaveError: its log is not like the one here up to its end, or can never be.
            RemoteProtocolError: this process stood still meanwhile; the slave comes again.
        """
        if connection.replica.who.name:
            return
        found: dict[MasterAddress, str | None] = {}
        due = trio.current_time() + min(_COMPARED_WITHIN_S, connection.service.settings.housekeeping_s / 2)
        with trio.move_on_at(due):
            async with trio.open_nursery() as waiting:
                waiting.start_soon(_until_named, connection, waiting.cancel_scope)
                async with trio.open_nursery() as asking:
                    for peer in self._peers:
                        asking.start_soon(self._look_at, peer, connection, found, asking.cancel_scope)
                waiting.cancel_scope.cancel()
        if connection.replica.who.name:
            return
        if trio.current_time() > due + STOOD_STILL_S:
            raise RemoteProtocolError("this process stood still while this slave's log was to be compared")
        host, end = host_of(connection.peer), connection.session.first_report
        for peer, (noted, why) in self._noted().items():
            if noted == end:
                found.setdefault(peer, why)
        answers = {peer: why for peer, why in found.items() if why is not None}
        reasons = [why for peer, why in answers.items() if peer.host == host] or list(answers.values())
        if reasons and all(reasons):
            told = f"it does not compare its log with this one, and that does not fit: {reasons[0]}"
            raise RefusedSlaveError(Refusal.UNFIT, told, offset=end)

    def _noted(self) -> dict[MasterAddress, tuple[int, str]]:
        """Peers that did not fit when they were asked last, by this or for the catch-up; a master is nobody's slave."""
        unfit = [one for one in self._plan.peers if one.state is PeerState.UNFIT and one.broker_id != MASTER_ID]
        known = {one.peer: (one.end, one.reason) for one in unfit}
        return {peer: known[str(peer)] for peer in self._peers if str(peer) in known} | self._unfit

    async def _look_at(
        self,
        peer: MasterAddress,
        connection: HAConnection,
        found: dict[MasterAddress, str | None],
        asking: trio.CancelScope,
    ) -> None:
        host, end = host_of(connection.peer), connection.session.first_report
        try:
            why = await self._asker.why_unfit(peer, end=end)
        except RemoteProtocolError:
            return
        except StoreError as error:  # of the log here; its start tells, and status
            logger.warning("unchecked_slaves.not_compared", peer=str(peer), reason=str(error))
            return
        self._unfit.pop(peer, None)
        found[peer] = why
        if why:
            self._unfit[peer] = end, why
        elif why is not None and (peer.host == host or all(other.host != host for other in self._peers)):
            asking.cancel()  # it fits, whatever others say


async def _until_named(connection: HAConnection, waiting: trio.CancelScope) -> None:
    while not connection.replica.who.name:  # noqa: ASYNC110 - it is said on another connection
        await trio.sleep(_LOOKS_AGAIN_S)
    waiting.cancel()
