"""A progress bar on stderr while that is a terminal, otherwise nothing."""

import itertools
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

import click

_REDRAW_AFTER_S: Final = 0.1
_COUNT: Final = "%(label)s  %(info)s"
_BAR: Final = "%(label)s  [%(bar)s]  %(info)s"


class Advance(Protocol):
    """What a command calls as it goes on."""

    def __call__(self, count: int, unit: str = "") -> None:
        """Count on; ``unit``, once given, takes the place of the one before."""


class _Advance:
    """Counts every step and draws ten times a second; a new unit is drawn at once."""

    def __init__(self, bar: Any, unit: str) -> None:
        self._bar = bar
        self._unit = unit
        self._not_drawn = 0
        self._drawn_at = time.monotonic()

    def __call__(self, count: int, unit: str = "") -> None:
        self._not_drawn += count
        if unit not in {"", self._unit}:
            self._unit = unit
            self.draw()
            self._bar.render_progress()  # update() does not, with a step of 0
        elif time.monotonic() >= self._drawn_at + _REDRAW_AFTER_S:
            self.draw()

    def draw(self) -> None:
        self._bar.update(self._not_drawn, self._unit)
        self._not_drawn = 0
        self._drawn_at = time.monotonic()


@contextmanager
def progress(label: str, *, total: int | None = None, unit: str = "messages") -> Iterator[Advance]:
    """Show how far a command is; yields ``advance(count)``. ``total`` None shows a count without an end."""
    if not sys.stderr.isatty():
        yield lambda count, unit="": None  # noqa: ARG005 - its names are the protocol's
        return
    endless = None if total is not None else itertools.count()
    template = _COUNT if total is None else _BAR
    with click.progressbar(
        endless, length=total, label=label, file=sys.stderr, show_pos=True, item_show_func=lambda now: now or unit,
        bar_template=template,
    ) as bar:  # fmt: skip
        advance = _Advance(bar, unit)
        yield advance
        advance.draw()
