"""Fixtures of the graph's tests."""

from __future__ import annotations

import pytest

from .native_graphs import NativeGraphs


@pytest.fixture(scope="session")
def native_graphs() -> NativeGraphs:
    """Return what runs graphs in this process."""
    return NativeGraphs()
