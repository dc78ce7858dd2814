"""Run ResNet-50 on a pool of workers in two processes, one after the other: the second finds what the first created.

    python examples/resnet50.py [--workers N] [--images K] [--json]

The network is the graph that the onnx package ships, with seeded weights; the result is compared with what ONNX Runtime
computed from the same input. Cache and network are kept in poolrt's own folder (POOLRT_HOME), so another call is warm
from the start. Exit status 0 where both runs agree with ONNX Runtime, the second created nothing, and none of its
workers loaded a compiler; else 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import poolrt
from poolrt import models
from poolrt.settings import Settings, SettingsError

NETWORK = "resnet50"
#: What the ONNX project allows its own backends on this network.
RELATIVE, ABSOLUTE = 1e-3, 1e-7

Findings = dict[str, Any]


def main() -> int:
    """Run the network in two processes, print what each of them found, and judge it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, metavar="N", help="worker processes (default: one for each core)")
    parser.add_argument(
        "--images", type=int, default=64, metavar="K", help="images to measure the rate with (default: 64)"
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON object on standard output, text on standard error"
    )
    parser.add_argument("--measure", metavar="MODEL", help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, default=0.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        if options.measure:
            print(json.dumps(measure(Path(options.measure), options.workers, options.images, options.started)))
            return 0
        return run_twice(options)
    except (poolrt.GraphError, poolrt.errors.PoolError, SettingsError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    except subprocess.CalledProcessError as error:
        print(f"the run failed with status {error.returncode}", file=sys.stderr)
    return 1


def run_twice(options: argparse.Namespace) -> int:
    """Run the network in two new processes and return the exit status."""
    text = sys.stderr if options.json else sys.stdout
    home = Settings.load().home_path
    model = models.provide(NETWORK, home / "models")
    print(f"{NETWORK} with seeded weights: {model} ({model.stat().st_size / 1e6:.0f} MB)", file=text)
    runs = []
    for order in ("first", "second"):
        runs.append(in_new_process(model, options))
        print(*describe(order, runs[-1]), sep="\n", file=text)
    first, second = runs
    verdict, status = judge(first, second)
    print(f"\n{verdict}", file=text if status == 0 else sys.stderr)
    print(
        f"the cache is in {home}; `poolrt cache stats` looks into it, `poolrt cache down` stops its server", file=text
    )
    if options.json:
        print(json.dumps({"model": str(model), "first": first, "second": second, "verdict": verdict}))
    return status


def in_new_process(model: Path, options: argparse.Namespace) -> Findings:
    """Measure in a process that shares nothing with this one but the cache."""
    command = [sys.executable, __file__, "--measure", str(model), "--images", str(options.images)]
    command += ["--started", repr(time.monotonic())]
    if options.workers:
        command += ["--workers", str(options.workers)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: Findings = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(path: Path, workers: int | None, images: int, started: float) -> Findings:
    """Load the model, run it once and check the result, then run it on many images."""
    expected = models.load_expected(NETWORK)
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
        processes = pool.stats()["workers"]
    best = np.argsort(output, axis=None)[::-1][:5]
    return {
        "workers": [{"pid": worker["pid"], "numba_imported": worker["numba_imported"]} for worker in processes],
        "load_s": model.report["load_s"],
        "first_s": first_s,
        "images_per_s": rate,
        "primitives": model.report["primitives"],
        "top": [[int(index), float(output.flat[index])] for index in best],
        "error": expected.error(output),
        "agrees": bool(np.allclose(output, expected.output, RELATIVE, ABSOLUTE)),
    }


def describe(order: str, found: Findings) -> list[str]:
    """Return the findings of one run as lines."""
    made, workers = found["primitives"], found["workers"]
    sources = ", ".join(f"{made[tier]} from {tier}" for tier in ("memory", "files", "prebuilt", "redis") if made[tier])
    for source, words in (("derived", "derived"), ("waited", "waited for")):
        if made[source]:
            sources = ", ".join(filter(None, (f"{made[source]} {words}", sources)))
    reused = f"{made['total'] - made['created']} ({sources})" if sources else "none"
    with_numba = sum(worker["numba_imported"] for worker in workers)
    return [
        f"\n{order} run, {temperature(found)}, in a new process with {len(workers)} workers",
        f"  time to load           {found['load_s']:.3f} s",
        f"  time to first result   {found['first_s']:.3f} s since the process was started",
        f"  rate                   {found['images_per_s']:.1f} images/s",
        f"  primitives             {made['total']}, created: {made['created']}, reused: {reused}",
        f"  workers with numba     {with_numba} of {len(workers)}",
        f"  top five               {', '.join(f'class {index} {value:.5f}' for index, value in found['top'])}",
        f"  largest error          {found['error']:.2e} against ONNX Runtime",
    ]


def temperature(found: Findings) -> str:
    """Return how much of what a run needed was there."""
    made = found["primitives"]
    if made["created"] == 0:
        return "warm"
    return "cold" if made["created"] == made["total"] else "partly warm"


def judge(first: Findings, second: Findings) -> tuple[str, int]:
    """Return whether the results are right and the cache kept its promise, in words, and the exit status."""
    wrong = [order for order, found in (("first", first), ("second", second)) if not found["agrees"]]
    if wrong:
        return f"the result of the {' and the '.join(wrong)} run is off", 1
    if second["primitives"]["created"]:
        return f"the second run created {second['primitives']['created']} primitives anew; is the cache turned off?", 1
    if any(worker["numba_imported"] for worker in second["workers"]):
        return "a worker of the second run has loaded numba", 1
    if not first["primitives"]["created"]:
        return "both results agree; nothing had to be created: this call was warm from the start", 0
    return f"both results agree; the warm load took 1/{first['load_s'] / second['load_s']:.0f} of the first one", 0


if __name__ == "__main__":
    sys.exit(main())
