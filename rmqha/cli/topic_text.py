"""Permissions of topics as letters, and which topics are nobody's own. Pure."""

from typing import Final

from rmqha.codec.route import PERM_READ, PERM_WRITE

PERMS: Final = {"rw": PERM_READ | PERM_WRITE, "r": PERM_READ, "w": PERM_WRITE}
_PARTS_PREFIXES: Final = ("%RETRY%", "%DLQ%")


def perm_text(perm: int) -> str:
    """``rw``, ``r-``, ``-w`` or ``--``."""
    return ("r" if perm & PERM_READ else "-") + ("w" if perm & PERM_WRITE else "-")


def is_of_a_group(topic: str) -> bool:
    """Whether it holds what a group of consumers sent back."""
    return topic.startswith(_PARTS_PREFIXES)
