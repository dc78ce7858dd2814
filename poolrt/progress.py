"""The progress of a load, as a bar on a terminal or as calls of a function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def watch(
    name: str, progress: bool | Callable[[int, int, list[str]], None], *, forced: bool
) -> Iterator[Callable[[int, int, list[str]], None]]:
    """Yield the function that shows progress: primitives in all, ready, and the names of those being created.

    A bar appears with the first creation only, because hits of the cache are too fast to see. It is drawn on standard
    error if that is a terminal, or anywhere if ``forced``.
    """
    if callable(progress):
        yield progress
    elif not progress or not (forced or sys.stderr.isatty()):
        yield lambda total, ready, names: None
    else:
        bar = _Bar(name)
        try:
            yield bar.show
        finally:
            bar.close()


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

    def close(self) -> None:
        """Remove the bar."""
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
