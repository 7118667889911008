"""What must hold between the keys of a port for clients, a broker's or a name server's."""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Protocol

from rmqha.choices import TlsMode
from rmqha.config.kinds import split_listen_address
from rmqha.config.listener_config import ListenerConfig
from rmqha.config.problem import Problem, Problems
from rmqha.config.tls_config import ListenerTlsConfig


class MonitoredConfig(Protocol):
    """What a broker's configuration and a name server's have in common."""

    @property
    def metrics_listen(self) -> str:
        """Where monitoring asks."""
        ...

    @property
    def allow_insecure(self) -> bool:
        """Whether the operator trusts the network."""
        ...

    @property
    def tls_mode(self) -> TlsMode:
        """Of the clients' port, and of this one."""
        ...


def in_flight_problems(config: ListenerConfig) -> Problems:
    """One connection cannot have more than all."""
    if config.max_in_flight_bytes_per_connection > config.max_in_flight_bytes:
        yield Problem(
            "maxInFlightBytesPerConnection maxInFlightBytes",
            "maxInFlightBytesPerConnection must not exceed maxInFlightBytes",
        )


def tls_problems(config: ListenerTlsConfig) -> Problems:
    """TLS needs its files."""
    if config.tls_mode is not TlsMode.DISABLED:
        if not (config.tls_cert_path and config.tls_key_path):
            yield Problem("tlsMode", f"tlsMode={config.tls_mode} needs tlsCertPath and tlsKeyPath")
        if config.tls_need_client_auth and not config.tls_trust_cert_path:
            yield Problem(
                "tlsMode",
                "clients must present a certificate, so tlsTrustCertPath is needed to check it; or set "
                "tlsNeedClientAuth=false, and anybody who reaches the port can read and write everything",
            )
    if config.tls_peer_names and not config.tls_need_client_auth:
        yield Problem("tlsPeerNames", "tlsPeerNames has no effect with tlsNeedClientAuth=false")


def metrics_problems(config: MonitoredConfig, *, taken: Mapping[int, str]) -> Problems:
    """The observability port is as closed as the others, and a port of its own.

    Args:
        config: of the process that has it.
        taken: the other ports that it listens on, with their keys.
    """
    if not config.metrics_listen:
        return
    host, port = split_listen_address(config.metrics_listen)
    if port and port in taken:
        yield Problem("metricsListen", f"metricsListen={config.metrics_listen}: port {port} is {taken[port]}'s")
    if not (is_loopback(host) or config.allow_insecure or config.tls_mode is TlsMode.ENFORCING):
        yield Problem(
            "metricsListen",
            f"metricsListen={config.metrics_listen} would listen beyond this machine, where anybody who reaches the "
            "port can read what topics and groups there are; set allowInsecure=true if the network is trusted, or "
            "listen on 127.0.0.1, or set tlsMode=enforcing",
        )


def is_loopback(address: str) -> bool:
    """Whether nobody beyond this machine reaches it."""
    return address == "localhost" or (is_ip(address) and ip_address(address).is_loopback)


def is_ip(address: str) -> bool:
    """Whether it is an address, and no name."""
    try:
        ip_address(address)
    except ValueError:
        return False
    return True
