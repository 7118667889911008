"""What must hold between the keys of a port for clients, a broker's or a name server's."""

from ipaddress import ip_address

from rmqha.choices import TlsMode
from rmqha.config.listener_config import ListenerConfig
from rmqha.config.problem import Problem, Problems
from rmqha.config.tls_config import ListenerTlsConfig


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
