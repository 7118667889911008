"""What a value in broker.conf can be: how it is read, what unit it has in the file, how it is shown again.

A :class:`Kind` speaks the file's language (milliseconds, hours, ``04;16``) on one side and the program's
(seconds, tuples, enums) on the other. This is the only place where units are converted.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar


@dataclass(frozen=True)
class Kind:
    """One sort of value. ``parse`` raises ValueError with the reason; ``show`` is its inverse."""

    name: str
    parse: Callable[[str], Any] = field(repr=False)
    show: Callable[[Any], str] = field(repr=False, default=str)
    scale: float | None = None  # file units to program units, for numbers only
    choices: tuple[str, ...] = ()
    empty: Any = ""  # the attribute's value while a derived default is not known yet


def _whole_number(text: str) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def _scaled(name: str, scale: float) -> Kind:
    return Kind(
        name,
        lambda text: _whole_number(text) * scale,
        lambda value: str(round(value / scale)),
        scale=scale,
        empty=0,
    )


def _ratio(text: str) -> float:
    if not (text.replace(".", "", 1).isascii() and text.replace(".", "", 1).isdigit() and 0 < float(text) <= 1):
        raise ValueError(f"{text!r} is not a ratio such as 0.75, above 0 and at most 1")
    return float(text)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def split_address(text: str, *, port_min: int = 1) -> tuple[str, int]:
    """Split ``host:port`` or ``[v6]:port``.

    Raises:
        ValueError: it is neither, or the port is outside ``port_min``..65535.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r} is not host:port; write an IPv6 address as [address]:port")
    if not (host and colon and port.isascii() and port.isdigit()):
        raise ValueError(f"{text!r} is not host:port")
    if len(port) > len("65535") or not port_min <= int(port) <= 65535:
        raise ValueError(f"{text!r} is not host:port: ports are {port_min} to 65535")
    return host, int(port)


def split_told_address(text: str) -> tuple[str, int]:
    """As :func:`split_address`, of what a broker or a name server says: RocketMQ writes IPv6 without brackets, too.

    Raises:
        ValueError: it is no such address.
    """
    host, _, port = text.rpartition(":")
    return split_address(f"[{host}]:{port}" if ":" in host and not host.startswith("[") else text)


def split_listen_address(text: str) -> tuple[str, int]:
    """Split ``[host:]port``: without a host, 127.0.0.1; port 0 is any that is free.

    Raises:
        ValueError: it is nothing of the kind.
    """
    try:
        return split_address(text if ":" in text else f"127.0.0.1:{text}", port_min=0)
    except ValueError:
        raise ValueError(f"{text!r} is not [host:]port") from None


def _listen_address(text: str) -> str:
    split_listen_address(text)
    return text


def _address(text: str) -> str:
    split_address(text)
    return text


def _parts(text: str, separators: str = ",") -> tuple[str, ...]:
    for separator in separators[1:]:
        text = text.replace(separator, separators[0])
    return tuple(part.strip() for part in text.split(separators[0]) if part.strip())


def _networks(text: str) -> tuple[str, ...]:
    from ipaddress import ip_network  # noqa: PLC0415 - only a configured haAllow pays for it

    return tuple(str(ip_network(part, strict=False)) for part in _parts(text))


def _hours_of_day(text: str) -> tuple[int, ...]:
    hours = tuple(_whole_number(part) for part in _parts(text, ";"))
    if not hours or not all(0 <= hour <= 23 for hour in hours):
        raise ValueError(f"{text!r} is not a list of hours 00..23 separated by ';'")
    return hours


_DELAY_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DELAY_MAX_S: Final = 100_000_000 * 86_400
"""Added to the time of a message it is still one; RocketMQ's overflows, and the message is delivered at once."""
_DELAY_DIGITS_MAX: Final = 20


def _delay_levels(text: str) -> tuple[float, ...]:
    levels = []
    for part in text.split():
        number = part[:-1]
        if part[-1] not in _DELAY_UNITS or not (number.isascii() and number.isdigit()):
            raise ValueError(f"{part!r:.40} is not a number followed by s, m, h or d")
        if len(number) > _DELAY_DIGITS_MAX or int(number) * _DELAY_UNITS[part[-1]] > _DELAY_MAX_S:
            raise ValueError(f"{part!r:.40} is more than {_DELAY_MAX_S // _DELAY_UNITS['d']}d, the longest delay")
        levels.append(float(int(number) * _DELAY_UNITS[part[-1]]))
    return tuple(levels)


def _show_delay_levels(levels: tuple[float, ...]) -> str:
    shown = []
    for level in levels:
        unit = max((u for u in "smhd" if level % _DELAY_UNITS[u] == 0), key=lambda u: _DELAY_UNITS[u])
        shown.append(f"{int(level) // _DELAY_UNITS[unit]}{unit}")
    return " ".join(shown)


def _path(text: str) -> str:
    if "," in text:
        raise ValueError("several directories (a comma) are not supported; name one")
    if "\0" in text:
        raise ValueError("a path cannot hold a NUL character")
    return str(Path(text).expanduser()) if text else ""


_E = TypeVar("_E", bound=StrEnum)


def choice(values: type[_E]) -> Kind:
    """One of an enum's values, upper and lower case alike."""

    def parse(text: str) -> _E:
        for value in values:
            if value.value.lower() == text.lower():
                return value
        raise ValueError(f"{text!r} is not one of {', '.join(values)}")

    return Kind("choice", parse, lambda value: str(value.value), choices=tuple(values))


INTEGER: Final = Kind("number", _whole_number, scale=1, empty=0)
BYTES: Final = Kind("bytes", _whole_number, scale=1, empty=0)
PERCENT: Final = Kind("percent", _whole_number, scale=1, empty=0)
MILLISECONDS: Final = _scaled("ms", 0.001)
SECONDS: Final = _scaled("s", 1.0)
HOURS: Final = _scaled("hours", 3600.0)
RATIO: Final = Kind("ratio", _ratio)
BOOLEAN: Final = Kind("boolean", _boolean, lambda value: str(value).lower(), empty=False)
TEXT: Final = Kind("text", str)
PATH: Final = Kind("path", _path)
ADDRESS: Final = Kind("host:port", lambda text: _address(text) if text else "")
LISTEN_ADDRESS: Final = Kind("[host:]port", lambda text: _listen_address(text) if text else "")
ADDRESSES: Final = Kind("host:port, ...", lambda text: tuple(_address(p) for p in _parts(text, ",;")), ",".join)
NETWORKS: Final = Kind("addresses", _networks, ",".join)
NAMES: Final = Kind("names", _parts, ",".join)
SEMICOLON_NAMES: Final = Kind("names", lambda text: _parts(text, ";"), ";".join)
HOURS_OF_DAY: Final = Kind("hours of day", _hours_of_day, lambda hours: ";".join(f"{h:02}" for h in hours))
DELAY_LEVELS: Final = Kind("durations", _delay_levels, _show_delay_levels)
