"""Names that somebody may have meant who wrote another one. Pure."""

from collections.abc import Iterable
from difflib import get_close_matches

from rmqha.logs import escaped

_SHOWN_MAX = 3
_LIKE = 0.6


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """At most three of the names that are known, the most similar first; upper and lower case are alike."""
    by_lower = {one.lower(): one for one in sorted(known)}
    return [by_lower[one] for one in get_close_matches(name.lower(), by_lower, n=_SHOWN_MAX, cutoff=_LIKE)]


def near_hint(name: str, known: Iterable[str], *, otherwise: str) -> str:
    """``did you mean a, b?``, or another hint if nothing is near."""
    near = near_names(name, known)
    return f"did you mean {' or '.join(map(escaped, near))}?" if near else otherwise
