"""The progress of a load, as a bar on a terminal, a line in a notebook, or calls of a function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .notebook_progress import NotebookProgress, find_displays


@contextmanager
def watch(
    name: str, progress: bool | Callable[[int, int, list[str]], None], *, forced: bool
) -> Iterator[Callable[[int, int, list[str]], None]]:
    """Yield the function that shows progress: primitives in all, ready, and the names of those being created.

    It appears with the first creation only, because hits of the cache are too fast to see: below the cell of a notebook, else
    on standard error if that is a terminal, or anywhere if ``forced``.
    """
    if callable(progress):
        yield progress
        return
    displays = find_displays() if progress else None
    if not progress or not (displays or forced or sys.stderr.isatty()):
        yield lambda total, ready, names: None
        return
    bar = NotebookProgress(name, displays) if displays else _Bar(name)
    loaded = False
    try:
        yield bar.show
        loaded = True
    finally:
        bar.close(loaded=loaded)


class _Bar:
    """A progress bar of `rich`, which is imported when there is something to show."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._close: Callable[[], None] | None = None
        self._update: Callable[[int, int, str], None] | None = None

    def show(self, total: int, ready: int, names: list[str]) -> None:
        """Draw."""
        if self._update is None:
            self._open()
        if self._update is not None:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            self._update(total, ready, names[0] + more if names else "")

    def close(self, *, loaded: bool) -> None:
        """End the bar: it shows how far the load has come."""
        if self._close is not None:
            self._close()

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("creating kernels of {task.description}"), BarColumn(), MofNCompleteColumn())
        bar = Progress(*columns, TimeElapsedColumn(), TextColumn("{task.fields[now]}"), console=Console(stderr=True))
        bar.start()
        task = bar.add_task(self._name, total=None, now="")
        self._update = lambda total, ready, now: bar.update(task, total=total, completed=ready, now=now)
        self._close = bar.stop
