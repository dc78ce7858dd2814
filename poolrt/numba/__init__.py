"""Numba's functions in the shared cache: each overload is compiled once for all processes and hosts."""

from __future__ import annotations

from .counters import NotShared
from .door import guvectorize, install, njit, not_shared, share, stats, uninstall, vectorize

__all__ = ["NotShared", "guvectorize", "install", "njit", "not_shared", "share", "stats", "uninstall", "vectorize"]
