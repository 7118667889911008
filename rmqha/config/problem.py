"""What is wrong with a configuration whose keys are each good."""

from typing import NamedTuple


class Problem(NamedTuple):
    """``keys``, separated by blanks, are what it is about; the first of them that was set is named with its place."""

    keys: str
    reason: str
