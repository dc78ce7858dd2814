"""The decorators of the functions that are measured: Numba's with its own cache, or poolrt's, by the variable ``DOOR``."""

from __future__ import annotations

import os
from functools import partial

if os.environ["DOOR"] == "numba":
    import numba

    njit = declared = partial(numba.njit, cache=True)
    guvectorize = partial(numba.guvectorize, cache=True)
elif os.environ["DOOR"] == "njit":
    from poolrt import guvectorize, njit

    declared = njit
else:
    from poolrt import kernel as declared

__all__ = ["declared", "guvectorize", "njit"]
