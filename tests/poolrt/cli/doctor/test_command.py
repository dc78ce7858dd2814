"""`poolrt doctor` as a program: all checks, the summary and the exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def _doctor(home: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("POOLRT_")}
    env |= {"POOLRT_HOME": str(home), **environ}
    command = [sys.executable, "-m", "poolrt", "doctor", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False, env=env)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """The checks of a healthy machine on which the name of a variable is misspelt."""
    return _doctor(tmp_path_factory.mktemp("doctor") / "home", "--json", POOLRT_WROKERS="2")


def test_a_healthy_machine_has_no_failure_in_text_and_json(healthy: subprocess.CompletedProcess[str]) -> None:
    done = healthy
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["healthy"] is True
    assert answer["counts"]["fail"] == 0
    assert sum(answer["counts"].values()) == len(answer["findings"])
    assert len({finding["name"] for finding in answer["findings"]}) == len(answer["findings"])
    assert "0 failures" in done.stderr
    devices = [finding for finding in answer["findings"] if finding["name"].startswith("opencl")]
    assert devices
    assert [(device["name"], device["state"]) for device in devices] == [
        (f"opencl:{index}", "ok") for index in range(len(devices))
    ]


def test_a_failure_exits_with_status_1_and_has_advice(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    done = _doctor(tmp_path / "home")
    assert done.returncode == 1
    assert "FAIL  cache folder" in done.stdout
    assert "-> point POOLRT_HOME to a folder of your own" in done.stdout
    assert done.stderr == ""


def test_a_misspelt_variable_is_a_finding(healthy: subprocess.CompletedProcess[str]) -> None:
    (finding,) = [each for each in json.loads(healthy.stdout)["findings"] if each["state"] == "warn"]
    assert "unknown variables: POOLRT_WROKERS" in str(finding)
    assert "unknown variables: POOLRT_WROKERS" in healthy.stderr
