"""Functions whose callees or constants change elsewhere: the same programs with Numba's own cache and with poolrt's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from .stale_cases import CASES, COMPILES, RIGHT, STALE, modules

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DOORS: Final = {
    "numba": "import functools\nimport numba\nnjit = functools.partial(numba.njit, cache=True)\n",
    "poolrt": "from poolrt import njit\n",
}
ROOT: Final = Path(__file__).resolve().parents[3]
#: Case -> result and number of compilations.
Results = dict[str, tuple[int, int]]


def _environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    home = {"POOLRT_HOME": f"{folder}/home", "POOLRT_REDIS_URL": f"unix://{folder}/none.sock"}
    return {**kept, **home, "NUMBA_CACHE_DIR": f"{folder}/numba", "PYTHONPATH": str(ROOT), **more}


def _run(
    arguments: list[str], environment: dict[str, str], text: str | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", *arguments]
    return subprocess.run(command, env=environment, input=text, capture_output=True, text=True, timeout=200)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Results]]:
    """Return what three processes got by each door: two before, and one after the other module has changed."""
    found: dict[str, list[Results]] = {}
    for door, text in DOORS.items():
        folder = tmp_path_factory.mktemp(door)
        (folder / "home").mkdir(mode=0o700)
        (folder / "door.py").write_text(text)
        found[door] = []
        for seed, constant in enumerate(("1", "1", "1000")):
            for number, case in enumerate(CASES.values()):
                user, other = modules(number)
                for name, source in ((user, case.user), (other, case.other)):
                    whole = "from door import njit\n" + source.replace("{other}", other).replace("{}", constant)
                    path = folder / f"{name}.py"
                    if not path.exists() or path.read_text() != whole:
                        path.write_text(whole)
            environment = _environment(folder, PYTHONHASHSEED=str(seed), PYTHONDONTWRITEBYTECODE="1")
            done = _run(["-m", "tests.poolrt.numba.stale_cases", str(folder)], environment)
            assert done.returncode == 0, done.stderr[-4000:]
            found[door].append({name: tuple(result) for name, result in json.loads(done.stdout).items()})
    return found


@pytest.mark.parametrize("case", CASES)
def test_poolrt_is_right_where_numbas_cache_is_not(results: dict[str, list[Results]], case: str) -> None:
    first, again, changed = (each[case] for each in results["poolrt"])
    assert (first[0], again[0], changed[0]) == (1, 1, 1000)
    assert first[1] > 0
    assert again[1] == 0 or not CASES[case].shared
    first, again, changed = (each[case] for each in results["numba"])
    assert (first[0], again[0]) == (1, 1)
    if CASES[case].numba == STALE:
        assert changed[0] == 1
    if CASES[case].numba == COMPILES:
        assert again[1] > 0
    if CASES[case].numba == RIGHT:
        assert (again[1], changed[0]) == (0, 1000)


_DEFINES: Final = {
    "exec": "exec('def f(x):\\n    return x + 7\\n', names := {})\nf = njit(names['f'])\n",
    "standard input": "@njit\ndef f(x):\n    return x + 7\n",
}
_PRINTS: Final = (
    "print(f(1))\nimport sys\nif 'poolrt' in sys.modules:\n    import poolrt.numba\n    print(poolrt.numba.stats())\n"
)


@pytest.mark.parametrize("way", _DEFINES)
def test_functions_without_a_file_are_kept_which_numba_refuses(tmp_path: Path, way: str) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    environment = _environment(tmp_path)

    def run(door: str) -> subprocess.CompletedProcess[str]:
        return _run(["-"], environment, DOORS[door] + _DEFINES[way] + _PRINTS)

    refused = run("numba")
    assert "no locator available" in refused.stderr
    for created in (1, 0):
        done = run("poolrt")
        assert done.stdout.startswith("8\n"), done.stderr
        assert f"'created': {created}" in done.stdout


def test_a_cell_that_changes_another_cells_constant_is_seen_in_notebooks(tmp_path: Path) -> None:
    manager: Any = pytest.importorskip("jupyter_client.manager", reason="ipykernel is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    (tmp_path / "home").mkdir(mode=0o700)
    environment = _environment(tmp_path, IPYTHONDIR=str(tmp_path / "ipython"))
    del environment["NUMBA_CACHE_DIR"]

    def run(door: str, constant: int) -> list[str]:
        """Return what a new kernel shows for the function and for the number of compilations."""
        kernel, client = manager.start_new_kernel(startup_timeout=60, env=environment, cwd=str(ROOT))
        try:
            for cell in (DOORS[door], f"K = {constant}", "@njit\ndef f(x):\n    return x + K\n"):
                assert client.execute(cell, reply=True, timeout=60)["content"]["status"] == "ok"
            shown = {"result": "f(0)", "hits": "sum(f.stats.cache_hits.values())"}
            reply = client.execute("", user_expressions=shown, reply=True, timeout=100)["content"]["user_expressions"]
            return [reply[name]["data"]["text/plain"] for name in shown]
        finally:
            client.stop_channels()
            kernel.shutdown_kernel(now=True)

    # Numba's key has the cell of the function only
    assert [run("numba", 1), run("numba", 1000)] == [["1", "0"], ["1", "1"]]
    assert [run("poolrt", 1), run("poolrt", 1), run("poolrt", 1000)] == [["1", "0"], ["1", "1"], ["1000", "0"]]
