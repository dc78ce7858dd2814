"""Plans for the processor and a device at once, on host memory that is shared and on memory that is transferred."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from .processes import ANSWER_S, ROOT


@pytest.mark.parametrize("memory", ["shared", "transferred"])
def test_steps_on_both_engines_compute_together_again_and_again(device: str, memory: str) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "tests.workers.opencl.mixing", memory],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=ANSWER_S,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    found = json.loads(child.stdout)
    assert len(found) == 4
    for name, figures in found.items():
        assert figures["error"] < 1e-4, name
        assert figures["crossings"] >= 2, name
        # Where host and device share memory, crossing it costs nothing.
        assert figures["copies"] == (0 if memory == "shared" else figures["crossings"]), name
