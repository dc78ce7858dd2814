"""`poolrt doctor` as a program: all checks, the summary and the exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def _doctor(home: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("POOLRT_")}
    env |= {"POOLRT_HOME": str(home), **environ}
    command = [sys.executable, "-m", "poolrt", "doctor", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False, env=env)


def test_a_healthy_machine_has_no_failure_in_text_and_json(tmp_path: Path) -> None:
    done = _doctor(tmp_path / "home", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["healthy"] is True
    assert answer["counts"]["fail"] == 0
    assert sum(answer["counts"].values()) == len(answer["findings"])
    assert len({finding["name"] for finding in answer["findings"]}) == len(answer["findings"])
    assert "0 failures" in done.stderr


def test_a_failure_exits_with_status_1_and_has_advice(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    done = _doctor(tmp_path / "home")
    assert done.returncode == 1
    assert "FAIL  cache folder" in done.stdout
    assert "-> point POOLRT_HOME to a folder of your own" in done.stdout
    assert done.stderr == ""


def test_a_misspelt_variable_is_a_finding(tmp_path: Path) -> None:
    done = _doctor(tmp_path / "home", POOLRT_WROKERS="2")
    assert done.returncode == 0
    assert "unknown variables: POOLRT_WROKERS" in done.stdout
