"""What consumers see: on every node only what is safe, each message at its place, once, and always the same."""

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from rmqha.codec.codes import ResponseCode
from rmqha.codec.headers import PullMessageResponseHeader, decode_header
from rmqha.codec.record.message import StoredMessage, decode_message
from rmqha.codec.remoting import RemotingCommand
from tests.sim.workload import LATE, PAID, QUEUES, TOPICS

if TYPE_CHECKING:
    from tests.sim.invariants import Checker
    from tests.sim.node import Process, SimNode

Place = tuple[str, int, int]
"""Topic, queue, queue offset."""

_EXPIRED_AT_ONCE_MAX: Final = 10_000
"""Messages of a queue that expire between two looks."""


class Visible:
    """Everything that anybody could see, and did see."""

    def __init__(self, checker: "Checker") -> None:
        self._checker: Final = checker
        self._world: Final = checker.world
        self._topics: Final = (*TOPICS, LATE, PAID) if self._world.swarm.takeovers else TOPICS
        self._seen: dict[Place, bytes] = {}
        self._seen_on_a_master: dict[Place, bytes] = {}
        """What a master showed there last."""
        self._looked_at: dict[tuple[str, str, int], int] = {}
        """Node, topic and queue: everything before was looked at."""
        self._looked: dict[str, tuple[Process, int]] = {}
        """By node: the process at the last look, and how far it had dispatched: nothing is new before that grows."""

    def forget_unacked(self, acked: set[bytes]) -> None:
        """Another node is master, or one was rebuilt: unacknowledged messages may be gone (decision 4)."""
        self._seen = {place: record for place, record in self._seen.items() if record in acked}
        self._looked_at.clear()
        self._looked.clear()

    def look(self, node: "SimNode", process: "Process") -> None:
        """All that a consumer could pull now and could not at the last look."""
        store = process.broker.store
        now = process, store.reput.reput_from_offset
        if self._looked.get(node.name) == now:
            return
        lost = store.queues.lost
        if not lost:
            self._looked[node.name] = now
        for topic in self._topics:
            for queue_id in range(QUEUES):
                if (topic, queue_id) in lost:
                    continue  # its consumers are told to come again
                start = self._looked_at.get((node.name, topic, queue_id), 0)
                start = max(start, store.get_min_offset_in_queue(topic, queue_id))
                result = store.get_message(topic, queue_id, start, max_msg_nums=1000, max_bytes=1 << 30)
                for view in result.views:
                    start = self._next((topic, queue_id), start, bytes(view))
                    self._check(process, (topic, queue_id, start), bytes(view))
                    start += 1
                self._looked_at[node.name, topic, queue_id] = start

    def on_pulled(
        self, process: "Process", queue: tuple[str, int], asked: int, answer: RemotingCommand, *, had_started: bool
    ) -> None:
        """An answer leaves for a consumer that asked for the messages from ``asked`` on.

        It may have lain in a narrow line since before the broker served (``had_started``: it served when asked).
        """
        match answer.code:
            case ResponseCode.SUCCESS:
                self._check_found(process, queue, asked, answer)
            case ResponseCode.PULL_OFFSET_MOVED:
                self._check_moved(process, queue, asked, answer)
            case (
                ResponseCode.PULL_NOT_FOUND
                | ResponseCode.PULL_RETRY_IMMEDIATELY
                | ResponseCode.TOPIC_NOT_EXIST
                | ResponseCode.SYSTEM_ERROR
            ):
                return
            case ResponseCode.SERVICE_NOT_AVAILABLE if not (had_started and process.is_serving):
                return  # it is only starting, and says so
            case _:
                self._violation(process, f"answers a pull of {queue} from {asked} with {answer.code} {answer.remark}")

    def _check_found(self, process: "Process", queue: tuple[str, int], asked: int, answer: RemotingCommand) -> None:
        body, at, expected = answer.body, 0, asked
        while at < len(body):
            record = bytes(body[at : at + int.from_bytes(body[at : at + 4], "big")])
            at += len(record)
            expected = self._next(queue, expected, record)
            self._check(process, (*queue, expected), record)
            expected += 1
        begins = decode_header(PullMessageResponseHeader, answer).next_begin_offset
        if begins != expected:
            self._violation(process, f"gave {queue} from {asked} to {expected} and says go on at {begins}")

    def _check_moved(self, process: "Process", queue: tuple[str, int], asked: int, answer: RemotingCommand) -> None:
        """Who saw a message is not sent to before it; who has yet to see one is not sent behind it."""
        begins = decode_header(PullMessageResponseHeader, answer).next_begin_offset
        for place in ((*queue, offset) for offset in range(min(begins, asked), max(begins, asked))):
            if place not in self._seen or self._is_expired(place) or self._may_be_forgotten(place, self._seen[place]):
                continue
            if not self._may_differ(process):
                self._violation(process, f"sends a consumer from {asked} to {begins} of {queue}, but {place} was seen")
                return

    def _check(self, process: "Process", place: Place, record: bytes) -> None:
        self._check_safe(process, place, record)
        if self._may_differ(process):
            return
        seen = self._seen.setdefault(place, record)
        is_other = seen != record
        if seen is record or is_other:
            message = decoded(record)
            if (message.topic, message.queue_id, message.queue_offset) != place:
                self._violation(process, f"shows {message.topic}/{message.queue_id}/{message.queue_offset} at {place}")
        if is_other:
            self._check_other(process, place, record)
        if process.is_master:
            self._seen_on_a_master[place] = record

    def _check_other(self, process: "Process", place: Place, record: bytes) -> None:
        """Of two messages at one place one is of a tail that a master forgot, and slaves show until rebuilt."""
        if self._may_be_forgotten(place, self._seen[place]):
            self._seen[place] = record
        elif process.is_master or not self._may_be_forgotten(place, record):
            self._violation(process, f"shows another message at {place} than a consumer saw there before")

    def _next(self, queue: tuple[str, int], expected: int, record: bytes) -> int:
        """The queue offset at which a record has to stand: the next one, or behind those that have just expired."""
        own = int.from_bytes(record[20:28], "big")
        if not self._world.swarm.cleans or not expected < own < expected + _EXPIRED_AT_ONCE_MAX:
            return expected
        skipped = ((*queue, offset) for offset in range(expected, own))
        return own if all(place not in self._seen or self._is_expired(place) for place in skipped) else expected

    def _may_be_forgotten(self, place: Place, record: bytes) -> bool:
        """Whether a master may go on without this message, which was seen there.

        It was never acknowledged, and only slaves showed it; the master, which does not flush before it sends, forgot
        it, and started before those had stored it (decision 4).
        """
        return (
            self._world.swarm.master_forgets
            and self._seen_on_a_master.get(place) != record
            and all(acked.record != record for acked in self._checker.acked)
        )

    def _is_expired(self, place: Place) -> bool:
        return self._checker.is_expired(int.from_bytes(self._seen[place][28:36], "big"))

    def _may_differ(self, process: "Process") -> bool:
        """Whether this is an old master with a tail of its own, about to be rebuilt."""
        return not process.is_master and process.node.name in self._world.operator.usurped

    def _check_safe(self, process: "Process", place: Place, record: bytes) -> None:
        """What is shown is on the device here, or enough slaves have it (decision 4)."""
        offset = int.from_bytes(record[28:36], "big")
        if self._checker.is_shown_safely(process, offset, record):
            return
        self._violation(process, f"shows {place} at offset {offset}, and may still forget it")

    def _violation(self, process: "Process", what: str) -> None:
        self._checker.violation("I4", f"{process.node.name} {what}")

    def check_converged(self, process: "Process") -> None:
        """In the end all that was seen is there."""
        for place, record in self._seen.items():
            if self._is_expired(place) or self._may_be_forgotten(place, record):
                continue
            result = process.broker.store.get_message(*place, max_msg_nums=1, max_bytes=1 << 30)
            if not result.views or bytes(result.views[0]) != record:
                self._checker.violation("I4", f"message {place}, seen by a consumer, is not there any more")


@lru_cache(maxsize=256)
def decoded(record: bytes) -> StoredMessage:
    """Every node has the same records, and consumers see them, too."""
    return decode_message(record)
