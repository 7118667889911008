"""A progress bar on stderr while that is a terminal, otherwise nothing."""

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

_REDRAW_AFTER_S: Final = 0.1
_COUNT: Final = "%(label)s  %(info)s"
_BAR: Final = "%(label)s  [%(bar)s]  %(info)s"


class _Advance:
    """Counts every step and draws ten times a second."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._not_drawn = 0
        self._drawn_at = time.monotonic()

    def __call__(self, count: int) -> None:
        self._not_drawn += count
        if time.monotonic() >= self._drawn_at + _REDRAW_AFTER_S:
            self.draw()

    def draw(self) -> None:
        self._bar.update(self._not_drawn)
        self._not_drawn = 0
        self._drawn_at = time.monotonic()


@contextmanager
def progress(label: str, *, total: int | None = None, unit: str = "messages") -> Iterator[Callable[[int], None]]:
    """Show how far a command is; yields ``advance(count)``. ``total`` None shows a count without an end."""
    if not sys.stderr.isatty():
        yield lambda _count: None
        return
    endless = None if total is not None else itertools.count()
    template = _COUNT if total is None else _BAR
    with click.progressbar(
        endless, length=total, label=label, file=sys.stderr, show_pos=True, item_show_func=lambda _: unit,
        bar_template=template,
    ) as bar:  # fmt: skip
        advance = _Advance(bar)
        yield advance
        advance.draw()
