"""What is wrong with a configuration whose keys are each good."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple


class Problem(NamedTuple):
    """``keys``, separated by blanks, are what it is about; the first of them that was set is named with its place."""

    keys: str
    reason: str


Problems = Iterator[Problem]


def problem_lines(problems: Iterable[Problem], origins: Mapping[str, str]) -> list[str]:
    """A line for each problem, with the place where a key of it was set; each line once."""
    lines = []
    for keys, reason in problems:
        where = next((origins[key] for key in keys.split() if key in origins), "")
        lines.append(f"{where}: {reason}" if where else reason)
    return list(dict.fromkeys(lines))
