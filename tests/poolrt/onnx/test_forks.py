"""A session that was made before a fork runs after it, as servers that load a model and then fork need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from poolrt.cachestore import CacheStore

from .models import sums

PROGRAM = """
import os, sys
import numpy as np
import poolrt.onnx as ort

options = ort.SessionOptions()
options.intra_op_num_threads = 2
session = ort.InferenceSession(sys.argv[1], options)

def run(batch):
    x = np.full((batch, 3), batch, np.float32)
    (found,) = session.run(["s"], {"x": x, "y": x})
    assert (found == 2 * batch).all()

run(200_000)
for _ in range(2):
    child = os.fork()
    if not child:
        run(200_000)
        run(100_000)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
run(200_000)
print("done")
"""


@pytest.mark.slow
def test_a_session_with_threads_runs_in_forked_processes(tmp_path: Path) -> None:
    onnx.save(sums(), tmp_path / "sums.onnx")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POOLRT_")}
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, tmp_path / "sums.onnx"],
            env={**environment, "POOLRT_HOME": str(tmp_path / "home")},
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
    finally:
        CacheStore.connect(home=str(tmp_path / "home")).down()
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
