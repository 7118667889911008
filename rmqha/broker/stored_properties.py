"""Which of a send's properties are stored, and what they make of the send. Hot path.

Source: spec: commitlog §2.5, remoting §2.4; rocketmq-all-4.9.8 SendMessageProcessor.java.
"""

import re
from typing import Final

from rmqha.codec.codes import ResponseCode
from rmqha.errors import RemoteProtocolError

_CLUSTER: Final = b"CLUSTER"
_WAIT: Final = b"WAIT"
_DELAY: Final = b"DELAY"
_TRAN_MSG: Final = b"TRAN_MSG"
_PLAIN_PAIR: Final = rb"(?![CDTW](?:LUSTER|ELAY|RAN_MSG|AIT)\x01)[^\x01\x02]++\x01[^\x02]++"
_USUAL_PROPERTIES: Final = re.compile(
    rb"(%b(?:\x02%b)*)(?:\x02WAIT\x01true((?:\x02%b)*))?" % (_PLAIN_PAIR, _PLAIN_PAIR, _PLAIN_PAIR)
).fullmatch
"""Properties as Java's producers send them: whole pairs, of which the broker wants none, and WAIT=true not first.

There is one way to read a text by it, at most, so whatever does not match is given up in linear time."""
_NO_DELAY: Final = re.compile(rb"-[0-9]+|0+").fullmatch


class SendRefusedError(RemoteProtocolError):
    """This message is not stored; ``code`` and the sentence go to the producer."""

    def __init__(self, code: ResponseCode, reason: str) -> None:
        self.code = code
        super().__init__(reason)


class StoredProperties:
    """Makes of the properties that producers send those that a broker of ``cluster_name`` stores."""

    def __init__(self, cluster_name: str) -> None:
        self._cluster_pair: Final = b"CLUSTER\x01" + cluster_name.encode()
        self._appended_cluster: Final = b"\x02" + self._cluster_pair

    def make(self, raw: bytes, *, batch: bool) -> tuple[bytes, bool]:
        """The properties to store, and whether the producer waits for disk and replicas.

        Malformed pairs vanish, CLUSTER is added, WAIT is used but only stored in batches.

        Raises:
            SendRefusedError: they ask for what is not supported.
        """
        usual = None if batch else _USUAL_PROPERTIES(raw)
        if usual is not None:
            return usual[1] + (usual[2] or b"") + self._appended_cluster, True
        return self.make_slowly(raw, batch=batch)

    def make_slowly(self, raw: bytes, *, batch: bool) -> tuple[bytes, bool]:
        """As :meth:`make`, pair by pair."""
        pairs = {}
        for pair in raw.split(b"\x02"):
            name, _, value = pair.partition(b"\x01")
            if name and value:
                pairs[name] = pair
        wait = pairs.get(_WAIT) if batch else pairs.pop(_WAIT, None)
        if _DELAY in pairs or _TRAN_MSG in pairs:
            _refuse_unsupported(pairs)
        pairs[_CLUSTER] = self._cluster_pair
        return b"\x02".join(pairs.values()), wait is None or wait[5:].lower() == b"true"


def _refuse_unsupported(pairs: dict[bytes, bytes]) -> None:
    """Say no rather than store what would never be delivered, or not when it should be."""
    delay = pairs.get(_DELAY, b"DELAY\x010").partition(b"\x01")[2]
    if not _NO_DELAY(delay):
        raise SendRefusedError(
            ResponseCode.MESSAGE_ILLEGAL, "delayed messages are not delivered by this version of rmqha: remove DELAY"
        )
    if pairs.get(_TRAN_MSG, b"").lower().endswith(b"\x01true"):
        raise SendRefusedError(
            ResponseCode.MESSAGE_ILLEGAL, "transactions are not supported by this version of rmqha: remove TRAN_MSG"
        )
