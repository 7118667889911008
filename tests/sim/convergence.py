"""What holds in the end: every node has the same log, true queues, and nothing under way."""

from typing import TYPE_CHECKING

from rmqha.codec.record.scan import Stop, scan_records
from rmqha.store.index_keys import hashes_of
from tests.sim.held import COMMIT_LOG
from tests.sim.visible import decoded
from tests.store.helpers import commit_log

if TYPE_CHECKING:
    from tests.sim.invariants import Checker
    from tests.sim.node import SimNode


def check_converged(checker: "Checker") -> None:
    """I1, I2, I4, I5: after healing every node has the same log, all that was acknowledged, and true queues."""
    master = checker.world.master
    assert master.process is not None, "the world waited for it"
    for node in checker.world.nodes.values():
        checker.check_has_all(node, "ends")
        _check_same_log(checker, master, node)
        _check_queues(checker, node)
    checker.visible.check_converged(master.process)


def check_at_rest(checker: "Checker") -> None:
    """I9: when nothing is under way any more, nobody's account says otherwise.

    But brokers ask each other for tables every now and then, and an answer may be on a slow line.
    """
    brokers = {node.address for node in checker.world.nodes.values()}
    for node in checker.world.nodes.values():
        server = node.process.broker.server if node.process is not None else None
        assert server is not None, "the world waited for it"
        _check_index(checker, node)
        in_flight = {
            c.peer: (c.in_flight.requests, c.in_flight.size) for c in server.connections if c.in_flight.requests
        }
        under_way = sum(c.owed_bytes for c in server.connections if c.peer.rpartition(":")[0] in brokers)
        kept = server.capacity.used_bytes, server.capacity.owed.size - under_way
        if in_flight or any(kept):
            checker.violation("I9", f"{node.name} has {kept} bytes in flight, and owed, at rest: {in_flight}")


def _check_index(checker: "Checker", node: "SimNode") -> None:
    """I10: at rest the index has each key of each message once, in the log's order."""
    assert node.process is not None, "the world waited for it"
    store = node.process.broker.store
    if not store.index.is_complete:
        if not store.index.failed:
            checker.violation("I10", f"{node.name}: the index is at {store.index.position}: {store.index.describe()}")
        return
    there = [entry for file in store.index.files for entry in [*file.last_entries()][::-1]]
    at, expected = store.min_offset, list[tuple[int, int]]()
    while at < store.reput_from_offset:
        requests, behind = store.commit_log.records(at, store.reput_from_offset)
        expected += [(code, request.commit_log_offset) for request in requests for code in hashes_of(request)]
        if behind == at:
            break
        at = behind
    if [entry for entry in there if entry[1] >= store.min_offset] != expected:
        checker.violation("I10", f"{node.name}: the index has {len(there)} entries, the log {len(expected)} keys")


def _check_same_log(checker: "Checker", master: "SimNode", node: "SimNode") -> None:
    for path, inode in master.disk.files.items():
        other = node.disk.files.get(path)
        if path.startswith(COMMIT_LOG) and other is not None and inode.cache != other.cache:
            checker.violation("I2", f"{path} differs between {master.name} and {node.name}")


def _check_queues(checker: "Checker", node: "SimNode") -> None:
    """Walk the log with code of our own; every record must be where its queue says, and nothing else."""
    assert node.process is not None, "the world waited for it"
    store, master = node.process.broker.store, checker.world.master.process
    assert master is not None, "likewise"
    records: dict[tuple[str, int], list[bytes]] = {}
    begins: dict[tuple[str, int], int] = {}
    for mapped in commit_log(store).queue.files:
        view, at = mapped.view, 0
        scan = scan_records(
            view, 0, mapped.wrote_position, phy_offset_base=mapped.file_from_offset, file_end=mapped.size
        )
        if scan.stop not in {Stop.END, Stop.BLANK}:
            checker.violation("I5", f"{node.name} has no whole record at {mapped.file_from_offset + scan.end}")
        while at < scan.end:
            record = bytes(view[at : at + int.from_bytes(view[at : at + 4], "big")])
            message = decoded(record)
            key = (message.topic, message.queue_id)
            begin = begins.setdefault(key, message.queue_offset if store.min_offset else 0)
            before = records.setdefault(key, [])
            if message.queue_offset != begin + len(before):
                checker.violation("I4", f"{node.name}: {key} has offset {message.queue_offset} as its {len(before)}th")
            before.append(record)
            at += len(record)
    for key, expected in records.items():
        found: list[bytes] = []
        gone = master.broker.store.queues.deleted.get(key)
        deleted = 0 if gone is None else max(0, gone.end - begins[key])
        at = begins[key] + deleted
        while (result := store.get_message(*key, at + len(found), max_msg_nums=1000, max_bytes=1 << 30)).views:
            found += [bytes(view) for view in result.views]  # no answer holds more than 32
        if found != expected[deleted:]:
            checker.violation("I4", f"{node.name}: the queue of {key} does not lead to its messages")
