"""SlaveIdentity: who is at the other end of an HA connection, and which connections may be one slave's.

RocketMQ's replication does not say who connects. What is known comes from outside: the address from the connection, the
name by remoting (request 28, ``haClientPort``), where it fits a connection. Behind a tunnel or a proxy the address is
the tunnel's and the name never fits, so its slaves cannot be told apart, and count as one.
"""

from dataclasses import dataclass, field
from typing import Final

_THIS_HOST: Final = frozenset({"127.0.0.1", "::1"})
"""Where any broker of a trial comes from, and whatever a tunnel that ends here lets in. Any other address, also of
loopback, was given to somebody."""


@dataclass(frozen=True, slots=True)
class SlaveIdentity:
    """What is known of the slave of one connection."""

    address: str
    name: str = ""
    """``brokerName/brokerId``; empty until the slave has said so. One of RocketMQ never does."""
    host: str = field(init=False)
    """The address; one for all those of this host."""
    marks: tuple[str, ...] = field(init=False)
    """What no other slave has: the name, and the host, which stands for one slave whatever names are said there, except
    where a trial's brokers share it and have said their names."""

    def __post_init__(self) -> None:
        is_here = self.address in _THIS_HOST
        host = "this host" if is_here else self.address
        object.__setattr__(self, "host", host)
        named = (self.name,) if self.name else ()
        object.__setattr__(self, "marks", named if named and is_here else (host, *named))

    def may_be(self, other: "SlaveIdentity") -> bool:
        """Whether both may be one slave: of one name; or from one host, if either has not said its name."""
        return self.name == other.name if self.name and other.name else self.host == other.host
