"""Who belongs together: what a slave checks of its master before it follows, as far as that one says who it is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One broker of a replication group; None where it is not known."""

    broker_name: str | None = None
    broker_id: int | None = None
    file_size: int | None = None
    """mappedFileSizeCommitLog, bytes."""
    cluster: str | None = None
    """brokerClusterName. One that differs keeps nobody from replicating."""


def why_apart(here: GroupMember, there: GroupMember) -> str:
    """Why these two cannot replicate to each other, and what to do; empty if they can, as far as is known.

    ``here.broker_name`` is None if the operator gave none: then any other name will do.
    """
    if _differ(here.broker_name, there.broker_name):
        return (
            f"it has brokerName={there.broker_name}, this broker has brokerName={here.broker_name}: to "
            "a consumer these are two brokers, and it reads everything twice. Set the same name on both"
        )
    if _differ(here.file_size, there.file_size):
        return (
            f"it has mappedFileSizeCommitLog={there.file_size}, this broker has {here.file_size}: its log does not fit "
            "into files of another size. Correct the one that is wrong; a slave whose store has the wrong size "
            "starts with an empty one, a master's store is never moved away for this"
        )
    if here.broker_id is not None and here.broker_id == there.broker_id:
        return (
            f"both have brokerId={here.broker_id}: clients reach only one of them. Give each broker of a group "
            "its own: 0 is that of the one master, and a second master is to be its slave"
        )
    return ""


def _differ(here: object, there: object) -> bool:
    return here is not None and there is not None and here != there
