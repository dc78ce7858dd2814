"""Run ResNet-50 on a pool of workers twice: cold (nothing is cached), then warm in a new process.

    python examples/resnet50.py [--workers N] [--images K]

The network is the graph that the onnx package ships, with seeded weights; the result is compared with what ONNX Runtime
computed from the same input. Exit status 0 where both runs agree with it and the warm run created nothing, else 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import poolrt
from poolrt import models

NETWORK = "resnet50"
#: What the ONNX project allows its own backends on this network.
RELATIVE, ABSOLUTE = 1e-3, 1e-7


def main() -> int:
    """Build the network, run it in two processes one after the other, and print what each of them found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, metavar="N", help="worker processes (default: one for each core)")
    parser.add_argument(
        "--images", type=int, default=64, metavar="K", help="images to measure the rate with (default: 64)"
    )
    parser.add_argument("--measure", metavar="MODEL", help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, default=0.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        try:
            found = measure(Path(options.measure), options.workers, options.images, options.started)
        except (poolrt.GraphError, poolrt.errors.PoolError) as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return 1
        print(json.dumps(found))
        return 0
    with tempfile.TemporaryDirectory(prefix="poolrt-resnet50-") as folder:
        model = models.write(NETWORK, Path(folder) / f"{NETWORK}.onnx")
        print(f"{model.name}: {model.stat().st_size / 1e6:.0f} MB, seeded weights")
        # A home of its own: the first run finds nothing, and what it leaves is gone with the folder.
        environment = {**os.environ, "POOLRT_HOME": str(Path(folder) / "home")}
        environment.pop("POOLRT_REDIS_URL", None)
        runs: dict[str, dict[str, Any]] = {}
        try:
            for run in ("cold", "warm"):
                runs[run] = in_new_process(model, options, environment)
                tell(run, runs[run])
        except subprocess.CalledProcessError as error:
            print(f"the run failed with status {error.returncode}", file=sys.stderr)
            return 1
        finally:
            down = [sys.executable, "-m", "poolrt", "cache", "down"]
            subprocess.run(down, env=environment, check=False, stdout=subprocess.DEVNULL)
    return judge(runs["cold"], runs["warm"])


def in_new_process(model: Path, options: argparse.Namespace, environment: dict[str, str]) -> dict[str, Any]:
    """Measure in a process that shares nothing with this one but the cache."""
    command = [sys.executable, __file__, "--measure", str(model), "--images", str(options.images)]
    command += ["--started", repr(time.monotonic())]
    if options.workers:
        command += ["--workers", str(options.workers)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(path: Path, workers: int | None, images: int, started: float) -> dict[str, Any]:
    """Load the model, run it once and check the result, then run it on many images."""
    expected = models.expected(NETWORK)
    (picture,) = expected.inputs().values()
    with poolrt.Pool(workers=workers) as pool:
        model = pool.load(poolrt.load_onnx(path))
        image = pool.empty(picture.shape)
        image[...] = picture
        output = model.run(**{expected.input_name: image})[expected.output_name].copy()
        first_s = time.monotonic() - started
        begun = time.perf_counter()
        for _ in model.map({expected.input_name: image} for _ in range(images)):
            pass
        rate = images / (time.perf_counter() - begun)
        workers = len(pool.stats()["workers"])
    best = np.argsort(output, axis=None)[::-1][:5]
    return {
        "workers": workers,
        "load_s": model.report["load_s"],
        "first_s": first_s,
        "images_per_s": rate,
        "primitives": model.report["primitives"],
        "top": [[int(index), float(output.flat[index])] for index in best],
        "error": expected.error(output),
        "agrees": bool(np.allclose(output, expected.output, RELATIVE, ABSOLUTE)),
    }


def tell(run: str, found: dict[str, Any]) -> None:
    """Print the findings of one run."""
    made = found["primitives"]
    reused = ", ".join(f"{made[tier]} from {tier}" for tier in ("memory", "files", "redis") if made[tier]) or "none"
    print(f"\n{run} run in a new process, {found['workers']} workers")
    print(f"  load            {found['load_s']:.3f} s")
    print(f"  first result    {found['first_s']:.3f} s after the process was started")
    print(f"  rate            {found['images_per_s']:.1f} images/s")
    print(f"  primitives      {made['total']}: {made['created']} created, reused: {reused}")
    print(f"  top five        {', '.join(f'class {index} {value:.5f}' for index, value in found['top'])}")
    print(f"  largest error   {found['error']:.2e} against ONNX Runtime")


def judge(cold: dict[str, Any], warm: dict[str, Any]) -> int:
    """Say whether the results are right and whether the cache kept its promise; return the exit status."""
    wrong = [run for run, found in (("cold", cold), ("warm", warm)) if not found["agrees"]]
    if wrong:
        print(f"\nthe result of the {' and the '.join(wrong)} run is off", file=sys.stderr)
        return 1
    if warm["primitives"]["created"]:
        print(f"\nthe warm run created {warm['primitives']['created']} primitives anew", file=sys.stderr)
        return 1
    print(f"\nboth results agree; the warm load took 1/{cold['load_s'] / warm['load_s']:.0f} of the cold one")
    return 0


if __name__ == "__main__":
    sys.exit(main())
