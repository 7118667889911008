"""Which master a log comes from, and whether that is the one whose tables go with it: decided from what brokers say."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

ANOTHER_MASTER: Final = "another master than the one whose log is copied"
_MASTER_ID: Final = "0"


@dataclass(frozen=True, slots=True)
class BrokerProcess:
    """One run of a broker, as it tells of itself; what is empty is not known.

    Attributes:
        address: where it takes clients.
        boot: when it began, as RocketMQ's runtime information has it.
        is_master: whether it says so.
        ha_port: where it serves slaves; 0: not known.
        master: of a slave, where the master takes clients from which its log comes, through whatever slaves.
    """

    address: str
    boot: str
    is_master: bool
    ha_port: int
    master: str = ""

    @property
    def head(self) -> str:
        """The master from which its log comes, itself if it is one; empty if that is not known."""
        return self.address if self.is_master else self.master


def process_of(table: Mapping[str, Any], status: Mapping[str, Any]) -> BrokerProcess | None:
    """A broker of ours by its runtime table, and the status in it; None if it does not say, as while it starts."""
    ha, address = status.get("ha"), status.get("address")
    ha_port = ha.get("port") if isinstance(ha, dict) else None
    if not isinstance(address, str) or not address or not isinstance(ha_port, int):
        return None
    is_master = status.get("role") != "SLAVE"
    return BrokerProcess(address, _boot(table), is_master, ha_port, str(status.get("log_master") or ""))


def rocketmq_process_of(table: Mapping[str, Any], keys: Mapping[str, str]) -> BrokerProcess | None:
    """A broker of RocketMQ's by its runtime table and its configuration; None if they do not say."""
    host, port, ha_port = (keys.get(key, "") for key in ("brokerIP1", "listenPort", "haListenPort"))
    if not host or not port or not (ha_port.isascii() and ha_port.isdigit()):
        return None
    is_master = keys.get("brokerId") == _MASTER_ID and keys.get("brokerRole") != "SLAVE"
    return BrokerProcess(f"{host}:{port}", _boot(table), is_master, int(ha_port))


def _boot(table: Mapping[str, Any]) -> str:
    return str(table.get("bootTimestamp") or "")


def why_another(told: BrokerProcess, source: BrokerProcess, *, ha_address: str) -> str:
    """Why tables of the broker that ``told`` is are not of the log that comes from ``source``; empty if they may be.

    A slave says who its master is by the address alone, as that is the same after a restart that it has not heard of.
    """
    if not told.head or not source.head:
        return ""
    is_same_run = not (told.is_master and source.is_master and told.boot and source.boot) or told.boot == source.boot
    if told.head == source.head and is_same_run:
        return ""
    what = "the master" if told.is_master else "a slave of the master"
    return (
        f"it is {what} that calls itself {told.head}, {ANOTHER_MASTER} (haMasterAddress={ha_address}: it calls itself "
        f"{source.head}): its topics, groups and consumers' offsets are another group's. Set masterAddress to the "
        "listenPort of the master whose log is copied, or haMasterAddress to the HA port of this one, and restart this "
        "slave"
    )
