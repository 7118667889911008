"""Delay levels: the fixed waiting times of RocketMQ 4.x, numbered from 1.

Source: spec: commitlog §2.7, §2.10; rocketmq-all-4.9.8 ScheduleMessageService.java:118-127, 275-305.
"""

from collections.abc import Sequence
from typing import Final

from rmqha.errors import ConfigError

_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

DEFAULT_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
UNKNOWN_LEVEL_DELAY_MS: Final = 1_000
_INT_MAX: Final = 0x7FFFFFFF
_INT64_HALF: Final = 1 << 63


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Milliseconds of level 1, 2, ... from messageDelayLevel's form.

    Raises:
        ConfigError: an entry is not a number followed by one of s, m, h, d.
    """
    levels = []
    for entry in text.split():
        if entry[-1] not in _UNIT_MS or not (entry.isascii() and entry[:-1].isdecimal()):
            raise ConfigError(f"messageDelayLevel: {entry!r} is not a number followed by s, m, h or d")
        levels.append(int(entry[:-1]) * _UNIT_MS[entry[-1]])
    return tuple(levels)


DELAY_LEVELS_MS: Final = parse_delay_levels(DEFAULT_DELAY_LEVELS)


def delivery_time_ms(delay: str, store_timestamp_ms: int, *, levels_ms: Sequence[int]) -> int | None:
    """When a message with this DELAY property is due; None if the property asks for no delay.

    An int64, as in Java, whatever the store time: no checksum covers that.
    """
    try:
        level = int(delay)
    except ValueError:
        return None
    if not 0 < level <= _INT_MAX:
        return None
    delay_ms = levels_ms[min(level, len(levels_ms)) - 1] if levels_ms else UNKNOWN_LEVEL_DELAY_MS
    return (store_timestamp_ms + delay_ms + _INT64_HALF) % (2 * _INT64_HALF) - _INT64_HALF
