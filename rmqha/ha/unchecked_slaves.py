"""UncheckedSlaves: who does not compare its log is sent nothing before its peer's log was compared.

A slave of RocketMQ's appends whatever comes behind its end. If what lies before is another history, what it then
acknowledges cannot be read there; and it hides the difference from a comparison of the logs' ends later. A
master that has it in ``haPeers`` can read over the HA port there what lies just before, and does so first.
"""

from collections.abc import Callable
from typing import Final

import trio

from rmqha.codec.host import host_of
from rmqha.ha.ha_connection import HAConnection
from rmqha.ha.ha_service import HAService
from rmqha.replication.catch_up_plan import CatchUpPlan
from rmqha.replication.master_session import Refusal, RefusedSlaveError
from rmqha.replication.peer_knowledge import PeerKnowledge, PeerState

_COMPARED_WITHIN_S: Final = 10.0
"""RocketMQ's slaves leave a master that has sent nothing for 20 s. Who cannot be asked in this time is served."""
_LOOKS_AGAIN_S: Final = 0.1


class UncheckedSlaves:
    """Slaves of a master that have not said their names, as ours do, which compare their logs themselves.

    Args:
        service: serves them, and awaits :meth:`meet` before anything is sent.
        plan: what is known of peers.
        look: some peer's ``ask_at`` has changed.
    """

    def __init__(self, service: HAService, plan: CatchUpPlan, *, look: Callable[[], None]) -> None:
        self._service: Final = service
        self._plan: Final = plan
        self._look: Final = look
        self._answered = trio.Event()
        service.before_sending = self.meet

    async def meet(self, connection: HAConnection) -> None:
        """Return once that slave may be sent the log: what may be its log was compared, or cannot be asked.

        Raises:
            RefusedSlaveError: its log does not continue, or is not continued by, the one here.
        """
        peers = [peer for peer in self._plan.peers if peer.may_be_at(host_of(connection.peer))]
        for peer in peers:
            peer.on_slave_came(connection.session.first_report, now=trio.current_time())
        if peers:
            self._look()
        with trio.move_on_after(_COMPARED_WITHIN_S):
            while not connection.replica.who.name and any(peer.is_uncompared for peer in peers):
                with trio.move_on_after(_LOOKS_AGAIN_S):
                    await self._answered.wait()
        for peer in peers:
            if peer.state is PeerState.UNFIT and self._may_be(connection, peer):
                raise _refusal(peer, connection.session.first_report)

    def on_answer(self, peer: PeerKnowledge) -> None:
        """``peer`` was asked. A slave that was served since it could not be is turned away by what it says now."""
        self._answered.set()
        self._answered = trio.Event()
        if peer.state is PeerState.UNFIT:
            for slave in self._service.connections.values():
                if self._may_be(slave, peer):
                    slave.refuse(_refusal(peer, slave.session.first_report))

    def _may_be(self, slave: HAConnection, peer: PeerKnowledge) -> bool:
        is_unchecked = slave.session.is_transferring and not slave.replica.who.name
        return is_unchecked and peer.may_be_at(host_of(slave.peer))


def _refusal(peer: PeerKnowledge, offset: int) -> RefusedSlaveError:
    return RefusedSlaveError(
        Refusal.UNFIT,
        f"a slave from the host of {peer.peer} does not compare its log with this one, and that peer's does not fit: "
        f"{peer.reason}. If that is its log, it must be rebuilt empty, or this one, whichever is wrong",
        offset=offset,
    )
