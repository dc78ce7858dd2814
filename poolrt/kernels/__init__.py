"""Users' kernels for the CPU: Python functions as native objects in the store, mapped without a compiler."""

from __future__ import annotations

from .counts import stats

__all__ = ["stats"]
