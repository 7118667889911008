"""Asker: by which account, and from where, something was asked that is decided later, or again."""

from typing import NamedTuple


class Asker(NamedTuple):
    """What a client signs with may change with each of its requests."""

    access_key: str = ""
    """Of an account that was there; empty if none was named, and where there are no accounts."""
    host: str = ""


NOBODY = Asker()
