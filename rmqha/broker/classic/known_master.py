"""KnownMaster: where a slave's master is, as its configuration says, or else a name server."""

from typing import Final

from rmqha.broker.name_servers import FoundMaster
from rmqha.broker.tables.queue_ends_client import address_behind
from rmqha.config import BrokerConfig, split_address, split_told_address


class KnownMaster:
    """What is known of it; all of it is empty at a master.

    Attributes:
        found: as name servers last knew it, or None.
    """

    def __init__(self, config: BrokerConfig) -> None:
        """No name server has told of one yet."""
        self._config: Final = config
        self.found: FoundMaster | None = None

    @property
    def address(self) -> str:
        """Where it serves clients, or did when it was last heard of; empty if nothing tells.

        One that was given the HA port alone listens one below, unless it was told otherwise.
        """
        config = self._config
        named = config.master_address or (self.found.address if self.found else "")
        behind = address_behind(split_address(config.ha_master_address)) if config.ha_master_address else ""
        return named or behind

    @property
    def ha_address(self) -> tuple[str, int] | None:
        """The HA port from which a slave copies its log, as far as it is known."""
        named = self._config.ha_master_address or (self.found.ha_address if self.found else "")
        return split_told_address(named) if named and self._config.is_slave else None
