"""Watches the lines to and from members: what leaves one must be true when it leaves."""

from typing import TYPE_CHECKING, Any, Final

import trio

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.codec.dledger_properties import TermVote
from rmqha.codec.dledger_usual import decode_append, decode_append_answer
from rmqha.codec.dledger_wire import DLedgerRequestCode, GetEntriesResponse, decode
from rmqha.codec.remoting import RemotingCommand, decode_frames
from rmqha.dledger.dledger_exception import DLedgerException, DLedgerResponseCode
from rmqha.dledger.push_entry import PushEntryRequest, PushType
from rmqha.dledger.push_wire import decode_push, decode_push_answer
from rmqha.dledger.vote import HeartBeatRequest, HeartBeatResponse, VoteRequest, VoteResponse, VoteResult
from tests.sim.dledger.held import holds
from tests.sim.sim_net import CAPACITY

if TYPE_CHECKING:
    from tests.sim.dledger.machine import Machine
    from tests.sim.dledger.world import World
    from tests.sim.sim_net import SimStream

_Code = DLedgerRequestCode
_SUCCESS: Final = DLedgerResponseCode.SUCCESS


def watch(world: "World", client: "SimStream") -> None:
    """Both ends of a connection to a member."""
    machines = {machine.address: machine for machine in world.machines.values()}
    witness = _Witness(world, client, machines.get(client.host.address), machines[client.other.host.address])
    client.on_coming = witness.on_answer
    client.other.on_coming = witness.on_request


class _Witness:
    """Of one connection. ``asking`` is None for a client."""

    def __init__(self, world: "World", line: "SimStream", asking: "Machine | None", asked: "Machine") -> None:
        self._checker: Final = world.checker
        self._line: Final = line
        self._asking: Final = asking
        self._asked: Final = asked
        self._lives: Final = (None if asking is None else asking.process, asked.process)
        self._requests: Final[dict[int, tuple[int, Any]]] = {}
        self._wires = [b"", b""]

    def _frames(self, way: int, data: bytes) -> list[RemotingCommand]:
        wire = self._wires[way] + data if self._wires[way] else data
        frames, taken = decode_frames(wire)
        self._wires[way] = wire[taken:]
        return frames

    def on_request(self, data: bytes) -> None:
        """These bytes leave who asks."""
        if self._asking is not None and self._asking.process is self._lives[0]:
            self._checker.look(self._asking)
        for frame in self._frames(0, data):
            request: Any = None
            match frame.code:
                case _Code.VOTE:
                    request = decode(VoteRequest, frame.body)[1]
                case _Code.HEART_BEAT:
                    request = decode(HeartBeatRequest, frame.body)[1]
                case _Code.PUSH:
                    request = decode_push(frame.body)[1]
                case _Code.APPEND:
                    request = decode_append(frame.body)[1]
            self._requests[frame.opaque] = frame.code, request
            if self._asking is not None and isinstance(request, VoteRequest | HeartBeatRequest | PushEntryRequest):
                self._check_asking(self._asking, request)
                if isinstance(request, PushEntryRequest) and request.type is PushType.TRUNCATE:
                    self._checker.world.ambushes.on_truncate(self._line)

    def _check_asking(self, machine: "Machine", request: VoteRequest | HeartBeatRequest | PushEntryRequest) -> None:
        """S1, S2: who speaks of a term has it durably; and one leads it."""
        self._check_term(machine, request.term)
        if isinstance(request, VoteRequest):
            return
        leader = self._checker.leaders.get(request.term)
        if leader is None or leader[0] != machine.name:
            self._checker.violation("S1", f"{machine.name} speaks as the leader of term {request.term}: {leader} is")

    def _check_term(self, machine: "Machine", term: int) -> None:
        saved = self._checker.terms.get(machine.name, TermVote(0))
        if term > saved.curr_term:
            self._checker.violation("S2", f"{machine.name} speaks of term {term}, and has saved {saved}")

    def on_answer(self, data: bytes) -> None:
        """These bytes leave who was asked."""
        machine = self._asked
        if machine.process is None or machine.process is not self._lives[1]:
            return
        self._checker.look(machine)
        for frame in self._frames(1, data):
            code, request = self._requests.pop(frame.opaque, (0, None))
            if frame.code != _SUCCESS or not frame.body:
                continue
            match code:
                case _Code.VOTE:
                    self._check_vote(machine, request, decode(VoteResponse, frame.body)[1])
                case _Code.HEART_BEAT:
                    answer = decode(HeartBeatResponse, frame.body)[1]
                    if answer.code != DLedgerResponseCode.DISK_ERROR:  # which repeats the request's
                        self._check_term(machine, answer.term)
                    if answer.code == _SUCCESS:
                        self._check_term(machine, request.term)
                case _Code.PUSH if decode_push_answer(frame.body).code == _SUCCESS:
                    self._check_stored(machine, request)
                    if request.type is PushType.TRUNCATE:
                        self._checker.world.ambushes.on_truncated(machine)
                case _Code.APPEND:
                    self._check_appended(machine, request.body, frame.body)
                case _Code.GET:
                    self._check_read(machine, frame.body)

    def _check_vote(self, machine: "Machine", request: VoteRequest, response: VoteResponse) -> None:
        """S2: a vote is durable before it is told, or one more will never be given in that term."""
        saved = self._checker.terms.get(machine.name, TermVote(0))
        is_saved = saved.curr_term > request.term or saved == TermVote(request.term, request.leader_id)
        if response.result is VoteResult.ACCEPT and not is_saved:
            self._checker.violation("S2", f"{machine.name} votes as in {request}, and has saved {saved}")
        if response.result not in {VoteResult.REJECT_TERM_SMALL_THAN_LEDGER, VoteResult.UNKNOWN}:
            self._check_term(machine, response.term)

    def _check_stored(self, machine: "Machine", request: PushEntryRequest) -> None:
        """S8: what a follower acknowledges it has as its leader has it, and durably where that is promised."""
        process = machine.process
        if process is None or process.store is None or request.type is PushType.COMMIT:
            return
        swarm, saved = self._checker.world.swarm, self._checker.terms.get(machine.name, TermVote(0))
        since = self._checker.term_since.get(machine.name, 0.0)
        may_have_waited = swarm.capacity < CAPACITY or since == trio.current_time()  # for room, or for its turn
        if request.term > saved.curr_term or (request.term < saved.curr_term and not may_have_waited):
            told = f"{machine.name} is in term {saved.curr_term}, and takes a push of term {request.term}"
            self._checker.violation("S8", told)
        is_durable = request.last_entry_index <= process.store.flushed_index
        if swarm.acks_flushed and not is_durable:
            self._checker.violation("S8", f"{machine.name} acknowledges {request.last_entry_index}, not yet durable")
        for entry in request.entries:
            has = process.log.get(entry.index)
            if machine.is_broken:  # then its log is not looked at any more
                has = entry if holds(machine, entry, durable=swarm.acks_flushed) else None
            if entry.index >= process.begin and has != entry:
                self._checker.violation("S8", f"{machine.name} acknowledges {entry}, and has {has}")

    def _check_read(self, machine: "Machine", raw: bytes) -> None:
        """S9: what is read is committed."""
        for entry in decode(GetEntriesResponse, raw)[1].entries:
            if self._checker.committed.get(entry.index) != entry:
                self._checker.violation("S9", f"{machine.name} shows {entry}, which is not committed")

    def _check_appended(self, machine: "Machine", body: bytes, raw: bytes) -> None:
        answer = decode_append_answer(raw)
        if answer.code != _SUCCESS or machine.process is None or machine.process.store is None:
            return
        entry: DLedgerEntry | None = machine.process.log.get(answer.index)
        if entry is None:  # deleted meanwhile, or not there at all
            try:
                entry = machine.process.store.get(answer.index)
            except DLedgerException as error:
                if error.code != DLedgerResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN:
                    self._checker.violation("S8", f"{machine.name} acknowledges {answer}, and has no such entry")
                return
        if (entry.term, entry.pos, entry.body) != (answer.term, answer.pos, body):
            self._checker.violation("S8", f"{machine.name} acknowledges {answer}, and has {entry}")
        self._checker.on_acknowledged(machine, entry)
