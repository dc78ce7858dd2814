"""The line of a load in a notebook; `poolrt/pool/test_notebooks.py` shows it in a kernel."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from poolrt import progress
from poolrt.notebooks.notebook_progress import NotebookProgress, find_displays
from poolrt.progress import watch_long


class Frontend:
    """Records what IPython's functions would publish."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.html: list[str] = []
        self.ids: set[str] = set()
        self.displayed = 0

    def display(self, data: dict[str, str], *, raw: bool, display_id: str) -> None:
        assert raw
        self.displayed += 1
        self.update(data, raw=raw, display_id=display_id)

    def update(self, data: dict[str, str], *, raw: bool, display_id: str) -> None:
        assert set(data) == {"text/plain", "text/html"}
        self.lines.append(data["text/plain"])
        self.html.append(data["text/html"])
        self.ids.add(display_id)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that progress sees, in seconds."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_long_action_is_shown_after_half_a_second_ten_times_a_second_and_never_in_a_pipe(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    frontend = Frontend()
    monkeypatch.setattr(progress, "find_displays", lambda: (frontend.display, frontend.update))
    # Given an action of parts that take a millisecond each
    with watch_long("reading", "nodes", "net", True) as show:
        for done in range(1500):
            show(1500, done)
            clock[0] += 0.001
    # Then the first line comes after half a second, and about ten a second do
    assert frontend.lines[0].startswith("nodes of net: 500 of 1500")
    assert frontend.lines[-1].startswith("nodes of net: 1500 of 1500")
    assert 8 <= len(frontend.lines) <= 14
    # And a short action, one that is not to be shown, and one in a pipe show nothing
    frontend.lines.clear()
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    for wanted, displays, seconds in ((True, True, 0.4), (False, True, 5.0), (True, False, 5.0)):
        found = (frontend.display, frontend.update) if displays else None
        monkeypatch.setattr(progress, "find_displays", lambda found=found: found)
        with watch_long("reading", "nodes", "net", wanted) as show:
            clock[0] += seconds
            show(2, 1)
    assert frontend.lines == []
    assert pipe.getvalue() == ""


def test_the_line_is_displayed_once_and_updated_ten_times_a_second_at_most(clock: list[float]) -> None:
    frontend = Frontend()
    line = NotebookProgress("a<b", (frontend.display, frontend.update))
    for ready in range(1000):
        line.show(1000, ready, ["matmul", "<script>"])
        clock[0] += 0.01
    line.close(loaded=True)
    assert frontend.displayed == 1
    assert len(frontend.ids) == 1
    assert 90 <= len(frontend.lines) <= 105
    assert frontend.lines[0] == "kernels of a<b: 0 of 1000, 0.0 s, now matmul and 1 more"
    assert frontend.lines[-1] == "kernels of a<b: 1000 of 1000, 10.0 s"
    assert frontend.html[-1] == (
        '<div><progress value="1000" max="1000"></progress> kernels of a&lt;b: 1000 of 1000, 10.0 s</div>'
    )


def test_a_load_that_creates_nothing_shows_nothing_and_a_failed_one_where_it_stopped(clock: list[float]) -> None:
    frontend = Frontend()
    NotebookProgress("warm", (frontend.display, frontend.update)).close(loaded=True)
    assert frontend.lines == []
    line = NotebookProgress("net", (frontend.display, frontend.update))
    line.show(5, 2, ["softmax"])
    clock[0] += 3.14
    line.close(loaded=False)
    assert frontend.lines == ["kernels of net: 2 of 5, 0.0 s, now softmax", "kernels of net: 2 of 5, 3.1 s, stopped"]


def test_an_error_of_the_frontend_ends_the_line_and_not_the_load(clock: list[float]) -> None:
    def fail(*_: Any, **__: Any) -> None:
        calls.append(clock[0])
        raise BrokenPipeError

    calls: list[float] = []
    line = NotebookProgress("net", (fail, fail))
    for _ in range(5):
        line.show(5, 2, [])
        clock[0] += 1
    line.close(loaded=True)
    assert len(calls) == 1
    assert isinstance(line.failed, BrokenPipeError)


@pytest.mark.parametrize(
    "ipython",
    [
        SimpleNamespace(),  # while it is imported
        SimpleNamespace(get_ipython=lambda: None),  # a program that has imported it
        SimpleNamespace(get_ipython=SimpleNamespace),  # its shell in a terminal
    ],
)
def test_only_the_kernel_of_a_notebook_shows_lines(monkeypatch: pytest.MonkeyPatch, ipython: SimpleNamespace) -> None:
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert find_displays() is None


def test_ipython_is_not_imported() -> None:
    code = """
import sys
from poolrt.progress import find_displays, watch
with watch("net", True, forced=False) as show:
    show(2, 1, ["matmul"])
assert find_displays() is None
assert not {"IPython", "ipywidgets", "rich"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, timeout=60, check=True)
