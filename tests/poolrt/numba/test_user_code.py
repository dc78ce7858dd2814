"""Functions as users write them: the same results and errors as with Numba, and nothing is compiled twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from .user_cases import CASES, texts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

DOORS: Final = {
    "numba": "from numba import cfunc, guvectorize, njit, vectorize\n",
    "poolrt": (
        "import functools, numba, poolrt\nfrom poolrt import guvectorize, njit, vectorize\npoolrt.numba.install()\n"
        "cfunc = functools.partial(numba.cfunc, cache=True)\n"
    ),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what a process with Numba found, and two with poolrt, one after the other."""
    results = {}
    home = tmp_path_factory.mktemp("store") / "home"
    folder = tmp_path_factory.mktemp("cases")
    for name, text in texts().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for seed, (process, door) in enumerate({"plain": "numba", "first": "poolrt", "second": "poolrt"}.items()):
        (folder / "door.py").write_text(DOORS[door])
        own = {"POOLRT_HOME": str(home), "POOLRT_REDIS_URL": f"unix://{home}/none.sock", "PYTHONHASHSEED": str(seed)}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.poolrt.numba.user_cases", str(folder)],
            cwd=Path(__file__).resolve().parents[3],
            env={**os.environ, **own, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        results[process] = json.loads(done.stdout.splitlines()[-1])
    return results


@pytest.mark.parametrize("case", CASES)
def test_results_and_errors_are_numbas(found: dict[str, Any], case: str) -> None:
    plain, first, second = (found[process]["results"][case] for process in ("plain", "first", "second"))
    assert first == plain
    assert second == plain


def test_the_second_process_compiles_nothing_for_others(found: dict[str, Any]) -> None:
    first, second = found["first"]["counts"], found["second"]["counts"]
    assert (first["fallbacks"], second["fallbacks"], second["created"]) == (0, 0, 0)
    assert second["hits"] > 30
    # What has a compiled class as its argument
    assert first["unshared"] == second["unshared"] == 1
