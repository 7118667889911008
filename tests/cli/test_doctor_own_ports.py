"""`rmqha doctor`: an address is this broker's own by whichever name it is called, and by those of that port alone.

Some of these no broker starts with: then doctor says so before it looks any further.
"""

from itertools import product
from typing import Final

import pytest

from rmqha.cli.doctor_addresses import check_addresses
from rmqha.config import load_config
from rmqha.errors import ConfigError

PORTS: Final = {
    "listenPort": (10921, ("10.0.1.1", "10.0.1.2")),
    "listenPort - 2": (10919, ("10.0.1.1", "10.0.1.2")),
    "haListenPort": (10931, ("10.0.1.3", "10.0.1.4")),
    "metricsListen": (9100, ("10.0.1.5",)),
}
"""Each port, and the addresses by which others reach it: what it is bound to, and what is told of it."""
HOSTS: Final = sorted({host for _, hosts in PORTS.values() for host in hosts} | {"10.0.1.9", "127.0.0.1"})
SETTINGS: Final = {
    "brokerName": "a", "allowInsecure": "true", "listenPort": "10921", "bindAddress": "10.0.1.1",
    "brokerIP1": "10.0.1.2", "haListenPort": "10931", "haBindAddress": "10.0.1.3", "brokerIP2": "10.0.1.4",
    "metricsListen": "10.0.1.5:9100",
}  # fmt: skip
SLAVE: Final = {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": "10.0.9.9:10912"}


@pytest.mark.parametrize("key", ["haPeers", "haMasterAddress", "masterAddress", "namesrvAddr"])
def test_each_port_is_known_by_its_own_addresses(key: str) -> None:
    role = SLAVE if "Master" in key or "master" in key else {}
    for (name, (port, hosts)), host in product(PORTS.items(), HOSTS):
        is_own = host in hosts and (key, name) != ("namesrvAddr", "listenPort")
        found = told_of(SETTINGS | role | {key: f"{host}:{port}"})
        own = f"{host}:{port} is this broker's own"
        assert [own in one for one in found] == [True] * is_own, (name, host)


def told_of(settings: dict[str, str]) -> list[str]:
    try:
        return [f"{one.area}: {one.what}" for one in check_addresses(load_config(None, settings))]
    except ConfigError as error:
        return [str(error).replace(" names ", "=").replace(", this", " is this")]
