"""KnownWords: whether one broker knows what operators said to another, told in a few numbers, without its tables."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from rmqha.store.config_files import CONSUMER_OFFSET, SUBSCRIPTION_GROUP, TOPICS

WORDS_KEY: Final = "tables_changed"
"""Under which a broker's status has :func:`words_to_json`."""
STAMPED_TABLES: Final = (TOPICS, CONSUMER_OFFSET, SUBSCRIPTION_GROUP)
"""Their order in each tuple of words."""
_MAX: Final = 1 << 63


class KnownWords(NamedTuple):
    """Of one table, by stamps (ms; see :class:`~rmqha.broker.tables.change_stamps.ChangeStamps`).

    Attributes:
        heard_to: the latest that the file had at the start, or that another broker has told since; 0: none.
        noted_from: the first that an operator has given in this process; 0: none.
    """

    heard_to: int = 0
    noted_from: int = 0

    def lack(self, stamp: int) -> bool:
        """Whether the latest word that another broker has heard is unknown here: it is from before this process."""
        return self.heard_to < stamp and not 0 < self.noted_from <= stamp


Words = tuple[KnownWords, ...]
"""Of :data:`STAMPED_TABLES`; empty: that broker does not say, as RocketMQ's."""


def lacking(words: Words, stamps: tuple[int, ...]) -> list[str]:
    """Names of the tables of which ``words`` lack what another broker, with these latest ``stamps``, has heard."""
    told = zip(STAMPED_TABLES, words, stamps, strict=False)
    return [name for name, known, stamp in told if known.lack(stamp)]


def words_to_json(words: Words) -> dict[str, dict[str, int]]:
    """As a status has it."""
    return {name: known._asdict() for name, known in zip(STAMPED_TABLES, words, strict=True)}


def words_of(status: Mapping[str, Any]) -> Words:
    """As a broker's status tells them; empty if it does not."""
    told = status.get(WORDS_KEY)
    if not isinstance(told, dict):
        return ()
    return tuple(_known(told.get(name)) for name in STAMPED_TABLES)


def _known(value: object) -> KnownWords:
    told = value if isinstance(value, dict) else {}
    return KnownWords(*(_stamp(told.get(name)) for name in KnownWords._fields))


def _stamp(value: object) -> int:
    return value if type(value) is int and 0 <= value < _MAX else 0
