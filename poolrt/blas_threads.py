"""The BLAS threads of a pool's processes: they sleep soon after a product, so that workers have the processors."""

from __future__ import annotations

import os
import sys

#: OpenBLAS, which NumPy's wheels have, reads it once, as it is loaded: its threads spin for 2 to this power processor cycles.
SPIN_VARIABLE = "OPENBLAS_THREAD_TIMEOUT"
#: About 0.1 ms, twice the time of a wake-up. Its own default is about 0.1 s.
SPIN_POWER = "18"


def shorten_spins() -> None:
    """Let the BLAS threads of this process, and of those that it starts, sleep soon, if NumPy is not loaded yet.

    A value that the environment has already stays.
    """
    if "numpy" not in sys.modules:
        os.environ.setdefault(SPIN_VARIABLE, SPIN_POWER)


def short_spins() -> dict[str, str]:
    """Return the environment that does the same for another process."""
    return {SPIN_VARIABLE: os.environ.get("OPENBLAS_THREAD_TIMEOUT", SPIN_POWER)}
