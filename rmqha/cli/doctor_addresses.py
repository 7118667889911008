"""``rmqha doctor``: addresses that name the wrong port, as far as one file shows. Pure.

A broker's ports are neighbours: listenPort for clients, listenPort - 2 for some of their requests, and listenPort + 1
for slaves, unless haListenPort says otherwise. One digit, and a slave asks the wrong one.
"""

from collections.abc import Iterator

from rmqha.cli.finding import FAIL, Finding
from rmqha.config import BrokerConfig, split_address
from rmqha.config.kinds import split_listen_address

_HERE = ("127.0.0.1", "localhost", "::1")
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - recognised here, not bound
_WANTED = {
    "haMasterAddress": "the master's HA port (its haListenPort, listenPort + 1 by default)",
    "haPeers": "the other replicas' HA ports (haListenPort, listenPort + 1 by default)",
    "masterAddress": "the master's listenPort",
    "namesrvAddr": "a name server (port 9876 by default), or leave it out",
}


def named_addresses(config: BrokerConfig) -> list[tuple[str, str]]:
    """What this role of broker connects to: keys and addresses."""
    replicas = [("haMasterAddress", config.ha_master_address), ("masterAddress", config.master_address)]
    peers = [("haPeers", peer) for peer in config.ha_peers]
    servers = [("namesrvAddr", address) for address in config.namesrv_addr]
    if config.enable_dleger_commit_log:
        return servers
    return [(key, address) for key, address in (*(replicas if config.is_slave else peers), *servers) if address]


def check_addresses(config: BrokerConfig) -> Iterator[Finding]:
    """Those that name a port of this very broker, or that are given where another kind of port is wanted."""
    for key, address in named_addresses(config):
        own = _own_port(config, address)
        if own and (key, own) != ("namesrvAddr", "listenPort"):  # a broker is a name server for its own name
            yield Finding(FAIL, key, f"{address} is this broker's own {own}", f"name {_WANTED[key]}")
    if config.is_slave and config.ha_master_address and config.ha_master_address == config.master_address:
        what = f"haMasterAddress and masterAddress both name {config.master_address}, and no port serves both"
        told = f"haMasterAddress is {_WANTED['haMasterAddress']}, masterAddress is {_WANTED['masterAddress']}"
        yield Finding(FAIL, "haMasterAddress", what, told)


def _own_port(config: BrokerConfig, address: str) -> str:
    """Which key of this broker's ports an address names; empty if it is none of them."""
    host, port = split_address(address)
    listen, ha = (config.bind_address, config.broker_ip1), (config.ha_bind_address, config.broker_ip2)
    ports = [
        ("listenPort", *listen, config.listen_port),
        ("listenPort - 2", *listen, config.listen_port - 2),
        ("haListenPort", *ha, config.ha_listen_port),
    ]
    if config.metrics_listen:
        bound, number = split_listen_address(config.metrics_listen)
        ports.append(("metricsListen", bound, bound, number))
    return next((key for key, bound, told, number in ports if number == port and _is_here(host, bound, told)), "")


def _is_here(host: str, bound: str, told: str) -> bool:
    return host in (bound, told) or (bound in (*_HERE, *_EVERYWHERE) and host in _HERE)
