"""What `make run` shows a stranger: cold, then warm in a new process; warm from the start the next time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.startup.shared_compiler import FOLDER

from .surroundings import PROGRAM_S, Surroundings, wait_until

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "resnet50.py"


def run_example(place: Surroundings, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the example as `make run` does, in a HOME and with no setting of poolrt."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--images", "4", *words],
        env=place.environment(POOLRT_HOME="", **{FOLDER: ""}), cwd=place.folder, capture_output=True, text=True,
        timeout=PROGRAM_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def assert_right(run: dict[str, Any]) -> None:
    """Check what holds of a run, cold or warm."""
    assert run["agrees"] is True
    assert 0 < run["error"] < 1e-6
    assert len(run["top"]) == 5
    assert run["images_per_s"] > 0
    assert run["first_s"] > run["load_s"] > 0
    assert not any(worker["numba_imported"] for worker in run["workers"])


@pytest.mark.slow
def test_the_first_call_is_cold_then_warm_and_the_second_is_warm_from_the_start(tmp_path: Path) -> None:
    # Given an empty HOME
    place = Surroundings(tmp_path)
    cache = place.folder / "home" / ".cache" / "poolrt"
    # When the example is run
    found = json.loads(run_example(place, "--json").stdout)
    # Then its first half has created everything and its second nothing
    for run in (found["first"], found["second"]):
        assert_right(run)
    total = found["first"]["primitives"]["total"]
    assert found["first"]["primitives"]["created"] == total > 0
    assert found["second"]["primitives"] == {
        "total": total,
        "created": 0,
        "waited": 0,
        "derived": 0,
        "memory": 0,
        "files": total,
        "prebuilt": 0,
        "redis": 0,
    }
    assert found["verdict"].startswith("both results agree; the warm load took 1/")
    (model,) = (cache / "models").iterdir()
    written = model.stat().st_mtime_ns
    # And both found its rearranged weights under one name, although it was written just before
    assert 0 < sum(path.stat().st_size for path in cache.glob("*/constants/*/*")) < 1.5 * model.stat().st_size
    # When it is run again, then it creates nothing at all, says so, and shows all that is promised
    shown = run_example(place).stdout
    assert "first run, warm, in a new process" in shown
    assert f"primitives             {total}, created: 0, reused: {total} ({total} from files)" in shown
    assert "nothing had to be created: this call was warm from the start" in shown
    for what in (
        "time to load",
        "time to first result",
        "rate",
        "workers with numba     0 of",
        "top five",
        "largest error",
    ):
        assert shown.count(f"\n  {what}") == 2
    assert [path.stat().st_mtime_ns for path in (cache / "models").iterdir()] == [written]
    # And nothing is left but the cache, whose server goes on request
    place.assert_nothing_is_left()
    down = place.call("cache", "down", POOLRT_HOME="")
    assert down.returncode == 0, down.stderr
    # The server's watch ends when it sees that the server has.
    wait_until(lambda: not place.processes(), 5.0, lambda: f"still running: {place.processes()}")
