"""The progress of a load or an import, as a bar on a terminal, a line in a notebook, or calls of a function."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from poolrt.notebooks.notebook_progress import NotebookProgress, find_displays

#: Seconds before an action of many parts is shown, and between two drawings of it.
_DELAY_S: Final = 0.5
_PERIOD_S: Final = 0.1


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


@contextmanager
def watch_long(action: str, parts: str, name: str, progress: bool) -> Iterator[Callable[[int, int], None]]:
    """Yield the function that shows how many parts of an action, of how many in all, are done.

    It is called for each part, and costs a look at the clock. The bar, or the line in a notebook, appears after `_DELAY_S`
    and is drawn every `_PERIOD_S` at most; in a pipe there is none.
    """
    displays = find_displays() if progress else None
    if not progress or not (displays or sys.stderr.isatty()):
        yield lambda total, done: None
        return
    bar = NotebookProgress(name, displays, parts) if displays else _Bar(name, f"{action} {parts}")
    due = time.monotonic() + _DELAY_S
    shown = 0
    finished = False

    def show(total: int, done: int) -> None:
        nonlocal due, shown
        now = time.monotonic()
        if now >= due:
            due, shown = now + _PERIOD_S, total
            bar.show(total, done, [])

    try:
        yield show
        finished = True
    finally:
        if shown:
            if finished:
                bar.show(shown, shown, [])
            bar.close(loaded=finished)


class _Bar:
    """A progress bar of `rich`, which is imported when there is something to show."""

    def __init__(self, name: str, action: str = "creating kernels") -> None:
        self._name = name
        self._action = action
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

        columns = (TextColumn(f"{self._action} of {{task.description}}"), BarColumn(), MofNCompleteColumn())
        bar = Progress(*columns, TimeElapsedColumn(), TextColumn("{task.fields[now]}"), console=Console(stderr=True))
        bar.start()
        task = bar.add_task(self._name, total=None, now="")
        self._update = lambda total, ready, now: bar.update(task, total=total, completed=ready, now=now)
        self._close = bar.stop
