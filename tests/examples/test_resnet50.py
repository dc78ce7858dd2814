"""The ResNet-50 example: its verdict, and how it refuses. `tests/acceptance` runs the whole of it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "resnet50.py"


@pytest.fixture
def example() -> Any:
    spec = importlib.util.spec_from_file_location("resnet50_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def findings(agrees: bool = True, created: int = 0, numba: bool = False) -> dict[str, Any]:
    primitives = {
        "total": 9,
        "created": created,
        "waited": 0,
        "derived": 0,
        "memory": 0,
        "files": 9 - created,
        "prebuilt": 0,
        "redis": 0,
    }
    workers = [{"pid": 1, "numba_imported": numba}, {"pid": 2, "numba_imported": False}]
    return {"agrees": agrees, "load_s": 1.0, "primitives": primitives, "workers": workers}


@pytest.mark.parametrize(
    ("first", "second", "status", "said"),
    [
        (findings(created=9), findings(), 0, "both results agree; the warm load took 1/1 of the first one"),
        (findings(created=2), findings(), 0, "both results agree; the warm load took 1/1 of the first one"),
        (findings(), findings(), 0, "nothing had to be created: this call was warm from the start"),
        (findings(agrees=False), findings(), 1, "the result of the first run is off"),
        (findings(), findings(agrees=False), 1, "the result of the second run is off"),
        (findings(agrees=False), findings(agrees=False), 1, "the result of the first and the second run is off"),
        (findings(), findings(created=1), 1, "the second run created 1 primitives anew"),
        (findings(), findings(numba=True), 1, "a worker of the second run has loaded numba"),
    ],
)
def test_the_verdict(example: Any, first: Any, second: Any, status: int, said: str) -> None:
    verdict, found = example.judge(first, second)
    assert found == status
    assert said in verdict


@pytest.mark.parametrize(("created", "said"), [(9, "cold"), (4, "partly warm"), (0, "warm")])
def test_a_run_is_called_what_it_was(example: Any, created: int, said: str) -> None:
    assert example.temperature(findings(created=created)) == said


def test_a_setting_that_is_wrong_ends_it_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        env={**os.environ, "POOLRT_WORKERS": "x"}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("SettingsError: POOLRT_WORKERS: expected ")
    assert done.stderr.count("\n") == 1
