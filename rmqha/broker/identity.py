"""Identity: who a broker tells name servers to be."""

from typing import NamedTuple


class Identity(NamedTuple):
    """Who this broker is at this moment; when it is another, name servers are told at once."""

    broker_name: str
    broker_id: int
    address: str
    """Where clients find it."""
    ha_address: str
    """Where slaves do."""
