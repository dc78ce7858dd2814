"""BLAS threads of a pool's processes sleep soon after a product, unless the environment says otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

import poolrt
from poolrt.blas_threads import SPIN_POWER, SPIN_VARIABLE

from .processes import BOUND_S

_PROGRAM = """
import os, sys
{first}
import poolrt

with poolrt.Pool(workers=1) as pool:
    print(os.environ.get({variable!r}), pool.submit(os.getenv, {variable!r}).result(60))
"""


@pytest.mark.parametrize(
    ("given", "first", "expected"),
    [
        ({}, "", f"{SPIN_POWER} {SPIN_POWER}"),
        ({}, "import numpy", f"None {SPIN_POWER}"),
        ({SPIN_VARIABLE: "26"}, "", "26 26"),
    ],
    ids=["pool first", "NumPy first", "chosen"],
)
@pytest.mark.one_in(3)
def test_a_pool_shortens_the_spins_that_nobody_has_chosen(
    settings: dict[str, Any], given: dict[str, str], first: str, expected: str
) -> None:
    program = _PROGRAM.format(first=first, variable=SPIN_VARIABLE).replace("workers=1", f"workers=1, **{settings!r}")
    kept = {name: value for name, value in os.environ.items() if name != SPIN_VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", program], env=kept | given, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.stdout.strip() == expected, done.stderr


def test_a_thread_of_blas_in_a_worker_rests_after_a_product(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SPIN_VARIABLE, raising=False)
    with poolrt.Pool(workers=1, threads=2, **settings) as pool:
        spun = pool.submit(_spin_after_product).result(BOUND_S)
    # With OpenBLAS's own default it is all of the time.
    assert spun < 0.5, f"the other threads spun for {spun:.0%} of the time after a product"


def _spin_after_product() -> float:
    """Return the processor time of this process's other threads after a product, as a part of the time that passed."""
    import time

    import numpy as np

    matrix = np.ones((300, 300), np.float32)
    np.matmul(matrix, matrix)
    begin, spent = time.monotonic(), time.process_time() - time.thread_time()
    time.sleep(0.08)
    return (time.process_time() - time.thread_time() - spent) / (time.monotonic() - begin)
