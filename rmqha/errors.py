"""Every error rmqha raises on purpose, and what the caller should then do.

Expected endings of a send are :class:`~rmqha.store.status.PutMessageStatus` values, not exceptions.
``assert`` guards what only a bug can break; input from disk, wire or operator is checked and raises one of these.
"""

import copyreg
from errno import EFBIG
from traceback import clear_frames
from typing import Any, Final

_REMARK_MAX: Final = 1000
"""Of a peer's own words in the text of an error, which may be logged each second; a frame has room for 16 MiB."""


class RmqhaError(Exception):
    """Base of all errors raised on purpose. They can be pickled: Spark carries them from its workers.

    Attributes:
        retryable: whether doing the same again, perhaps elsewhere or later, may help.
    """

    retryable = False

    def __reduce__(self) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class ConfigError(RmqhaError):
    """The operator's configuration cannot be used. One line for each problem; the process exits with 2."""

    def __init__(self, problems: "list[str] | str") -> None:
        self.problems: list[str] = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class ProtocolError(RmqhaError):
    """Bytes on a connection do not follow the protocol."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol: drop this peer, keep the rest running."""


class LocalProtocolError(ProtocolError):
    """We were asked to send what the protocol cannot carry: a bug, or a caller's value out of range."""


class StoreError(RmqhaError):
    """The store cannot do what was asked."""


class StoreLockedError(StoreError):
    """Another process holds the store's lock file: stop that process or choose another directory."""


NOT_WRITABLE = "the store is not writable"
"""How a broker begins to say that a write of its store failed, which is final."""
DIVERGED_LOG = "diverged log"
"""How it begins to say that its log and another broker's are not one log."""
FILE_SIZE_LIMIT = "a limit of this process: ulimit -f, LimitFSIZE="
"""Why a file cannot be as large as it has to be, with room on its disk."""
NOT_READ = "which rmqha does not read"
"""How a walk over a log ends what it says of a record of RocketMQ 5."""


class StoreWriteError(StoreError):
    """A write, allocation or flush failed. Sticky: this process never acknowledges anything afterwards.

    Attributes:
        errno: the operating system's error number.
        operation: the call that failed, e.g. ``fdatasync``.
        path: the file it failed on.
    """

    def __init__(self, error: OSError, *, operation: str, path: str) -> None:
        self.errno = error.errno or 0
        self.operation = operation
        self.path = path
        limit = f": {FILE_SIZE_LIMIT}" if self.errno == EFBIG else ""
        super().__init__(f"{operation} failed on {path}: {error.strerror or error} (errno {self.errno}{limit})")


class StoreReadError(StoreError):
    """A file could not be opened, listed or read.

    Attributes:
        errno: the operating system's error number.
        operation: the call that failed, e.g. ``open``.
        path: the file it failed on.
    """

    def __init__(self, error: OSError, *, operation: str, path: str) -> None:
        self.errno = error.errno or 0
        self.operation = operation
        self.path = path
        super().__init__(f"{operation} failed on {path}: {error.strerror or error} (errno {self.errno})")


_WHO_READS_IT: Final = (
    "It is no damage, do not cut it away: start the kind of broker that wrote it on this store (RocketMQ 5 on one of "
    "RocketMQ 5), and consume it there"
)


class CorruptLogError(StoreError):
    """The log holds bytes that are no record where one must be.

    Attributes:
        offset: physical offset of the first bad byte (the start of the bad record).
        reason: what is wrong there.
    """

    def __init__(self, offset: int, reason: str) -> None:
        self.offset = offset
        self.reason = reason
        super().__init__(f"corrupt log at physical offset {offset}: {reason}")


class ForeignRecordError(CorruptLogError):
    """The log holds a record of a format that is known and not read here: nothing may be cut or emptied for it."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(offset, f"{what}. {_WHO_READS_IT}")


class DivergedLogError(StoreError):
    """Two copies of the log hold different bytes at the same offset: replication stops, nothing is cut.

    Attributes:
        offset: first physical offset at which the copies differ, as far as is known.
    """

    def __init__(self, offset: int, reason: str) -> None:
        self.offset = offset
        self.reason = reason
        super().__init__(f"{DIVERGED_LOG} at physical offset {offset}: {reason}")


class RemotingError(RmqhaError):
    """A request got no answer. Whether the peer acted on it is unknown, unless a subclass says otherwise.

    Attributes:
        address: the peer that was asked, as ``host:port``.
        reason: why, without the address.
    """

    retryable = True

    def __init__(self, address: str, reason: str) -> None:
        self.address = address
        self.reason = reason
        super().__init__(f"{address}: {reason}")


class RemotingConnectError(RemotingError):
    """No connection could be made: the request was never sent. Try another address, or later."""


class UnreadableAnswerError(RemotingConnectError):
    """Somebody answered the question where to send, and that cannot be read: the request itself was never sent."""


class RemotingSendRequestError(RemotingError):
    """The connection ended before the answer came: the request may or may not have been carried out."""


class RemotingTimeoutError(RemotingError):
    """No answer within the time allowed: the request may or may not have been carried out."""


class MQBrokerError(RmqhaError):
    """A broker answered, and its answer is no.

    Attributes:
        code: a :class:`~rmqha.codec.codes.ResponseCode`, or a number this version does not know.
        remark: the broker's own words.
    """

    _RETRYABLE = frozenset({1, 2, 14, 16, 17, 204, 205, 215})

    def __init__(self, code: int, remark: str | None) -> None:
        self.code = code
        self.remark = remark or ""
        self.retryable = code in self._RETRYABLE
        told = self.remark if len(self.remark) <= _REMARK_MAX else f"{self.remark[:_REMARK_MAX]}... (cut)"
        super().__init__(f"broker answered {getattr(code, 'name', code)}: {told or 'no reason given'}")


class MQClientError(RmqhaError):
    """The client itself cannot do what was asked: an argument no broker would take, or no broker to ask."""


class NoRouteError(MQClientError):
    """No address asked knows a broker for the topic: create the topic, or check the addresses.

    Retryable if the master is missing, or an address that did not answer may know more.
    """

    def __init__(self, reason: str, *, retryable: bool = False) -> None:
        self.retryable = retryable
        super().__init__(reason)


def forget_locals(error: Exception) -> None:
    """Let go of what the functions knew that ``error`` has come through: megabytes, until the collector finds them.

    They have ended; those of the error's context may not have, and to clear a frame that waits would end it.
    """
    clear_frames(error.__traceback__)


def forget_origin(error: Exception) -> None:
    """Let go of where ``error`` comes from, of which nobody will be told.

    Whatever keeps the error would keep the frames that it came through; and what one of these knows that keeps it, the
    collector alone could free.
    """
    error.__traceback__ = error.__cause__ = error.__context__ = None


def errors_in(raised: BaseException, *kinds: type[BaseException]) -> list[BaseException]:
    """The errors of a group, in groups within it too, or the one that came without a group; all are of these kinds.

    ``except (*kinds, BaseExceptionGroup) as raised`` with this is ``except*`` for PyPy, whose own ends in an
    AssertionError where nothing in a group matches.

    Raises:
        BaseExceptionGroup: those errors of the group that are of none of these kinds.
    """
    if not isinstance(raised, BaseExceptionGroup):
        return [raised]
    mine, others = raised.split(kinds)
    if others is not None:
        try:
            raise others
        finally:
            del others, raised  # its traceback holds this frame
    assert mine is not None, "no group is empty"
    return [error for part in mine.exceptions for error in errors_in(part, *kinds)]
