"""What consumers of a group's brokers may see: the log that the group has committed, queue by queue."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio

from rmqha.codec.codes import ResponseCode
from rmqha.codec.dledger_entry import BODY_OFFSET, DLedgerEntry
from rmqha.codec.headers import PullMessageResponseHeader, decode_header
from rmqha.codec.record.layout import BARRIER_TOPIC, SCHEDULE_TOPIC, physical_offset_at
from rmqha.codec.record.message import StoredMessage, decode_message
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.send_answers import decode_send_response
from tests.sim.dledger.held import holds
from tests.sim.dledger_broker.line import Line
from tests.sim.dledger_broker.machine import BrokerMachine, BrokerProcess
from tests.sim.dledger_broker.swarm import DELAY_LEVELS_S

if TYPE_CHECKING:
    from tests.sim.dledger_broker.world import BrokerWorld

TOPICS: Final = ("alpha", "beta")
LATE: Final = "late"
"""Where delayed messages go."""
QUEUES: Final = 2
_LEADS_BLIND_S: Final = 1.0
Key = tuple[str, int]
"""Topic and queue."""


@dataclass(eq=False, slots=True)
class Sent:
    """A message that is sent once. ``delay`` is its level."""

    body: bytes
    topic: str
    queue_id: int
    delay: int = 0


@dataclass(eq=False)
class Streams:
    """Of one world."""

    world: "BrokerWorld"
    queues: defaultdict[Key, list[StoredMessage]] = field(default_factory=lambda: defaultdict(list))
    """What is committed, in the log's order."""
    acknowledged: list[Sent] = field(default_factory=list)
    _records: defaultdict[Key, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    _entries: dict[int, DLedgerEntry] = field(default_factory=dict)
    """By where their messages begin."""
    _bodies: dict[bytes, StoredMessage] = field(default_factory=dict)
    """Of all but delayed messages: nobody sends one twice."""
    _next_index: int = 0
    _looked: dict[str, tuple[BrokerProcess, int]] = field(default_factory=dict)
    _looked_at: dict[tuple[str, Key], int] = field(default_factory=dict)

    def _violation(self, rule: str, machine: BrokerMachine, what: str) -> None:
        self.world.checker.violation(rule, f"{machine.name} {what}")

    # ---- the log

    def learn(self) -> None:
        """Read on what members have committed. Q1: of each queue it has each place once, in order."""
        checker = self.world.checker
        for machine in self.world.brokers:
            checker.look(machine)
        while (entry := checker.committed.get(self._next_index)) is not None:
            self._next_index += 1
            message = decode_message(bytes(entry.body))
            if message.topic == BARRIER_TOPIC:
                continue
            self._take(entry, message)

    def _take(self, entry: DLedgerEntry, message: StoredMessage) -> None:
        key, offset = (message.topic, message.queue_id), entry.pos + BODY_OFFSET
        place = f"{message.topic}/{message.queue_id}/{message.queue_offset}"
        if message.queue_offset != len(self.queues[key]) or message.physical_offset != offset:
            told = f"{message.physical_offset}, behind {len(self.queues[key])} of its queue"
            self.world.checker.violation("Q1", f"the entry {entry.index} at {offset} is {place} at {told}")
        elif message.topic != LATE and message.body in self._bodies:
            self.world.checker.violation("Q1", f"{message.body[:20]!r} is in the log twice, the second time as {place}")
        self.queues[key].append(message)
        self._records[key].append(bytes(entry.body))
        self._entries[offset] = entry
        self._bodies[message.body] = message

    # ---- answers

    def on_sent(self, line: Line, sent: Sent, answer: RemotingCommand) -> None:
        """Q2: what is SEND_OK is committed, at the place that is told, on the devices of a majority."""
        if answer.code != ResponseCode.SUCCESS:
            return
        header = decode_send_response(answer)
        self.learn()
        entry = self._entries.get(int(header.msg_id[16:], 16))
        if entry is None:
            self._violation("Q2", line.machine, f"says SEND_OK of {header}, which is not committed")
            return
        message = decode_message(bytes(entry.body))
        place = (message.topic, message.queue_id, message.queue_offset)
        told = (SCHEDULE_TOPIC, sent.delay - 1) if sent.delay else (sent.topic, sent.queue_id)
        if place != (*told, header.queue_offset) or message.body != sent.body:
            self._violation("Q2", line.machine, f"says SEND_OK of {sent.body[:20]!r} at {header}: there is {place}")
        self.world.checker.on_acknowledged(line.machine, entry)
        self.acknowledged.append(sent)

    def on_pulled(self, line: Line, key: Key, asked: int, answer: RemotingCommand) -> None:
        """Q3: who pulls gets what is committed, from where it asked on, and is sent past nothing."""
        self.learn()
        match answer.code:
            case ResponseCode.SUCCESS:
                at, expected, body = 0, asked, answer.body
                while at < len(body):
                    record = bytes(body[at : at + int.from_bytes(body[at : at + 4], "big")])
                    self._check_shown(line.machine, key, expected, record)
                    at, expected = at + len(record), expected + 1
                begins = decode_header(PullMessageResponseHeader, answer).next_begin_offset
                if begins != expected:
                    told = f"gives {key} from {asked} to {expected} and says go on at {begins}"
                    self._violation("Q3", line.machine, told)
            case ResponseCode.PULL_OFFSET_MOVED:
                begins = decode_header(PullMessageResponseHeader, answer).next_begin_offset
                if min(begins, asked) < min(max(begins, asked), len(self.queues[key])):
                    told = f"sends who is at {asked} of {key} to {begins}, and it has {len(self.queues[key])}"
                    self._violation("Q3", line.machine, told)

    def _check_shown(self, machine: BrokerMachine, key: Key, offset: int, record: bytes) -> None:
        records = self._records[key]
        if offset >= len(records):
            self._violation("Q3", machine, f"shows {key} at {offset}, and {len(records)} are committed")
        elif records[offset] != record:
            self._violation("Q3", machine, f"shows {decode_message(record)} at {offset} of {key}")
        elif not holds(machine, self._entries[physical_offset_at(record, 0)], durable=self.world.swarm.acks_flushed):
            self._violation("Q3", machine, f"shows {key} at {offset}, and may forget it")

    def _look_at_dispatch(self, machine: BrokerMachine, life: BrokerProcess) -> None:
        """Q8: who can show nothing any more does not lead, or not for long."""
        flags, faults, now = life.broker.store.running_flags, machine.disk.faults, trio.current_time()
        if flags.final_error is None or not life.leads or faults.hung_until >= now or faults.slowness != 1.0:
            life.blind_since = None
            return
        life.blind_since = now if life.blind_since is None else life.blind_since
        if now - life.blind_since > _LEADS_BLIND_S:
            self._violation("Q8", machine, f"leads, and can dispatch nothing: {flags.final_error}")

    # ---- brokers

    def on_role(self, machine: BrokerMachine, life: BrokerProcess) -> None:
        """Q4: who becomes master has dispatched all, all is committed, and it knows where each queue goes on."""
        if life.dead or not life.broker.role.is_master or life.store is None:
            return
        self.world.journal.record("master", machine.name, life.broker.role.term)
        self.learn()
        store, ledger = life.broker.store, life.store
        ends = (ledger.committed_index, ledger.ledger_end_index, store.reput_from_offset, store.max_offset)
        if ends[0] != ends[1] or ends[2] != ends[3]:
            told = f"committed {ends[0]} of {ends[1]} entries, and dispatched {ends[2]} of {ends[3]} bytes"
            self._violation("Q4", machine, f"becomes master, and has {told}")
        for key, records in self._records.items():
            if (gives := store.next_queue_offset(*key)) != len(records):
                self._violation("Q4", machine, f"becomes master, and gives {gives} next in {key}: it is {len(records)}")

    def look(self, machine: BrokerMachine, *, anew: bool = False) -> None:
        """Q3, Q5: all that consumers could pull from a broker and could not at the last look is what is committed."""
        life = machine.life
        if life is None or life.server is None or life.is_stopping:
            return
        self.learn()
        self._look_at_dispatch(machine, life)
        store = life.broker.store
        now = life, store.reput_from_offset
        if self._looked.get(machine.name) == now and not anew:
            return
        if anew or self._looked.get(machine.name, now)[0] is not life:
            self._looked_at = {place: at for place, at in self._looked_at.items() if place[0] != machine.name}
        self._looked[machine.name] = now
        for key in list(self._records):
            start = self._looked_at.get((machine.name, key), 0)
            while key not in store.queues.lost and start < store.get_max_offset_in_queue(*key):
                found = store.get_message(*key, start, max_msg_nums=1000, max_bytes=1 << 30).views
                for number, view in enumerate(found):
                    self._check_shown(machine, key, start + number, bytes(view))
                start += len(found)
                if not found:
                    break
            self._looked_at[machine.name, key] = start

    # ---- afterwards

    def is_dispatched(self, machine: BrokerMachine) -> bool:
        """Whether a broker shows all that is committed."""
        life = machine.life
        return life is not None and life.broker.store.reput_from_offset == life.broker.store.max_offset

    def undelivered(self) -> list[bytes]:
        """Delayed messages that nobody can see yet, by what their bodies begin with."""
        delivered = {message.body for queue in range(QUEUES) for message in self.queues[LATE, queue]}
        return [one.body for one in self._waiting() if one.body not in delivered]

    def _waiting(self) -> list[StoredMessage]:
        return [one for level in range(len(DELAY_LEVELS_S)) for one in self.queues[SCHEDULE_TOPIC, level]]

    def check_at_rest(self) -> None:
        """Q5: every broker shows the whole log; Q2: all that was SEND_OK is there; Q6: delayed ones, and not early."""
        self.learn()
        for machine in self.world.brokers:
            self.look(machine, anew=True)
            for key, records in self._records.items():
                if (shows := self._looked_at.get((machine.name, key), 0)) != len(records):
                    self._violation("Q5", machine, f"shows {shows} of {len(records)} messages of {key}")
        for sent in self.acknowledged:
            if sent.body not in self._bodies:
                self.world.checker.violation("Q2", f"{sent.body[:20]!r} was SEND_OK, and is lost")
        self._check_delayed()

    def _check_delayed(self) -> None:
        waiting = {one.body: one for one in self._waiting()}
        for queue in range(QUEUES):
            for message in self.queues[LATE, queue]:
                if (waited := waiting.get(message.body)) is None:
                    self.world.checker.violation("Q6", f"{message.body[:20]!r} is delivered, and nobody delayed it")
                    continue
                early_ms = (
                    waited.store_timestamp_ms
                    + 1000 * DELAY_LEVELS_S[waited.queue_id]
                    - message.store_timestamp_ms
                )  # fmt: skip
                if early_ms > 0 and self.world.clocks_agree:
                    told = f"of level {waited.queue_id + 1} is delivered {early_ms} ms too early"
                    self.world.checker.violation("Q6", f"{message.body[:20]!r} {told}")
