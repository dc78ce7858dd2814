"""The tables of pools and models in notebooks, also of those that are closed or do not answer."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import poolrt

from .processes import relu_graph


def test_a_pool_and_its_models_are_shown_in_every_state(settings: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        model = pool.load(relu_graph(name="<i>relu"))
        shown = model._repr_html_()
        assert shown.startswith("<div>Model &lt;i&gt;relu, loaded in ")
        assert "<tr><td>x</td><td>input</td><td>4x8</td><td>float32</td></tr>" in shown
        assert "files 1" in shown
        coordinator = pool.stats()["pid"]
        assert pool._repr_html_().startswith("<div>Pool, workers: 1, lost before: 0, clients: 1<table>")
        # A coordinator that is stopped holds up the cell for a while only
        os.kill(coordinator, signal.SIGSTOP)
        try:
            begun = time.monotonic()
            assert "did not answer within the timeout" in pool._repr_html_()
            assert time.monotonic() - begun < 10
        finally:
            os.kill(coordinator, signal.SIGCONT)
        assert "<table>" in pool._repr_html_()
        model.close()
        assert "relu (closed), " in model._repr_html_()
    assert pool._repr_html_() == "<div>Pool: the pool is closed: make a new one</div>"
