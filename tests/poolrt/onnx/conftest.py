"""Fixtures: the primitive cache of the tests that execute graphs in this process."""

from tests.poolrt.inprocess.conftest import cache, store

__all__ = ["cache", "store"]
