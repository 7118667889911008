"""Spark's filters as narrower read options. Only ever narrower: what is not understood is left to Spark."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import datasource as spark

from rmqha.spark.options import ReadOptions
from rmqha.spark.selection import is_wanted_topic


@dataclass(frozen=True)
class Narrowed:
    """Read options, and the physical range ``[begin, end)`` outside of which no row is wanted (None: no end)."""

    read: ReadOptions
    begin: int = 0
    end: int | None = None

    def clip(self, begin: int, end: int) -> tuple[int, int]:
        """What of a range is wanted."""
        return max(begin, self.begin), end if self.end is None else min(end, self.end)


def narrow(narrowed: Narrowed, filters: Iterable[spark.Filter]) -> Narrowed:
    """With every filter added that can be expressed: on topic, queueId, tags, physicalOffset."""
    for one in filters:
        match one:
            case spark.EqualTo(attribute=("physicalOffset",), value=value):
                narrowed = _between(narrowed, value, value + 1)
            case spark.GreaterThanOrEqual(attribute=("physicalOffset",), value=value):
                narrowed = _between(narrowed, value, None)
            case spark.GreaterThan(attribute=("physicalOffset",), value=value):
                narrowed = _between(narrowed, value + 1, None)
            case spark.LessThan(attribute=("physicalOffset",), value=value):
                narrowed = _between(narrowed, 0, value)
            case spark.LessThanOrEqual(attribute=("physicalOffset",), value=value):
                narrowed = _between(narrowed, 0, value + 1)
            case spark.EqualTo(attribute=(column,), value=value):
                narrowed = replace(narrowed, read=_one_of(narrowed.read, column, (value,)))
            case spark.In(attribute=(column,), value=values):
                known = tuple(value for value in values if value is not None)  # nothing equals null
                narrowed = replace(narrowed, read=_one_of(narrowed.read, column, known))
            case _:
                pass
    return narrowed


def _between(narrowed: Narrowed, begin: int, end: int | None) -> Narrowed:
    clipped = narrowed.end if end is None else narrowed.clip(0, end)[1]
    return Narrowed(narrowed.read, max(begin, narrowed.begin), clipped)


def _one_of(options: ReadOptions, column: str, values: tuple[Any, ...]) -> ReadOptions:
    if column == "topic":
        wanted = tuple(topic for topic in values if is_wanted_topic(topic, options))
        return replace(options, topics=wanted, topic_pattern=None)
    if column == "queueId":
        return replace(options, queues=_both(options.queues, values))
    if column == "tags":
        return replace(options, tags=_both(options.tags, values))
    return options


def _both(known: tuple[Any, ...] | None, values: tuple[Any, ...]) -> tuple[Any, ...]:
    return values if known is None else tuple(value for value in known if value in values)
