"""Which of a send's properties are stored, and what they make of the send. Hot path.

Source: spec: commitlog §2.5, remoting §2.4; rocketmq-all-4.9.8 SendMessageProcessor.java.
"""

import re
from typing import Final, NamedTuple

from rmqha.codec.codes import ResponseCode
from rmqha.codec.properties import find_property, pairs_of
from rmqha.errors import RemoteProtocolError

_CLUSTER: Final = b"CLUSTER"
_WAIT: Final = b"WAIT"
_DELAY: Final = b"DELAY"
_TRAN_MSG: Final = b"TRAN_MSG"
_TIMERS: Final = frozenset((b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS", b"TIMER_DELIVER_MS"))
"""By which RocketMQ 5's clients ask to be delivered at a time; 4.9's brokers take no notice, and deliver at once."""
_PLAIN_PAIR: Final = (
    rb"(?![CDTW](?:LUSTER|ELAY|RAN_MSG|AIT|IMER_DEL(?:AY_SEC|AY_MS|IVER_MS))\x01)[^\x01\x02]++\x01[^\x02]++"
)
_USUAL_PROPERTIES: Final = re.compile(
    rb"(%b(?:\x02%b)*)(?:\x02WAIT\x01true((?:\x02%b)*))?" % (_PLAIN_PAIR, _PLAIN_PAIR, _PLAIN_PAIR)
).fullmatch
"""Properties as Java's producers send them: whole pairs, of which the broker wants none, and WAIT=true not first.

There is one way to read a text by it, at most, so whatever does not match is given up in linear time."""
_NO_DELAY: Final = re.compile(rb"-[0-9]+|\+?0+").fullmatch
_DELAY_LEVEL: Final = re.compile(rb"\+?0*([0-9]{1,10})").fullmatch
_INT32_MAX: Final = 2**31 - 1


class SendRefusedError(RemoteProtocolError):
    """This message is not stored; ``code`` and the sentence go to the producer."""

    def __init__(self, code: ResponseCode, reason: str) -> None:
        self.code = code
        super().__init__(reason)


def without_delay(properties: bytes) -> bytes:
    """Those of a message that is to be delivered at once, whatever level it has."""
    pairs = pairs_of(properties)
    if pairs.pop(_DELAY, None) is None:
        return properties
    return b"\x02".join(pairs.values())


class DelayAsked(NamedTuple):
    """A message is not to be delivered at once."""

    level: int
    """From 1 on, and maybe beyond the highest there is."""
    pairs: dict[bytes, bytes]
    """All its properties, WAIT among them (:func:`~rmqha.codec.properties.pairs_of`)."""


Stored = tuple[bytes, bool, DelayAsked | None]
"""The properties to store, whether the producer waits for disk and replicas, and whether it is stored to wait."""


class StoredProperties:
    """Makes of the properties that producers send those that a broker of ``cluster_name`` stores."""

    def __init__(self, cluster_name: str) -> None:
        self._cluster_pair: Final = b"CLUSTER\x01" + cluster_name.encode()
        self._appended_cluster: Final = b"\x02" + self._cluster_pair

    def make(self, raw: bytes, *, batch: bool) -> Stored:
        """What is stored of ``raw``. Malformed pairs vanish, CLUSTER is added, WAIT is used but only stored in batches.

        Raises:
            SendRefusedError: they ask for what is not supported.
        """
        usual = None if batch else _USUAL_PROPERTIES(raw)
        if usual is not None:
            return usual[1] + (usual[2] or b"") + self._appended_cluster, True, None
        return self.make_slowly(raw, batch=batch)

    def make_slowly(self, raw: bytes, *, batch: bool) -> Stored:
        """As :meth:`make`, pair by pair."""
        pairs = pairs_of(raw)
        if _TRAN_MSG in pairs:
            _refuse_transaction(pairs)
        level = _delay_level(pairs) if _DELAY in pairs else 0
        if not level:
            _refuse_timer(pairs)
        if level and batch:
            raise SendRefusedError(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be delayed: send its messages singly")
        stored, waits = self._finish(pairs, keep_wait=batch or level > 0)
        return stored, waits, DelayAsked(level, pairs) if level else None

    def make_half(self, raw: bytes) -> Stored:
        """As :meth:`make`, of a transactional message; WAIT is stored, too.

        Raises:
            SendRefusedError: it is to be delayed, which RocketMQ's producers leave out.
        """
        pairs = pairs_of(raw)
        if _DELAY in pairs and _delay_level(pairs):
            raise SendRefusedError(
                ResponseCode.MESSAGE_ILLEGAL, "a transactional message cannot be delayed: remove DELAY"
            )
        _refuse_timer(pairs)
        return *self._finish(pairs, keep_wait=True), None

    def _finish(self, pairs: dict[bytes, bytes], *, keep_wait: bool) -> tuple[bytes, bool]:
        wait = pairs.get(_WAIT) if keep_wait else pairs.pop(_WAIT, None)
        pairs[_CLUSTER] = self._cluster_pair
        return b"\x02".join(pairs.values()), wait is None or wait[5:].lower() == b"true"


def is_transactional(raw: bytes) -> bool:
    """Whether properties are those of a message that is to be seen only if its producer's transaction is committed."""
    return (find_property(raw, _TRAN_MSG) or b"").lower() == b"true"


def _delay_level(pairs: dict[bytes, bytes]) -> int:
    """Raises SendRefusedError: it is no number; in RocketMQ such a send fails, too."""
    text = pairs[_DELAY].partition(b"\x01")[2]
    if _NO_DELAY(text):
        return 0
    match = _DELAY_LEVEL(text)
    if match is None or (level := int(match[1])) > _INT32_MAX:
        shown = text[:20].decode(errors="replace")
        raise SendRefusedError(ResponseCode.MESSAGE_ILLEGAL, f"DELAY is a level from 1 on, and not {shown!r}")
    return level


def _refuse_timer(pairs: dict[bytes, bytes]) -> None:
    """Say no rather than deliver at once; beside a level, which counts alone, timers are no question."""
    if timers := _TIMERS & pairs.keys():
        raise SendRefusedError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"no message is delivered at a time here ({min(timers).decode()}, of RocketMQ 5): take a level, DELAY",
        )


def _refuse_transaction(pairs: dict[bytes, bytes]) -> None:
    """Say no rather than store what would never be delivered."""
    if pairs[_TRAN_MSG].partition(b"\x01")[2].lower() == b"true":
        raise SendRefusedError(
            ResponseCode.MESSAGE_ILLEGAL, "the messages of a batch cannot be transactional: remove TRAN_MSG"
        )
