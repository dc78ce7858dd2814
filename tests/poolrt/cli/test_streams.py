"""Standard streams that are closed, full or not read: one line, the right status, and no text in the wrong place."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

#: A line that `poolrt` prints if it cannot print its result.
_FULL = "poolrt: standard output cannot be written: No space left on device\n"


def _shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command line of a shell, in which ``poolrt`` stands for the program."""
    program = f"{shlex.quote(sys.executable)} -m poolrt "
    env = {name: value for name, value in os.environ.items() if not name.startswith("POOLRT_")}
    return subprocess.run(
        ["bash", "-c", command.replace("poolrt ", program, 1)],
        env=env | {"POOLRT_HOME": str(folder / "home"), "POOLRT_REDIS_SERVER": "/nonexistent"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "command",
    [
        "status",
        "--version",
        *(
            pytest.param(command, marks=pytest.mark.slow)
            for command in ("run m.onnx", "serve", "stop", "cache stats", "doctor", "run --help")
        ),
    ],
)
def test_closed_standard_output_is_refused_before_the_command_begins(tmp_path: Path, command: str) -> None:
    done = _shell(f"poolrt {command} >&-", tmp_path)
    assert done.returncode == 1
    assert done.stderr == "poolrt: standard output is closed: redirect it to a file, or to /dev/null\n"


@pytest.mark.parametrize(
    "command",
    [
        "cache stats --json",
        "--version",
        *(pytest.param(command, marks=pytest.mark.slow) for command in ("doctor", "run --help", "serve")),
    ],
)
def test_full_standard_output_ends_with_status_1_and_one_line(tmp_path: Path, command: str) -> None:
    done = _shell(f"poolrt {command} >/dev/full", tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith(_FULL)
    assert done.stderr.count(_FULL) == 1
    assert "Traceback" not in done.stderr


def test_text_for_closed_standard_error_is_not_printed_elsewhere(tmp_path: Path) -> None:
    done = _shell("poolrt run none.onnx --json <&- 2>&-", tmp_path)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["message"] == "none.onnx: no such file"


def test_full_standard_error_changes_no_status(tmp_path: Path) -> None:
    done = _shell("poolrt run none.onnx 2>/dev/full", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
