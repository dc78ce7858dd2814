"""The ResNet-50 example: its verdict, and the whole of it."""

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


def findings(agrees: bool = True, created: int = 0) -> dict[str, Any]:
    return {"agrees": agrees, "load_s": 1.0, "primitives": {"created": created}}


@pytest.mark.parametrize(
    ("cold", "warm", "status", "said"),
    [
        (findings(created=9), findings(), 0, "both results agree"),
        (findings(agrees=False), findings(), 1, "the result of the cold run is off"),
        (findings(), findings(agrees=False), 1, "the result of the warm run is off"),
        (findings(agrees=False), findings(agrees=False), 1, "the result of the cold and the warm run is off"),
        (findings(), findings(created=1), 1, "the warm run created 1 primitives anew"),
    ],
)
def test_the_verdict(
    example: Any, cold: Any, warm: Any, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert example.judge(cold, warm) == status
    captured = capsys.readouterr()
    assert said in captured.out + captured.err


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_example_runs_cold_then_warm_and_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--images", "4"],
        env=environment, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cold run in a new process" in done.stdout
    assert "both results agree" in done.stdout
    assert list(tmp_path.iterdir()) == []
