"""What a broker is, does and has: read from its running parts when somebody asks, and nothing is counted for it."""

import time
from collections.abc import Iterator

import trio
from prometheus_client.metrics_core import Metric

from rmqha import __version__
from rmqha.broker.broker_controller import BrokerController
from rmqha.certificates import first_to_expire, not_valid_yet, why_kept
from rmqha.metrics.families import counter, counters, gauge, gauges, histogram
from rmqha.metrics.readiness import why_not_ready
from rmqha.replication.peer_knowledge import PeerState
from rmqha.store.status import PutMessageStatus

SEND_OK = "SEND_OK"
_UNSAFE = (
    PutMessageStatus.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE,
    PutMessageStatus.OS_PAGECACHE_BUSY,
    PutMessageStatus.UNKNOWN_ERROR,
)


def whether_it_is_ready(broker: BrokerController) -> Iterator[Metric]:
    """Told at any time, also while the store is recovered, of which nothing else may be looked at then."""
    config = broker.config
    facts = {
        "version": __version__,
        "cluster": config.broker_cluster_name,
        "broker": config.broker_name,
        "broker_id": str(config.broker_id),
        "address": broker.address,
    }
    yield gauges("rmqha_broker_info", "Who this is.", list(facts), {tuple(facts.values()): 1.0})
    yield gauge("rmqha_ready", "1 if /readyz answers 200.", float(not why_not_ready(broker)))
    recovery, is_starting = broker.store.recovery, broker.server is None
    yield gauge("rmqha_recovering", "1 before it serves anybody.", float(is_starting))
    yield gauge("rmqha_recovered_bytes", "Of the present step of the start.", recovery.done_bytes if is_starting else 0)
    yield gauge("rmqha_to_recover_bytes", "All of that step; 0 if unknown.", recovery.total_bytes if is_starting else 0)


def puts(broker: BrokerController) -> Iterator[Metric]:
    """What producers sent."""
    stats = broker.store.stats
    unsafe = {status.value: stats.put_message_unsafe[status] for status in _UNSAFE}
    ok = stats.put_times.count - sum(unsafe.values())
    refused = stats.put_message_failed_times + stats.sends_refused
    told = {SEND_OK: ok} | unsafe | {"REFUSED": refused}
    yield counters(
        "rmqha_sends",
        "Sends answered, by SendStatus, a batch as one, the broker's own puts among them; REFUSED was not stored.",
        ["status"],
        {(status,): float(count) for status, count in told.items()},
    )
    yield counter("rmqha_put_messages", "Messages stored, each of a batch.", stats.put_message_times_total)
    yield counter("rmqha_put_bytes", "Bytes of their records.", stats.put_message_size_total)
    yield histogram(
        "rmqha_send_latency_seconds",
        "From append to answer: the disk and the slaves, if a send waits for them.",
        stats.put_times.histogram(),
        stats.put_times.total_s,
    )
    refusal = broker.store.running_flags.refusal()
    yield gauge("rmqha_writes_refused", "1 if the disk or the log refuses writes; /readyz says why.", bool(refusal))


def pulls(broker: BrokerController) -> Iterator[Metric]:
    """What consumers took."""
    stats = broker.store.stats
    found, missed = stats.get_message_times_total_found, stats.get_message_times_total_miss
    yield counters("rmqha_pulls", "Pulls looked up.", ["result"], {("found",): found, ("missed",): missed})
    yield counter("rmqha_pulled_messages", "Messages that pulls found.", stats.get_message_transfered_msg_count)
    yield gauge("rmqha_pulls_held", "Pulls that wait for messages.", broker.holds.held)
    yield counter("rmqha_pops_refused", "Requests of RocketMQ 5's POP consumers, who get nothing.", broker.pops.refused)


def log(broker: BrokerController) -> Iterator[Metric]:
    """Where the log begins and ends, and how far what follows it is."""
    store = broker.store
    offsets = {
        "min": store.min_offset,
        "max": store.max_offset,
        "flushed": store.flushed_offset,
        "confirmed": store.confirm_offset(),
        "dispatched": store.reput_from_offset,
    }
    yield gauges(
        "rmqha_log_offset_bytes", "Offsets in the log.", ["point"], {(name,): at for name, at in offsets.items()}
    )
    yield gauge("rmqha_flush_lag_bytes", "Written, not flushed.", offsets["max"] - offsets["flushed"])
    yield gauge(
        "rmqha_dispatch_lag_bytes", "Written, not in the consume queues.", offsets["max"] - offsets["dispatched"]
    )
    yield gauge(
        "rmqha_index_lag_bytes", "In the consume queues, not in the index.", _index_lag(broker, offsets["dispatched"])
    )


def hidden(broker: BrokerController) -> Iterator[Metric]:
    """What consumers do not see although the log holds it."""
    stopped = len(broker.store.queues.stopped)
    yield gauge("rmqha_stopped_queues", "Consume queues that end before a record that does not fit.", stopped)
    facts = broker.store.hidden_messages()
    messages = 0 if facts is None else facts["messages"]
    damaged = len(broker.store.damaged_records.offsets(broker.store.min_offset))
    yield gauge("rmqha_damaged_records", "In the log, met by pulls, and not what was stored.", damaged)
    yield gauge("rmqha_hidden_messages", "In the log, of queues that have begun anew since.", messages)
    damaged_marks = len(broker.store.stats.damaged_marks)
    yield gauge("rmqha_damaged_marks", "Of ended transactions, met since the start, and not readable.", damaged_marks)
    damaged_halves = len(broker.store.stats.damaged_halves)
    yield gauge("rmqha_damaged_half_messages", "Met since the start: nobody can commit them.", damaged_halves)
    left_out = broker.store.stats.undeliverable_messages
    yield counter("rmqha_undeliverable_messages", "Delayed ones that were left out: they can never be put.", left_out)


def delayed(broker: BrokerController) -> Iterator[Metric]:
    """What waits for its time, and whether it waits longer."""
    waiting: dict[tuple[str, ...], float] = {(str(level),): count for level, count in broker.schedule.waiting.items()}
    yield gauges("rmqha_delayed_messages", "Of a delay level, and not delivered.", ["level"], waiting)
    yield gauge(
        "rmqha_delayed_overdue_seconds",
        "How long the next of them has been due, of the level where that is longest; 0 on a slave.",
        broker.schedule.overdue_s,
    )


def transactions(broker: BrokerController) -> Iterator[Metric]:
    """What waits for its producer, and what did so for too long."""
    stats = broker.store.stats
    yield gauge(
        "rmqha_undecided_half_messages",
        "Older than transactionTimeOut, and not ended, as the last round of checks found; 0 on a slave.",
        stats.undecided_half_messages,
    )
    meaning = "Neither committed nor rolled back, and nobody is asked any more."
    yield counter("rmqha_discarded_half_messages", meaning, stats.discarded_halves.count)


def troubles(broker: BrokerController) -> Iterator[Metric]:
    """What else makes a broker degraded in `rmqha status`, and costs no message by itself."""
    store, facts, permissions = broker.store, broker.replication.facts(), broker.access.permissions
    unfit = [peer for peer in facts.get("catch_up", ()) if peer["state"] == PeerState.UNFIT.value]
    apart = facts.get("circle") or unfit or facts["place_taken"]
    apart = apart or broker.replication.group.clashes(now=trio.current_time())
    told = {
        "lost_queues": store.queue_rebuild.describe(),
        "damaged_records": store.damaged_records.describe(store.min_offset),
        "damaged_halves": store.stats.damaged_halves,
        "damaged_marks": store.stats.damaged_marks,
        "dropped": store.dropped,
        "index": store.index.trouble,
        "not_saved": broker.metadata.trouble,
        "lost_tables": broker.metadata.lost,
        "inodes": store.cleaner.inodes.trouble,
        "disk_unknown": store.cleaner.disk_unknown,
        "crowded": broker.server is not None and broker.server.crowded(now=trio.current_time()),
        "certificates": why_kept() or not_valid_yet(now_s=time.time()) is not None,
        "accounts": facts.get("credentials_kept") or (permissions is not None and permissions.not_read),
        "doubt": facts.get("doubt"),
        "group_clashes": apart,
        "slaves": broker.replication.group.troubles(now=trio.current_time()),
        "peers_unheard": facts.get("peers_unheard"),
        "begins_later": facts.get("begins_later") or broker.replication.group.lacking_slaves(now=trio.current_time()),
        "not_learned": facts.get("not_learned"),
        "member_lists": facts.get("dledger", {}).get("member_lists"),
        "not_registered": facts.get("not_registered"),
    }
    meaning = "1 if rmqha status has a reason of this kind."
    yield gauges("rmqha_trouble", meaning, ["kind"], {(kind,): float(bool(why)) for kind, why in told.items()})


def deleted_early(broker: BrokerController) -> Iterator[Metric]:
    """What a crowded disk cost."""
    segments = broker.store.cleaner.early.segments
    meaning = "Segments of the log deleted before they had expired, since its disk was too full."
    yield counter("rmqha_unexpired_segments_deleted", meaning, segments)


def certificate(_broker: BrokerController) -> Iterator[Metric]:
    """Of those that this process shows, the one that ends first; nothing without TLS."""
    first = first_to_expire()
    ends: dict[tuple[str, ...], float] = {} if first is None else {(first.path,): first.ends_s}
    meaning = "When the certificate that ends first does, since 1970."
    yield gauges("rmqha_certificate_expires_timestamp_seconds", meaning, ["path"], ends)


def _index_lag(broker: BrokerController, dispatched: int) -> int:
    store = broker.store
    return max(0, dispatched - store.index.position) if store.options.message_index_enable else 0


def disks(broker: BrokerController) -> Iterator[Metric]:
    """As the cleaning last saw them, every ten seconds; what it could not see is left out."""
    cleaner = broker.store.cleaner
    seen = {("commitlog",): cleaner.log_disk, ("consumequeue",): cleaner.queues_disk}
    known = {name: disk for name, disk in seen.items() if disk is not None}
    yield gauges(
        "rmqha_disk_used_ratio",
        "Share of the file system that is used.",
        ["disk"],
        {name: disk.used_percent / 100 for name, disk in known.items()},
    )
    yield gauges(
        "rmqha_disk_free_bytes", "Free.", ["disk"], {name: float(disk.available) for name, disk in known.items()}
    )
    yield gauges("rmqha_disk_total_bytes", "All.", ["disk"], {name: float(disk.total) for name, disk in known.items()})
    inodes: dict[tuple[str, ...], float] = {
        name: float(disk.free_inodes) for name, disk in known.items() if disk.free_inodes is not None
    }
    yield gauges("rmqha_disk_free_inodes", "Free; of a file system that counts them.", ["disk"], inodes)


def clients(broker: BrokerController) -> Iterator[Metric]:
    """Who is connected, and who was turned away."""
    server = broker.server
    if server is not None:
        yield gauge("rmqha_connections", "Clients connected.", len(server.connections))
        yield gauge("rmqha_connections_max", "maxConnections.", broker.config.max_connections)
        yield gauge("rmqha_in_flight_bytes", "Of requests not answered yet.", server.capacity.used_bytes)
    yield counter("rmqha_requests_broken", "Requests that met a bug of this broker.", broker.fence.bugs)


def refused_peers(broker: BrokerController, *, metrics: dict[str, int]) -> Metric:
    """Strangers, of all ports: those of the observability port are handed in."""
    ha: dict[str, int] = broker.replication.facts().get("ha", {}).get("refusals", {})
    ports = {"clients": dict(broker.server.refused) if broker.server is not None else {}, "ha": ha, "metrics": metrics}
    return counters(
        "rmqha_refused_peers",
        "Connections turned away, and those that did not speak the port's protocol.",
        ["port", "reason"],
        {(port, reason): count for port, counts in ports.items() for reason, count in counts.items()},
    )
