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
    connection: SlaveConnection | None = None
    try:
        start = choose_start_at(log, await probe_peer(peer), overlap_size=options.overlap_size)
        stream = await network.connect(peer.host, peer.port, timeout_s=options.connect_timeout_s)
        connection = SlaveConnection(log, stream, start=start, options=options, silence_max_s=options.catch_up_quiet_s)
        try:
            await connection.run()
        finally:
            stream.close()
    except DivergedLogError as error:
        return CatchUpResult(peer, log.max_offset - end, is_answered=True, diverged_at=error.offset, error=str(error))
    except UnfitMasterError as error:
        return CatchUpResult(peer, 0, is_answered=error.state is ClientState.AHEAD, error=str(error))
    except SilentMasterError:  # it has sent all it has, if it has anything of ours
        assert connection is not None, "only a connection can be silent"
        return CatchUpResult(peer, log.max_offset - end, is_answered=connection.session.position > start.first_report)
    except (RemoteProtocolError, OSError, trio.BrokenResourceError) as error:
        is_answered = connection is not None and not connection.session.is_comparing
        return CatchUpResult(peer, log.max_offset - end, is_answered=is_answered, error=str(error))
    raise AssertionError("a connection ends only with an error")
