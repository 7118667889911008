"""RemoteAddressStrategy: which addresses a pattern of ``plain_acl.yml`` stands for.

    (nothing)                        none
    *    *.*.*.*    *:*:*:*:*:*:*:*  all
    192.168.0.1    2001:db8::1       one
    192.168.0.{1,2}    2001:db8::{1,2}    10.0.0.1,10.0.0.2    some
    192.168.*.*    192.168.0.1-10    2001:db8::5-1f    2001:db8::*    ranges; hexadecimal in an IPv6 address

RocketMQ looks at no part behind the first that is a range; here each part counts.

Source: rocketmq-all-4.9.8 RemoteAddressStrategyFactory.java, AclUtils.java.
"""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final

_ALL: Final = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_V4_PARTS: Final = 4
_V6_PARTS: Final = 8

Parts = tuple[int, ...]
"""An address: four numbers, or eight."""
_Ranges = tuple[tuple[int, int], ...]


class RemoteAddressStrategy:
    """Some addresses."""

    def __init__(self, pattern: str | None) -> None:
        """Raises ValueError: it is no such pattern."""
        pattern = (pattern or "").strip()
        self._matches_all: Final = pattern in _ALL
        self._ranges: Final[list[_Ranges]] = []
        if not self._matches_all:
            self._ranges.extend(map(_ranges_of, _alternatives(pattern)))

    def match(self, address: Parts) -> bool:
        """Whether it is one of them."""
        return self._matches_all or any(_contain(ranges, address) for ranges in self._ranges)


def _contain(ranges: _Ranges, address: Parts) -> bool:
    if len(ranges) != len(address):
        return False
    return all(low <= part <= high for part, (low, high) in zip(address, ranges, strict=True))


@lru_cache(maxsize=4096)
def parts_of(host: str) -> Parts:
    """The parts of an IP address, as a connection has it; none of what is no address."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return ()
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped  # how a listener for both families shows an IPv4 peer
    raw = address.packed
    width = len(raw) // (_V6_PARTS if address.version == 6 else _V4_PARTS)
    return tuple(int.from_bytes(raw[at : at + width], "big") for at in range(0, len(raw), width))


def _alternatives(pattern: str) -> list[str]:
    """What the list in a pattern, if there is one, makes of it."""
    if not pattern:
        return []
    head, brace, last = pattern.partition("{")
    if not brace:
        return [part.strip() for part in pattern.split(",")]
    if not last.endswith("}") or not head.endswith((".", ":")):
        raise ValueError(f"{pattern!r}: a list in braces is all of an address's last part")
    return [head + part.strip() for part in last[:-1].split(",")]


def _ranges_of(pattern: str) -> _Ranges:
    try:
        if ":" in pattern:
            return tuple(_range_of(part, base=16, part_max=0xFFFF) for part in _v6_parts(pattern))
        return tuple(_range_of(part, base=10, part_max=255) for part in _v4_parts(pattern))
    except ValueError as error:
        raise ValueError(f"{pattern!r} is no address: {error}") from None


def _v4_parts(pattern: str) -> list[str]:
    parts = pattern.split(".")
    if len(parts) != _V4_PARTS:
        raise ValueError("an IPv4 address has four parts")
    return parts


def _v6_parts(pattern: str) -> list[str]:
    before, gap, behind = pattern.partition("::")
    parts = [part for part in before.split(":") if part or not gap]
    parts_behind = behind.split(":") if behind else []
    lacking = _V6_PARTS - len(parts) - len(parts_behind)
    if gap:
        parts += ["0"] * lacking + parts_behind
    elif parts[-1] == "*":
        parts += ["*"] * lacking
    if len(parts) != _V6_PARTS or (gap and lacking < 1):
        raise ValueError("an IPv6 address has eight parts")
    return parts


def _range_of(part: str, *, base: int, part_max: int) -> tuple[int, int]:
    if part.strip() == "*":
        return 0, part_max
    low, minus, high = part.partition("-")
    first = int(low, base)
    last = int(high, base) if minus else first
    if not 0 <= first <= last <= part_max:
        raise ValueError(f"{part!r} is no part, and no range of parts")
    return first, last
