"""Addresses inside records: the IP (4 or 16 bytes), then the port as int32.

    at  size     field
     0  4 or 16  IP address
     4 or 16  4  port, int32

Source: spec: commitlog §2.1; rocketmq-all-4.9.8 MessageExt.java:79-108.
"""

import struct
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

from rmqha.errors import LocalProtocolError

_EVERY_HOST: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - not listened on here


@lru_cache(maxsize=256)
def encode_host(ip: str, port: int) -> bytes:
    """8 bytes for an IPv4 address, 20 for an IPv6 one; a zone (``%eth0``) is dropped.

    Raises:
        LocalProtocolError: ``ip`` is no IP address.
    """
    try:
        address = ip_address(ip.partition("%")[0])
    except ValueError:
        raise LocalProtocolError(f"{ip!r} is no IP address: give an IPv4 or IPv6 address") from None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).packed + struct.pack(">i", port)


def join_address(host: str, port: int) -> str:
    """``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_host(text: str) -> bytes:
    """:func:`encode_host` for ``ip:port``; an IPv6 address may stand in brackets.

    Raises:
        LocalProtocolError: it is not of that form.
    """
    ip, _, port = text.rpartition(":")
    if not port.isdecimal():
        raise LocalProtocolError(f"{text!r} is not of the form ip:port")
    return encode_host(ip.strip("[]"), int(port))


def decode_host(raw: bytes) -> str:
    """``ip:port`` as Java shows it: ``127.0.0.1:10911``, ``[2001:db8:45:0:0:0:0:1]:10911``."""
    (port,) = struct.unpack(">i", raw[-4:])
    if len(raw) == 8:
        return f"{raw[0]}.{raw[1]}.{raw[2]}.{raw[3]}:{port}"
    groups = ":".join(f"{group:x}" for group in struct.unpack(">8H", raw[:16]))
    return f"[{groups}]:{port}"


def address_of(peer: str) -> tuple[str, str]:
    """Host and port of ``ip:port`` or ``[ip]:port``."""
    host, _, port = peer.rpartition(":")
    return host.strip("[]"), port


def host_of(peer: str) -> str:
    """The host of ``ip:port`` or ``[ip]:port``."""
    return address_of(peer)[0]


def is_same_address(one: str, other: str) -> bool:
    """Whether two ``host:port`` lead to one process, as far as is seen without asking for a host's address.

    Who listens at all addresses of its machine, as ``0.0.0.0``, says nothing of which others use.
    """
    (host, port), (other_host, other_port) = address_of(one), address_of(other)
    hosts = {host.casefold(), other_host.casefold()}
    return port == other_port and (len(hosts) == 1 or not hosts.isdisjoint(_EVERY_HOST))


class Networks:
    """A list of addresses and networks, as ``10.0.0.0/8``; an empty one holds every address."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = [ip_network(network) for network in networks]

    def __contains__(self, address: str) -> bool:
        if not self._networks:
            return True
        try:
            ip = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if isinstance(ip, IPv6Address) and ip.ipv4_mapped:
            ip = ip.ipv4_mapped  # how a listener for both families shows an IPv4 peer
        return any(ip in network for network in self._networks)
