"""Load ResNet-50 in a new process: cold (nothing cached) and warm (everything cached), in one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from measure import alternate, arguments, record

from poolrt import models


def main(rounds: int = 5) -> None:
    """Print the medians of cold and warm load and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        model = models.write("resnet50", Path(folder) / "resnet50.onnx")

        def load(home: str) -> dict[str, float]:
            environment = {**os.environ, "POOLRT_HOME": home}
            command = [
                sys.executable,
                "-m",
                "poolrt",
                "run",
                str(model),
                "--random-inputs",
                "1",
                "--workers",
                "2",
                "--json",
            ]
            done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            found: dict[str, float] = json.loads(done.stdout)
            return found

        def down(home: str) -> None:
            environment = {**os.environ, "POOLRT_HOME": home}
            command = [sys.executable, "-m", "poolrt", "cache", "down"]
            subprocess.run(command, env=environment, check=True, capture_output=True)

        def cold() -> float:
            with tempfile.TemporaryDirectory() as home:
                try:
                    return load(home)["load_s"]
                finally:
                    down(home)

        warm_home = str(Path(folder) / "home")
        try:
            load(warm_home)
            found = alternate({"cold": cold, "warm": lambda: load(warm_home)["load_s"]}, rounds)
        finally:
            down(warm_home)
    record(
        "Load of ResNet-50 in a new process, 2 workers",
        [
            f"cold: {found['cold']:.3f} s",
            f"warm: {found['warm']:.3f} s",
            f"cold to warm, ratio {found['cold'] / found['warm']:.1f} (goal: at least 20)",
        ],
    )


if __name__ == "__main__":
    arguments(__doc__)
    main()
