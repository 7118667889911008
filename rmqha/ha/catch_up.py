"""Catch-up at start: a returning master takes back from its slaves what it has lost, before it accepts puts.

A slave may hold acknowledged messages that its master forgot in a crash. Taking puts first would write others in
their place; so the master follows each reachable peer for a moment, as if it were its slave (spec: ha §10.2).
Whoever serves an HA port will do, a RocketMQ slave included.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog
import trio

from rmqha.errors import DivergedLogError, RemoteProtocolError
from rmqha.ha.ha_client import MasterAddress, ProbeMaster, ask_nobody, choose_start_at
from rmqha.ha.log_receiver import SilentMasterError
from rmqha.ha.options import HAClientOptions
from rmqha.ha.replicated_log import ReplicatedLog
from rmqha.ha.runtime_info import ClientState
from rmqha.ha.slave_connection import SlaveConnection, UnfitMasterError
from rmqha.replication.master_session import LogRange
from rmqha.replication.slave_session import SlaveSession
from rmqha.transport import Network

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CatchUpResult:
    """What came of asking one peer."""

    peer: MasterAddress
    taken_bytes: int
    is_answered: bool
    """The peer's log was compared with ours, or is known to be shorter: nothing of its is missing here."""
    diverged_at: int | None = None
    """Set if the peer holds other bytes from here on: do not accept puts before somebody has looked."""
    lacks_space: bool = False
    """The own disk is too full to take what the peer may hold beyond our end: ask again before accepting puts."""
    error: str = ""


async def catch_up_at_start(
    log: ReplicatedLog,
    network: Network,
    peers: Sequence[MasterAddress],
    *,
    options: HAClientOptions,
    probe_peer: ProbeMaster = ask_nobody,
) -> list[CatchUpResult]:
    """Make the log at least as long as each reachable peer's; what was taken is durable on return.

    The caller decides what it means when no peer answered, or one diverged.

    Raises:
        StoreError: the own store failed or its log needs recovery.
    """
    results = []
    for peer in peers:
        end = log.max_offset
        result = await _catch_up_from(peer, log, network, options, probe_peer)
        await log.flush_now(log.max_offset)
        logger.info(
            "catch_up.finished",
            peer=str(peer),
            taken_bytes=result.taken_bytes,
            from_offset=end,
            is_answered=result.is_answered,
            error=result.error,
        )
        results.append(result)
    return results


async def _catch_up_from(
    peer: MasterAddress, log: ReplicatedLog, network: Network, options: HAClientOptions, probe_peer: ProbeMaster
) -> CatchUpResult:
    end = log.max_offset
    there: LogRange | None = None
    connection: SlaveConnection | None = None
    begun_at = 0
    try:
        there = await probe_peer(peer)
        start = choose_start_at(log, there, overlap_size=options.overlap_size)
        stream = await network.connect(peer.host, peer.port, timeout_s=options.connect_timeout_s)
        connection = SlaveConnection(
            log, stream, start=start, options=options, silence_max_s=options.catch_up_quiet_s, waits_for_space=False
        )
        begun_at = connection.session.position
        try:
            await connection.run()
        finally:
            stream.close()
    except DivergedLogError as error:
        return CatchUpResult(peer, log.max_offset - end, is_answered=True, diverged_at=error.offset, error=str(error))
    except UnfitMasterError as error:
        taken, is_shorter = log.max_offset - end, error.state is ClientState.AHEAD
        why = "" if is_shorter else str(error)  # a slave with less than its master is what one expects
        lacks_space = error.state is ClientState.DISK_FULL and (there is None or there.max_offset > log.max_offset)
        return CatchUpResult(peer, taken, is_answered=is_shorter, lacks_space=lacks_space, error=why)
    except (RemoteProtocolError, OSError, trio.BrokenResourceError) as error:
        is_answered = connection is not None and _has_all(log, there, connection.session, begun_at=begun_at)
        why = "" if is_answered and isinstance(error, SilentMasterError) else str(error)
        return CatchUpResult(peer, log.max_offset - end, is_answered, error=why)
    raise AssertionError("a connection ends only with an error")


def _has_all(log: ReplicatedLog, there: LogRange | None, session: SlaveSession, *, begun_at: int) -> bool:
    """Whether nothing of the peer's is missing here, as far as can be known.

    A silent peer may be one that has nothing more, or one that is slow: what it said of its log's end decides. Only
    of a peer that did not say is silence behind the compared overlap believed.
    """
    if session.is_comparing:
        return False
    return session.position > begun_at if there is None else log.max_offset >= there.max_offset
