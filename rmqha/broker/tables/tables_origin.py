"""TablesOrigin: whose tables a broker of a DLedger group has."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, order=True)
class TablesOrigin:
    """As the broker's status tells it; the greatest are the newest.

    Attributes:
        term: in which the master led whose they are; -1: they are what this process found on its disk, -2: none was.
        was_master: whether this broker was that master: others have them some seconds later.
        leader_id: which member that master was; empty if none, or it is not told.
    """

    term: int = -2
    was_master: bool = False
    leader_id: str = field(default="", compare=False)

    @property
    def is_of_a_master(self) -> bool:
        """Whether a master told them, or was this broker, since its process began."""
        return self.term >= 0


def read_tables_origin(status: dict[str, Any]) -> TablesOrigin:
    """As a broker's status has it; of one that does not say so, the least that it may be.

    That of RocketMQ's is empty: it is one that a name server takes for the master.
    """
    if not status:
        return TablesOrigin(0, was_master=True)
    value = status.get("tables")
    if not isinstance(value, dict) or type(term := value.get("term")) is not int:
        return TablesOrigin()
    return TablesOrigin(term, was_master=value.get("was_master") is True, leader_id=str(value.get("leader_id") or ""))
