"""How long something took, for eyes. Pure."""


def span(seconds: float) -> str:
    """Return ``35 s``, ``12 min``, ``3 h``, ``2 d``: whole ones, rounded down."""
    for unit, size, limit in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if seconds < limit * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds // 86400:.0f} d"
