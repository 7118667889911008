"""What an operator chooses by a word of broker.conf, once for the table of keys and for all that act on it."""

from enum import StrEnum


class BrokerRole(StrEnum):
    """RocketMQ's three roles."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class FlushDiskType(StrEnum):
    """When a send is answered: after fdatasync, or before."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class HaAck(StrEnum):
    """What a slave's acknowledgement promises."""

    RECEIVED = "received"
    """In memory."""
    WRITTEN = "written"
    """Verified and written: survives the process, not the power. What RocketMQ's slaves mean."""
    DURABLE = "durable"
    """Verified, written, and forced to the device."""


class HaStartFrom(StrEnum):
    """Where a slave without any data starts (first report 0)."""

    MIN = "min"
    """The beginning of the log: full history."""
    LAST = "last"
    """The beginning of the last file, as RocketMQ 4.9 does."""


class HaCatchUp(StrEnum):
    """Whether a starting master first fetches what its peers hold beyond its own end."""

    OFF = "off"
    TRY = "try"
    REQUIRE = "require"


class TlsMode(StrEnum):
    """RocketMQ's three modes of a listener."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    """Both kinds are served: for the time of a change from one to the other."""
    ENFORCING = "enforcing"


class DLedgerAck(StrEnum):
    """When a member of a DLedger group counts an entry as stored."""

    FLUSHED = "flushed"
    """Its data and its unit of the index are forced to the device."""
    WRITTEN = "written"
    """They are written: what DLedger means."""
