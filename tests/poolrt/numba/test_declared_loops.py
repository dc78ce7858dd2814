"""Functions that call a ufunc without signatures: the loops that `add` made by hand are in their keys, those of calls are not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from poolrt.numba import not_shared, stats

from .conftest import Importer

_USER: Final = """
import poolrt
from loops_other import g
@poolrt.njit
def f(x):
    return g(x)
"""
_OTHER: Final = """
import numba, poolrt
@{maker}.vectorize
def g(x):
    return x * 2
{added}
"""
_GENERALIZED_USER: Final = """
import poolrt
from loops_other import g
@poolrt.njit
def f(x, y):
    g(x, y)
"""
_GENERALIZED: Final = """
import poolrt
@poolrt.guvectorize("(n)->(n)")
def g(x, y):
    for i in range(x.size):
        y[i] = x[i] * 2
{added}
"""


@pytest.mark.parametrize("maker", ["numba", "poolrt"])
@pytest.mark.one_in(2)
def test_the_result_that_a_loop_is_declared_with_is_in_the_key(home: Path, imported: Importer, maker: str) -> None:
    x = np.array([0.1, 3.0])
    # Given a function that calls a ufunc whose loop has the inferred result
    imported(loops_other=_OTHER.format(maker=maker, added=""), loops_user=_USER)
    assert sys.modules["loops_user"].f(x).dtype == np.float64
    created, hits = stats()["created"], stats()["hits"]
    # When a call has compiled that loop before, then the function is a hit
    other = imported(loops_other=_OTHER.format(maker=maker, added=""), loops_user=_USER)
    other.g(x)
    np.testing.assert_array_equal(sys.modules["loops_user"].f(x), [0.2, 6.0])
    assert stats()["created"] == created, not_shared()
    assert stats()["hits"] > hits
    # When the loop is declared with another result, then the function is compiled with it
    imported(loops_other=_OTHER.format(maker=maker, added="g.add('f4(f8)')"), loops_user=_USER)
    found = sys.modules["loops_user"].f(x)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.array([0.2, 6.0], np.float32))
    assert stats()["created"] > created


def test_the_layout_that_a_generalized_loop_is_declared_with_is_in_the_key(home: Path, imported: Importer) -> None:
    x, y = np.arange(4.0), np.zeros(4)
    imported(loops_other=_GENERALIZED.format(added=""), loops_user=_GENERALIZED_USER)
    sys.modules["loops_user"].f(x, y)
    created = stats()["created"]
    # When the loop that a call compiles is added by hand, then the function is a hit
    imported(loops_other=_GENERALIZED.format(added="g.add('void(f8[:], f8[:])')"), loops_user=_GENERALIZED_USER)
    sys.modules["loops_user"].f(x, y)
    assert stats()["created"] == created, not_shared()
    # When one for contiguous arrays is, then the function is compiled with it
    imported(loops_other=_GENERALIZED.format(added="g.add('void(f8[::1], f8[::1])')"), loops_user=_GENERALIZED_USER)
    sys.modules["loops_user"].f(x, y)
    assert stats()["created"] == created + 2
    np.testing.assert_array_equal(y, [0.0, 2.0, 4.0, 6.0])
