"""Overloads from the store: their diagnostics and annotations, which entries do not hold."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.event import install_recorder

from poolrt.numba import not_shared, stats

from .conftest import Importer

_PLAIN = """
import poolrt
@poolrt.njit
def f(x):
    y = x + 1
    return y
"""
_PARALLEL = """
import numba, poolrt
@poolrt.njit(parallel=True)
def f(x):
    total = 0.0
    for i in numba.prange(x.size):
        total += x[i]
    return total
"""
_CHUNKS = """
import numba, poolrt
@poolrt.njit
def f(size):
    before = numba.get_parallel_chunksize()
    with numba.parallel_chunksize(size):
        within = numba.get_parallel_chunksize()
    return before, within, numba.get_parallel_chunksize()
"""


def _again(imported: Importer, text: str, argument: Any) -> Any:
    """Return a function that was called once, as another process finds it."""
    imported(details_user=text).f(argument)
    hits, function = stats()["hits"], imported(details_user=text).f
    function(argument)
    assert stats()["hits"] == hits + 1, not_shared()
    return function


def test_annotations_of_an_overload_from_the_store_are_compiled_when_they_are_asked_for(
    home: Path, imported: Importer
) -> None:
    function = _again(imported, _PLAIN, 1)
    created = stats()["created"]
    with install_recorder("numba:run_pass") as passes:
        # The text of types is in the entry
        shown = io.StringIO()
        function.inspect_types(shown)
        assert "int64" in shown.getvalue()
        assert passes.buffer == []
        ((place, signature), annotations) = next(iter(function.get_annotation_info().items()))
        assert (place.rpartition(":")[0], signature) == (function.py_func.__code__.co_filename, "(int64,) -> int64")
        assert any("y = x + 1" in line for _, line in annotations["python_lines"])
        # Compiled once, for all that is asked
        compiled = len(passes.buffer)
        assert compiled > 0
        function.get_annotation_info()
        assert len(passes.buffer) == compiled
    assert (function(1), stats()["created"]) == (2, created)


@pytest.mark.slow
def test_diagnostics_of_parallel_loops_are_there_for_a_function_from_the_store(home: Path, imported: Importer) -> None:
    function = _again(imported, _PARALLEL, np.ones(3))
    shown = io.StringIO()
    with redirect_stdout(shown):
        function.parallel_diagnostics(level=1)
    assert "Parallel Accelerator Optimizing" in shown.getvalue()
    (metadata,) = function.get_metadata().values()
    assert metadata["parfor_diagnostics"].count_parfors() == 1
    assert {"parfor_diagnostics", "timers"} <= set(metadata)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Cannot cache compiled function")
def test_functions_with_chunks_of_parallel_loops_are_compiled(home: Path, imported: Importer) -> None:
    assert imported(details_user=_CHUNKS).f(8) == (0, 8, 0)
    assert imported(details_user=_CHUNKS).f(8) == (0, 8, 0)
    assert "chunk" in not_shared()["f"] or "dynamic globals" in not_shared()["f"]
