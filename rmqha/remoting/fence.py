"""The fence around each peer: what goes wrong over its bytes stays with it.

An error of our own hierarchy is an answer. Any other one is a bug: the request is refused, or, where nobody can tell
which requests are answered already, or the peer would misread a refusal, its connection ends. The bug is logged with
its traceback and counted, and everybody else is served on. Tests fail if a fence has met a bug (tests/conftest.py).
"""

from types import TracebackType
from typing import Final, Protocol

import structlog

from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.host import host_of
from rmqha.codec.usual.sends import Request
from rmqha.errors import RmqhaError
from rmqha.log_limit import LogLimit, RepeatLimit

logger = structlog.get_logger()

_REASON_SIZE_MAX: Final = 300
_NEVER_REFUSED: Final = frozenset({RequestCode.QUERY_CONSUMER_OFFSET})
"""RocketMQ's consumers take any refusal of these to mean that no offset is stored, and begin at the queue's begin or
end: they repeat messages, or skip them. Without an answer they ask again (spec: remoting §6, trap 7)."""


class Peer(Protocol):
    """A connection, as far as a fence goes."""

    peer: str

    def respond(self, request: Request, code: int, *, remark: str | None = None) -> None:
        """Answer ``request``."""
        ...

    def close(self, reason: str) -> None:
        """End it now."""
        ...


class Fence:
    """What all connections of a server share.

    Attributes:
        bugs: how many errors were met that nobody raises on purpose.
    """

    def __init__(self) -> None:
        self.bugs = 0
        self._refusals = RepeatLimit()
        self._bug_lines = LogLimit()

    def guard(self, peer: Peer, request: Request | None) -> "Guard":
        """Keep errors of a block inside it: ``request`` is refused, or, without one, the connection ends."""
        return Guard(self, peer, request)

    def on_bug(self, error: Exception, *, peer: str, code: int | None = None) -> str:
        """Count it and log it with its traceback; returns what to tell the peer."""
        self.bugs += 1
        self._bug_lines.log(logger.error, "request.broken", peer=peer, code=code, reason=repr(error), exc_info=error)
        return f"a bug of this broker, see request.broken in its log: {error!r}"[:_REASON_SIZE_MAX]

    def refuse(self, peer: Peer, request: Request, error: Exception) -> None:
        """Answer ``request`` with SYSTEM_ERROR, and why; see :func:`turn_away`."""
        if isinstance(error, RmqhaError):
            reason = str(error)
            facts = {"code": request.code, "peer": peer.peer, "reason": reason[:_REASON_SIZE_MAX]}
            same = host_of(peer.peer), request.code, facts["reason"]
            self._refusals.log(logger.warning, "request.failed", key=same, **facts)
        else:
            reason = self.on_bug(error, peer=peer.peer, code=request.code)
        turn_away(peer, request, ResponseCode.SYSTEM_ERROR, remark=reason)

    def end(self, peer: Peer, error: Exception) -> None:
        """End the connection: what of its requests was carried out nobody can tell."""
        peer.close(str(error) if isinstance(error, RmqhaError) else self.on_bug(error, peer=peer.peer))


def turn_away(peer: Peer, request: Request, code: int, *, remark: str) -> None:
    """Refuse ``request`` with ``code``, or end the connection if the client would take the refusal for an answer."""
    if request.code in _NEVER_REFUSED:
        peer.close(remark)
    else:
        peer.respond(request, code, remark=remark)


class Guard:
    """See :meth:`Fence.guard`."""

    __slots__ = ("_fence", "_peer", "_request")

    def __init__(self, fence: Fence, peer: Peer, request: Request | None) -> None:
        self._fence = fence
        self._peer = peer
        self._request = request

    def __enter__(self) -> None:
        """Nothing has happened yet."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """Let cancellation and the like through, and nothing else."""
        if not isinstance(error, Exception):
            return False
        if self._request is None:
            self._fence.end(self._peer, error)
        else:
            self._fence.refuse(self._peer, self._request, error)
        return True
