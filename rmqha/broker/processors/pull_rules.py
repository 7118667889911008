"""What a pull may be, and what it is told if it may not."""

from dataclasses import dataclass

from rmqha.codec.codes import ResponseCode
from rmqha.errors import RemoteProtocolError


class PullRefusedError(RemoteProtocolError):
    """This pull cannot be served; ``code`` and the sentence go to the consumer."""

    def __init__(self, code: ResponseCode, reason: str) -> None:
        self.code = code
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class PullRules:
    """What the broker's configuration says about pulls."""

    readable: bool = True
    slave_read_enable: bool = False
    far_behind_bytes: int = 0
    """A consumer further behind the log's end is told to read from a slave, if that is enabled."""
    long_polling_enable: bool = True
    short_polling_s: float = 1.0
