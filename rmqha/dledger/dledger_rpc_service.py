"""DLedgerRpcService: a member's requests and answers on the wire, in both directions.

What is wrong with a request before anybody looks at what it asks is found here: it is for another member or group, or
it is no message at all.

Source: spec: dledger §2.2, §5; dledger-all-0.3.1.2 DLedgerRpcNettyService.java.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import structlog

from rmqha.codec.dledger_usual import decode_append, encode_append_answer
from rmqha.codec.dledger_wire import (
    HANDLED,
    AppendEntryRequest,
    AppendEntryResponse,
    Base,
    DLedgerRequestCode,
    GetEntriesRequest,
    GetEntriesResponse,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    MetadataRequest,
    MetadataResponse,
    decode,
    decode_metadata,
    encode,
    refuse,
)
from rmqha.codec.remoting import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.member_state import MemberState
from rmqha.dledger.peer_connection import PeerConnection
from rmqha.dledger.push_entry import PushEntryRequest, PushEntryResponse
from rmqha.dledger.push_wire import decode_push, decode_push_answer, encode_push, encode_push_answer
from rmqha.dledger.vote import HeartBeatRequest, HeartBeatResponse, Outgoing, VoteRequest, VoteResponse, VoteResult
from rmqha.errors import RemoteProtocolError
from rmqha.log_limit import LogLimit
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher

logger = structlog.get_logger()

_UNKNOWN: Final = frozenset({DLedgerResponseCode.UNKNOWN_MEMBER, DLedgerResponseCode.UNKNOWN_GROUP})
_TERM_MAX: Final = 1 << 62
"""No election comes so far. Beyond it a term is believed only if it is near one's own: one that somebody made up must
leave room for the elections after it."""
_TERM_STEP_MAX: Final = 1 << 32

_DECODERS: Final[dict[type, Callable[[bytes], tuple[Base, Any]]]] = {
    AppendEntryRequest: decode_append,
    PushEntryRequest: decode_push,
}
"""Of what is hot."""


class Answers:
    """What becomes of several questions at one time; each connection's go out together."""

    def __init__(self) -> None:
        self._answers: defaultdict[Connection, list[tuple[bytes, int]]] = defaultdict(list)
        """Each with the size of its request."""

    def add(self, connection: Connection, command: RemotingCommand, body: bytes) -> None:
        """Answer with the next :meth:`send`."""
        response = RemotingCommand(HANDLED, command.opaque, FLAG_RESPONSE, body=body, serialize=command.serialize)
        self._answers[connection].append((response.encode(), command.size))

    def send(self) -> None:
        """Send what was added."""
        if self._answers:
            answers_to, self._answers = self._answers, defaultdict(list)
            for connection, answers in answers_to.items():
                connection.send_responses([frame for frame, _ in answers], sum([size for _, size in answers]))


@dataclass(frozen=True, slots=True)
class Question:
    """A request that awaits its one answer, now or later.

    Attributes:
        base: whom the request is for, and from whom.
        kind: the class of the answer.
        answers: those that go out together.
    """

    connection: Connection
    command: RemotingCommand
    base: Base
    kind: type
    answers: Answers

    def answer(self, message: object, base: Base) -> None:
        """Send what was asked for; ``base`` has the fields that ``message`` does not."""
        self._send(encode(message, base))

    def refuse(self, code: int, *, leader_id: str | None) -> None:
        """Send why not, and who may know more."""
        self._send(refuse(self.kind, self.base, code=code, leader_id=leader_id))

    def answer_append(self, response: AppendEntryResponse) -> None:
        """Say what has become of an append, with the next answers."""
        self._add(encode_append_answer(response, group=self.base.group or ""))

    def answer_push(self, response: PushEntryResponse) -> None:
        """Say what has become of a push, with the next answers."""
        self._add(encode_push_answer(response, group=self.base.group or ""))

    def _add(self, body: bytes) -> None:
        if self.command.flag & FLAG_ONEWAY:
            self._send(body)
        else:
            self.answers.add(self.connection, self.command, body)

    def _send(self, body: bytes) -> None:
        self.connection.send_reply(self.command, RemotingCommand(HANDLED, body=body))


class DLedgerProtocolHandler(Protocol):
    """Who answers: a member."""

    @property
    def leader_id(self) -> str | None:
        """Who leads, as far as this member knows."""
        ...

    @property
    def member_state(self) -> MemberState:
        """What this member knows of itself."""
        ...

    def handle_metadata(self, request: MetadataRequest, question: Question) -> None:
        """Say who leads."""
        ...

    def handle_append(self, request: AppendEntryRequest, question: Question) -> None:
        """Append an entry."""
        ...

    def handle_get(self, request: GetEntriesRequest, question: Question) -> None:
        """Read an entry."""
        ...

    def handle_vote(self, request: VoteRequest, question: Question) -> None:
        """Vote, or do not."""
        ...

    def handle_heart_beat(self, request: HeartBeatRequest, question: Question) -> None:
        """Follow a leader."""
        ...

    def handle_push(self, request: PushEntryRequest, question: Question) -> None:
        """Take what a leader has."""
        ...

    def handle_leadership_transfer(self, request: LeadershipTransferRequest, question: Question) -> None:
        """Let another member lead, or take over."""
        ...


class DLedgerRpcService:
    """Serves a member's ``handler``, and asks the other members."""

    def __init__(self, *, group: str, self_id: str, handler: DLedgerProtocolHandler) -> None:
        self._group: Final = group
        self._self_id: Final = self_id
        self._handler: Final = handler
        self.connections: Final[dict[str, PeerConnection]] = {}
        """To each other member, by its id."""
        self._strangers: Final = set[str]()
        """The peers that take this member for none of theirs."""
        self._lines: Final = LogLimit()
        self.answers: Final = Answers()
        """To appends and pushes; who says what becomes of them sends them."""

    @property
    def connected(self) -> frozenset[str]:
        """The members that can be asked."""
        return frozenset([peer for peer, connection in self.connections.items() if connection.is_connected])

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take DLedger's requests; in a binary header, which has 16 bits for the code, they wrap."""
        handler, code = self._handler, DLedgerRequestCode
        table: tuple[tuple[DLedgerRequestCode, type, type, Callable[[Any, Question], None]], ...] = (
            (code.METADATA, MetadataRequest, MetadataResponse, handler.handle_metadata),
            (code.APPEND, AppendEntryRequest, AppendEntryResponse, handler.handle_append),
            (code.GET, GetEntriesRequest, GetEntriesResponse, handler.handle_get),
            (code.VOTE, VoteRequest, VoteResponse, handler.handle_vote),
            (code.HEART_BEAT, HeartBeatRequest, HeartBeatResponse, handler.handle_heart_beat),
            (code.PUSH, PushEntryRequest, PushEntryResponse, handler.handle_push),
            (
                code.LEADERSHIP_TRANSFER,
                LeadershipTransferRequest,
                LeadershipTransferResponse,
                handler.handle_leadership_transfer,
            ),
        )
        for request_code, asked, answered, handle in table:
            decoder = _DECODERS.get(asked) or partial(decode, asked)
            process = partial(self._process, decoder, answered, handle)
            dispatcher.register(request_code, process)
            dispatcher.register(request_code.in_binary_header, process)

    def _process(
        self,
        decoder: Callable[[bytes], tuple[Base, Any]],
        kind: type,
        handle: Callable[[Any, Question], None],
        connection: Connection,
        command: RemotingCommand,
    ) -> None:
        """Hand a request to its handler. Raises RemoteProtocolError: it is none."""
        base, request = decoder(command.body)
        self._check_term(base)
        command.body = b""  # it need not be kept until the answer is there
        question = Question(connection, command, base, kind, self.answers)
        if base.remote_id != self._self_id:
            question.refuse(DLedgerResponseCode.UNKNOWN_MEMBER, leader_id=self._handler.leader_id)
        elif base.group != self._group:
            question.refuse(DLedgerResponseCode.UNKNOWN_GROUP, leader_id=self._handler.leader_id)
        else:
            handle(request, question)

    def _check_term(self, base: Base) -> None:
        """Of a request or an answer: members take it over. Raises RemoteProtocolError: somebody has made it up."""
        if base.term > max(_TERM_MAX, self._handler.member_state.curr_term + _TERM_STEP_MAX):
            raise RemoteProtocolError(f"no group has come to a term of {base.term}")

    def _base(self, peer: str) -> Base:
        return Base(self._group, peer, self._self_id)

    def ask(self, outgoing: Outgoing, on_answer: Callable[[VoteResponse | HeartBeatResponse | None], None]) -> None:
        """Ask for a vote, or say who leads; ``on_answer`` gets None if there is no answer."""
        is_vote = isinstance(outgoing.request, VoteRequest)
        code = DLedgerRequestCode.VOTE if is_vote else DLedgerRequestCode.HEART_BEAT
        kind: type[VoteResponse | HeartBeatResponse] = VoteResponse if is_vote else HeartBeatResponse

        def on_body(body: bytes | None) -> None:
            if body is None:
                on_answer(None)
                return
            base, answer = decode(kind, body)
            self._check_term(base)
            self._note_stranger(outgoing.peer, base.code, answer)
            on_answer(answer)

        self.connections[outgoing.peer].ask(code, encode(outgoing.request, self._base(outgoing.peer)), on_body)

    def _note_stranger(self, peer: str, code: int, answer: VoteResponse | HeartBeatResponse) -> None:
        """Say once that a peer knows no such member: nothing comes of asking it before that is corrected."""
        result = answer.result if isinstance(answer, VoteResponse) else None
        if code not in _UNKNOWN and result is not VoteResult.REJECT_UNKNOWN_LEADER:
            self._strangers.discard(peer)
        elif peer not in self._strangers:
            self._strangers.add(peer)
            text = "compare the group's name, the peers and the ids that both were given"
            self._lines.log(logger.warning, "dledger_peer.unknown_there", peer=peer, code=code, next=text)

    def push(self, peer: str, request: PushEntryRequest, on_answer: Callable[[PushEntryResponse], None]) -> None:
        """Replicate; nothing is heard of a push without an answer."""
        body = encode_push(request, group=self._group, remote_id=peer)

        def on_body(answer: bytes | None) -> None:
            if answer is not None:
                on_answer(decode_push_answer(answer))

        self.connections[peer].ask(DLedgerRequestCode.PUSH, body, on_body)

    def ask_metadata(self, peer: str, on_answer: Callable[[MetadataResponse | None], None]) -> None:
        """Ask ``peer`` how it is; ``on_answer`` gets None if there is no answer."""

        def on_body(body: bytes | None) -> None:
            on_answer(None if body is None else decode_metadata(body))

        self.connections[peer].ask(DLedgerRequestCode.METADATA, encode(MetadataRequest(), self._base(peer)), on_body)

    def ask_to_take_over(self, peer: str, request: LeadershipTransferRequest, on_answer: Callable[[int], None]) -> None:
        """Let ``peer`` take over from this leader; ``on_answer`` gets the answer's code."""
        base = Base(self._group, peer, self._self_id, leader_id=self._self_id)

        def on_body(body: bytes | None) -> None:
            if body is None:
                on_answer(DLedgerResponseCode.NETWORK_ERROR)
            else:
                on_answer(decode(LeadershipTransferResponse, body)[1].code)

        self.connections[peer].ask(DLedgerRequestCode.LEADERSHIP_TRANSFER, encode(request, base), on_body)
