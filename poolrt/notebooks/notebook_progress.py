"""The progress of a load below a cell of a notebook: one line that is updated, without widgets.

The bar of `rich` needs the package ipywidgets there. This line needs only IPython's display messages, which every frontend
of Jupyter has. IPython is not imported: in a notebook, it is there already.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from .html_table import text

#: Seconds between updates: they stay in the notebook's file until the next one.
_PERIOD_S: Final = 0.1

#: ``display(data, raw=True, display_id=...)`` and ``update_display`` of IPython.
_Display = Callable[..., object]


def find_displays() -> tuple[_Display, _Display] | None:
    """Return IPython's ``display`` and ``update_display`` if this process is the kernel of a notebook, else None."""
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    if get_shell is None or getattr(get_shell(), "kernel", None) is None:
        return None
    # poolrt is checked where IPython need not be installed.
    found = import_module("IPython.display")
    return found.display, found.update_display


class NotebookProgress:
    """The line of one load. An error of the frontend ends the line, not the load; ``failed`` is that error."""

    def __init__(self, name: str, displays: tuple[_Display, _Display], parts: str = "kernels") -> None:
        import uuid

        self.failed: Exception | None = None
        self._name = name
        self._parts = parts
        self._display, self._update = displays
        self._id = f"poolrt-{uuid.uuid4().hex}"
        self._begun = self._shown = 0.0
        self._total = self._ready = 0

    def show(self, total: int, ready: int, names: list[str]) -> None:
        """Show how many of ``total`` parts are ready, and the first of those that are being created."""
        now = time.monotonic()
        self._total, self._ready = total, ready
        if self._begun and now - self._shown < _PERIOD_S:
            return
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        begun, self._begun, self._shown = self._begun, self._begun or now, now
        self._publish(self._update if begun else self._display, f", now {names[0]}{more}" if names else "")

    def close(self, *, loaded: bool) -> None:
        """Show the end, if anything was shown."""
        if self._begun:
            self._ready = self._total if loaded else self._ready
            self._publish(self._update, "" if loaded else ", stopped")

    def _publish(self, function: _Display, remark: str) -> None:
        counts = f"{self._ready} of {self._total}, {time.monotonic() - self._begun:.1f} s{remark}"
        line = f"{self._parts} of {self._name[:100]}: {counts}"
        bar = f'<progress value="{self._ready}" max="{self._total}"></progress>'
        data: dict[str, Any] = {"text/plain": line, "text/html": f"<div>{bar} {text(line)}</div>"}
        if self.failed is None:
            try:
                function(data, raw=True, display_id=self._id)
            except Exception as error:  # noqa: BLE001 - any frontend's; the load goes on
                self.failed = error
