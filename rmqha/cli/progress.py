"""A progress bar on stderr: rich's where it is installed and stderr is a terminal, otherwise nothing."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(label: str, *, total: int | None = None, unit: str = "messages") -> Iterator[Callable[[int], None]]:
    """Show how far a command is; yields ``advance(count)``. ``total`` None shows a count without an end."""
    if not sys.stderr.isatty():
        yield _ignore
        return
    try:
        from rich import progress as rich_progress  # noqa: PLC0415 - optional, and slow to import
        from rich.console import Console  # noqa: PLC0415
    except ImportError:
        yield _ignore
        return
    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.TextColumn("{task.completed:,.0f} " + unit),
        rich_progress.TimeElapsedColumn(),
    )
    with rich_progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)


def _ignore(_count: int) -> None:
    return
