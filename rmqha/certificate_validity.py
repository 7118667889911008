"""From when on and until when a certificate is valid, which Python's ssl tells only of a peer's. Pure.

Source: RFC 5280, section 4.1: of the DER that PEM wraps, as far as ``tbsCertificate.validity``.
"""

import re
import ssl
from datetime import UTC, datetime
from typing import Final

_BLOCK: Final = re.compile(r"-----BEGIN CERTIFICATE-----\s.+?\s-----END CERTIFICATE-----", re.DOTALL)
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_BEFORE_VALIDITY: Final = 3
"""serialNumber, signature, issuer."""
_SHORT_MAX: Final = 0x7F
_CENTURY_FROM: Final = 50


def valid_between(pem: str) -> tuple[float, float] | None:
    """When the last of a file's certificates begins, and the first one ends, in seconds since 1970.

    None: nothing that can be read as one.
    """
    try:
        times = [_validity(ssl.PEM_cert_to_DER_cert(block)) for block in _BLOCK.findall(pem)]
    except (ValueError, IndexError):
        return None
    return (max(begin for begin, _ in times), min(end for _, end in times)) if times else None


def _validity(der: bytes) -> tuple[float, float]:
    at = _content(der, _content(der, 0)[0])[0]
    if der[at] == _VERSION:
        at = _content(der, at)[1]
    for _ in range(_BEFORE_VALIDITY):
        at = _content(der, at)[1]
    not_before = _content(der, at)[0]
    return _time(der, not_before), _time(der, _content(der, not_before)[1])


def _time(der: bytes, at: int) -> float:
    start, end = _content(der, at)
    text = der[start:end].decode("ascii")
    if der[at] == _UTC_TIME:
        text = f"{'19' if int(text[:2]) >= _CENTURY_FROM else '20'}{text}"
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _content(der: bytes, at: int) -> tuple[int, int]:
    """Where the content of the element at ``at`` begins and ends."""
    size, start = der[at + 1], at + 2
    if size > _SHORT_MAX:
        digits = size - _SHORT_MAX - 1
        size, start = int.from_bytes(der[start : start + digits]), start + digits
    return start, start + size
