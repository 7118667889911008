"""Asking a peer what a master may have lost: compare its log with the local one, and take what it has more.

The master connects to the peer's HA port as if it were its slave (spec: ha §10.2), so any broker that serves one will
do, a RocketMQ slave included. Silence never proves that a peer holds nothing more: the peer must have said where its
log ends (code 28), or sent two heartbeats in a row, between which it had nothing to send.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol

import trio

from rmqha.codec.route import MASTER_ID
from rmqha.codec.transfer import encode_report
from rmqha.errors import DivergedLogError, RemoteProtocolError, StoreError, StoreReadError
from rmqha.ha.ha_client import (
    BrokerStartingError,
    MasterAddress,
    Meet,
    ProbeMaster,
    choose_start_at,
    show_face,
    trust_anybody,
)
from rmqha.ha.log_receiver import ComparingReceiver, SilentMasterError, tail_below
from rmqha.ha.options import HAClientOptions
from rmqha.ha.replicated_log import ReplicatedLog
from rmqha.ha.runtime_info import ClientState
from rmqha.ha.slave_connection import SlaveConnection, UnfitMasterError
from rmqha.replication.master_session import LogRange
from rmqha.replication.overlap import ALL_OF_A_LOG, StreamStart
from rmqha.replication.peer_knowledge import PeerAnswer, PeerState
from rmqha.replication.slave_session import SlaveSession
from rmqha.transport import Network, Stream
from rmqha.waiting import STOOD_STILL_S

BeforeTaking = Callable[[MasterAddress, LogRange | None], Awaitable[None]]


class TakeTables(Protocol):
    """Told, while sends are refused, before a peer's log is taken or compared, whether it is, or was, the longer one.

    What lies beside the log may have to be taken first. RemoteProtocolError: not now.
    """

    async def __call__(self, peer: MasterAddress, there: LogRange | None, /, *, is_longer: bool) -> None:
        """Ask what has to be known before; ``there`` is None if the peer does not say where its log begins and ends."""


_FAILURES: Final = (RemoteProtocolError, OSError, trio.BrokenResourceError, StoreReadError)
"""They may pass: ask again later. A file of the log here that cannot be opened now (no descriptor) is among them."""
_BEGINS_SOMEWHERE: Final = (
    "its log does not begin at 0, and it does not say where (its remoting port, one below its HA port, does not "
    "answer, or refuses): RocketMQ's would begin within its log. Let it answer, or take it out of haPeers"
)
_COMPARES_FOR: Final = 3
"""So many times as long as a peer may be silent: what is compared is little, and the other peers wait meanwhile."""


class PeerAsker:
    """Asks one peer at a time.

    Args:
        log: the local log; only appended to while nothing else appends to it (``takes``).
        network: the door to the peers' HA ports.
        options: as for following a master.
        probe_peer: asks by remoting where a peer's log begins and ends.
        why_apart: says whether a peer is of another group.
        before_taking: called before anything of a longer peer's is taken; it raises RemoteProtocolError if it may not.
        take_tables: see :class:`TakeTables`.
    """

    def __init__(
        self,
        log: ReplicatedLog,
        network: Network,
        *,
        options: HAClientOptions,
        probe_peer: ProbeMaster,
        why_apart: Meet = trust_anybody,
        before_taking: BeforeTaking,
        take_tables: TakeTables,
    ) -> None:
        self._log: Final = log
        self._network: Final = network
        self._options: Final = options
        self._probe_peer: Final = probe_peer
        self._before_taking: Final = before_taking
        self._take_tables: Final = take_tables
        self._why_apart: Final = why_apart
        self.is_reached = False
        """Whether the peer that is asked now has been connected to, or has said where its log ends."""

    async def ask(self, peer: MasterAddress, *, known: PeerState, takes: bool, are_sends_refused: bool) -> PeerAnswer:
        """Ask once.

        Args:
            peer: its HA address.
            known: what is known of it so far. One that is settled already is only asked where its log ends.
            takes: the caller appends nothing meanwhile: take what the peer holds beyond the local end.
            are_sends_refused: the caller appends nothing meanwhile, but may have to take another peer's log first. One
                without a log has tables only, which are taken at any time before the first send.

        Raises:
            StoreError: the local store failed, or needs recovery.
        """
        self.is_reached = False
        begun_at = self._log.max_offset
        try:
            there = await self._probe_peer(peer)
        except BrokerStartingError as error:
            return PeerAnswer(PeerState.STARTING, str(error))
        self.is_reached = there is not None
        tells = takes or (are_sends_refused and there is not None and there.max_offset == 0)
        was_longer, has_tables = known is PeerState.LONGER, not takes
        is_longer = was_longer if there is None else there.max_offset > self._log.max_offset
        end = None if there is None else there.max_offset
        try:
            await self._check_group(peer, there)
            is_begun = self._log.min_offset < self._log.max_offset
            answer = PeerAnswer(PeerState.LONGER if is_longer else PeerState.SETTLED)
            if takes and is_longer and is_begun:  # what is beside a log that does not continue this one is not ours
                await self._take(peer, there)
            elif known is not PeerState.SETTLED and not (is_longer and (is_begun or there is not None)):
                answer = await self._compare(peer, there)
                is_longer = is_longer and answer.state is not PeerState.SETTLED  # who was may have been rebuilt empty
            if takes and was_longer and answer.state is PeerState.UNKNOWN:
                raise RemoteProtocolError(answer.reason)
            if tells and answer.state is not PeerState.UNKNOWN:
                await self._take_tables(peer, there, is_longer=is_longer or was_longer)
                has_tables = True
            if takes and is_longer:
                if not is_begun:
                    await self._take(peer, there)
                answer = PeerAnswer(PeerState.SETTLED)
        except DivergedLogError as error:
            diverged = _diverged(error.offset, peer, there, own_end=self._log.max_offset)
            answer = PeerAnswer(PeerState.UNFIT, str(diverged), error=diverged)
        except UnfitMasterError as error:
            answer = _unfit(error, peer)
        except _FAILURES as error:
            is_waited_for = is_longer or (was_longer and not has_tables)
            answer = PeerAnswer(PeerState.LONGER if is_waited_for else PeerState.UNKNOWN, str(error))
            end = end if is_longer or not is_waited_for else None
        taken_bytes = self._log.max_offset - max(begun_at, self._log.min_offset) if takes else 0
        if taken_bytes:
            await self._log.flush_now(self._log.max_offset)
        broker_id = None if there is None or there.member is None else there.member.broker_id
        told = replace(answer, begin=None if there is None else there.min_offset, broker_id=broker_id)
        return replace(told, end=end, taken_bytes=taken_bytes, was_reached=self.is_reached)

    async def why_unfit(self, peer: MasterAddress, *, end: int) -> str | None:
        """Why the log of a peer that ends at ``end`` is not like this one up to there, or cannot be; empty if it is.

        None: its log ends elsewhere, it compares by itself, or it is nobody's slave.

        Raises:
            RemoteProtocolError: it cannot be asked now.
            StoreError: the log here cannot be read there, or is damaged.
        """
        try:
            there = await self._probe_peer(peer)
            if there is None:
                raise RemoteProtocolError("it does not say where its log ends")
            if (
                there.checks_reports
                or there.max_offset != end
                or (there.member and there.member.broker_id == MASTER_ID)
            ):
                return None
            await self._check_group(peer, there)
            answer = await self._compare(peer, there)
        except (DivergedLogError, UnfitMasterError) as error:
            return f"{peer} of haPeers, whose log ends there: {error}"
        except _FAILURES as error:
            raise RemoteProtocolError(str(error)) from None
        if answer.state is not PeerState.SETTLED:
            raise RemoteProtocolError(answer.reason)
        return ""

    async def _check_group(self, peer: MasterAddress, there: LogRange | None) -> None:
        """Raises UnfitMasterError: it is of another group, or master as well. Its operator is to see who asks."""
        if there is not None and there.member is not None and (why := self._why_apart(there.member)):
            if there.checks_reports:
                await show_face(self._network, peer, limit_s=self._options.connect_timeout_s)
                with suppress(BrokerStartingError):
                    await self._probe_peer(peer)  # who comes to the HA port is believed
            raise UnfitMasterError(ClientState.MISCONFIGURED, why)

    async def _connect(self, peer: MasterAddress) -> Stream:
        stream = await self._network.connect(peer.host, peer.port, timeout_s=self._options.connect_timeout_s)
        self.is_reached = True
        return stream

    async def _take(self, peer: MasterAddress, there: LogRange | None) -> None:
        """Append what the peer holds beyond the local end; RemoteProtocolError if it does not send all of it."""
        options = self._options
        await self._before_taking(peer, there)
        is_untold = there is None and self._log.min_offset == self._log.max_offset
        start = (
            ALL_OF_A_LOG if is_untold else await choose_start_at(self._log, there, overlap_size=options.overlap_size)
        )
        stream = await self._connect(peer)
        try:
            connection = SlaveConnection(
                self._log,
                stream,
                start=start,
                options=options,
                silence_max_s=options.ha_housekeeping_interval_s,
                waits_for_space=False,
                is_finished=lambda session: _has_all(session, there) or _has_sent_all(session),
            )
            await connection.run()
        except trio.BrokenResourceError as error:  # one of ours turns away who asks for what it does not have
            if is_untold and self._log.min_offset == self._log.max_offset:
                raise RemoteProtocolError(_BEGINS_SOMEWHERE) from error
            raise
        finally:
            stream.close()
        if is_untold and self._log.min_offset == self._log.max_offset:
            raise RemoteProtocolError(_BEGINS_SOMEWHERE)
        if not _has_all(connection.session, there):
            raise RemoteProtocolError(
                f"it sends nothing beyond {connection.session.position}, as if the rest were not durable there: "
                "has its disk failed?"
            )

    async def _compare(self, peer: MasterAddress, there: LogRange | None) -> PeerAnswer:
        """Compare the end of the shorter log with the same place of the longer; nothing is taken or acknowledged."""
        log, options = self._log, self._options
        if there is not None and there.max_offset <= max(there.min_offset, log.min_offset):
            return PeerAnswer(PeerState.SETTLED)  # they have nothing in common to compare
        limit = log.max_offset if there is None else there.max_offset
        start = await tail_below(log, limit, overlap_size=options.overlap_size) or StreamStart(0)
        stream = await self._connect(peer)
        try:
            receiver = ComparingReceiver(log, stream, start=start, options=options)
            await stream.send_all(encode_report(start.first_report))
            state = await _compare_all(receiver, there, silence_max_s=options.ha_housekeeping_interval_s)
        finally:
            stream.close()
        reason = "it sends nothing at this log's end: it may hold less, or begin later"
        return PeerAnswer(state, reason if state is PeerState.UNKNOWN else "")


async def _compare_all(receiver: ComparingReceiver, there: LogRange | None, *, silence_max_s: float) -> PeerState:
    """Receive until it is known how the logs compare; a peer that is never silent has its time, too."""
    limit_s = _COMPARES_FOR * silence_max_s
    due = trio.current_time() + limit_s
    with trio.move_on_at(due):
        while (state := _state_after(receiver, there)) is None:
            await _receive(receiver, silence_max_s=silence_max_s)
        return state
    _check_ran(due)
    raise RemoteProtocolError(f"it did not send in {limit_s:g} s what there is to compare")


async def _receive(receiver: ComparingReceiver, *, silence_max_s: float) -> None:
    due = trio.current_time() + silence_max_s
    with trio.move_on_at(due):
        if not await receiver.receive():
            raise trio.BrokenResourceError(
                "it ended the connection: it holds less than this log, or begins later, and its remoting port "
                "(HA port - 1) does not say where it ends; or this is not its HA port"
            )
        return
    _check_ran(due)
    raise SilentMasterError(f"it sent nothing for {silence_max_s:g} s")


def _check_ran(due: float) -> None:
    """Raises RemoteProtocolError: nobody was looked after when this was ``due``, so that says nothing of the peer."""
    if (late_s := trio.current_time() - due) > STOOD_STILL_S:
        raise RemoteProtocolError(f"this process stood still for {late_s:.0f} s while it was asked")


def _has_nothing_more(session: SlaveSession) -> bool:
    """RocketMQ may send one heartbeat in front of data; between two it has looked, and there was nothing to send."""
    return session.heartbeats_in_a_row >= 2


def _has_all(session: SlaveSession, there: LogRange | None) -> bool:
    """Whether everything of the peer's is here; an incomplete record at its end was never acknowledged."""
    if there is None:
        return _has_sent_all(session)
    return not session.is_comparing and session.position >= there.max_offset


def _has_sent_all(session: SlaveSession) -> bool:
    """Whether it has nothing more to send, whatever it says to hold."""
    return not session.is_comparing and _has_nothing_more(session)


def _state_after(receiver: ComparingReceiver, there: LogRange | None) -> PeerState | None:
    """What is known after what was received so far; None if it takes more."""
    session = receiver.session
    if receiver.is_peer_longer or (_has_nothing_more(session) and receiver.is_beyond_end):
        return PeerState.LONGER
    if there is not None and not session.is_comparing:
        return PeerState.SETTLED
    if there is not None:
        return PeerState.UNKNOWN if _has_nothing_more(session) else None
    if receiver.has_compared and (_has_nothing_more(session) or receiver.has_passed_end):
        return PeerState.SETTLED
    if _has_nothing_more(session):
        return PeerState.UNKNOWN if session.is_comparing else PeerState.SETTLED
    return None


def _unfit(error: UnfitMasterError, peer: MasterAddress) -> PeerAnswer:
    match error.state:
        case ClientState.AHEAD:  # it said that it is longer, and is not any more
            return PeerAnswer(PeerState.UNKNOWN, str(error))
        case ClientState.DISK_FULL:
            return PeerAnswer(PeerState.LONGER, str(error))
        case _:
            told = f"{peer} of haPeers: {error}"
            is_behind = error.state is ClientState.BELOW_MIN
            return PeerAnswer(PeerState.UNFIT, told, error=StoreError(told), begins_behind=is_behind)


def _diverged(offset: int, peer: MasterAddress, there: LogRange | None, *, own_end: int) -> DivergedLogError:
    ends = "" if there is None else f", whose log ends at {there.max_offset},"
    return DivergedLogError(
        offset,
        f"{peer} of haPeers{ends} holds other bytes than this log, which ends at {own_end}: both took messages as "
        "masters, or one went on without messages that it had lost. Nothing was cut. Find out which copy is right",
    )
