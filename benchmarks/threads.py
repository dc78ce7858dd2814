"""Two threads: what an empty parallel region costs on each threadpool, and ResNet-50 on one and on two threads of a worker.

The rivals run in the same process, in turn: `concurrent.futures.ThreadPoolExecutor` and Numba's workqueue for the
region, ONNX Runtime for the network.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("NUMBA_THREADING_LAYER", "workqueue")

import numba
import numpy as np
import onnxruntime
from measure import alternate, arguments, record, seconds, settle
from numpy.typing import NDArray

import poolrt
from poolrt import models
from poolrt.workers.threadpools.interface import Region
from poolrt.workers.threadpools.native import NativePool
from poolrt.workers.threadpools.regions import PackedRegions


@numba.cfunc("int32(voidptr, voidptr, voidptr)")
def nothing(ret: Any, exc: Any, blob: Any) -> int:
    """Be a task that has nothing to do."""
    return 0


@numba.njit(parallel=True)
def tiny_prange(counts: NDArray[np.int64]) -> None:
    """Run two tasks on Numba's threads that do next to nothing: none at all would be no region."""
    for i in numba.prange(2):
        counts[i] += 1


def regions(rounds: int = 21, repeat: int = 2000) -> None:
    """Print the median times of an empty region of two tasks."""
    numba.set_num_threads(2)
    counts = np.zeros(2, np.int64)
    tiny_prange(counts)
    with ThreadPoolExecutor(2) as executor, NativePool(2) as pool:
        packed = PackedRegions([Region(nothing.address, [0, 0])])

        def by_executor() -> None:
            for future in [executor.submit(int) for _ in range(2)]:
                future.result()

        contestants: dict[str, Callable[[], object]] = {
            "native": lambda: pool.run_regions(packed),
            "executor": by_executor,
            "prange": lambda: tiny_prange(counts),
        }
        found = alternate(
            {name: lambda action=action: seconds(action, repeat) for name, action in contestants.items()},  # type: ignore[misc]
            rounds,
        )
    record(
        "An empty parallel region of two tasks",
        [
            *(f"{name}: {time * 1e6:.1f} us" for name, time in found.items()),
            f"native to ThreadPoolExecutor, ratio {found['native'] / found['executor']:.3f} (goal: at most 0.20)",
            f"native to prange (workqueue), ratio {found['native'] / found['prange']:.3f} (goal: at most 1)",
        ],
    )


def resnet(rounds: int = 15, repeat: int = 5) -> None:
    """Print how much faster two threads are than one, for both."""
    with tempfile.TemporaryDirectory() as folder:
        path = models.write("resnet50", Path(folder) / "resnet50.onnx")
        sessions = {n: _session(path, n) for n in (1, 2)}
        (port,) = sessions[1].get_inputs()
        picture = np.random.default_rng(0).standard_normal(port.shape).astype(np.float32)
        expected: Any = sessions[1].run(None, {port.name: picture})[0]
        graph = poolrt.load_onnx(path)
        with poolrt.Pool(workers=1, threads=1) as one, poolrt.Pool(workers=1, threads=2) as two:
            loaded = {1: one.load(graph), 2: two.load(graph)}
            contestants: dict[str, Callable[[], float]] = {}
            for n in (1, 2):
                (got,) = loaded[n].run(**{port.name: picture}).values()
                np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-7)
                contestants[f"onnxruntime {n}"] = lambda n=n: _rested(  # type: ignore[misc]
                    lambda: sessions[n].run(None, {port.name: picture}), repeat
                )
                contestants[f"poolrt {n}"] = lambda n=n: _rested(  # type: ignore[misc]
                    lambda: loaded[n].run(**{port.name: picture}), repeat
                )
            found = alternate(contestants, rounds)
    gains = {name: found[f"{name} 1"] / found[f"{name} 2"] for name in ("onnxruntime", "poolrt")}
    record(
        "ResNet-50, batch 1, one and two threads",
        [
            f"ONNX Runtime {onnxruntime.__version__}: {found['onnxruntime 1'] * 1e3:.1f} ms and "
            f"{found['onnxruntime 2'] * 1e3:.1f} ms a picture, {gains['onnxruntime']:.2f} times faster",
            f"poolrt: {found['poolrt 1'] * 1e3:.1f} ms and {found['poolrt 2'] * 1e3:.1f} ms a picture, "
            f"{gains['poolrt']:.2f} times faster",
            f"poolrt's gain to ONNX Runtime's, ratio {gains['poolrt'] / gains['onnxruntime']:.2f} (goal: at least 0.95)",
        ],
    )


def _rested(action: Callable[[], object], repeat: int) -> float:
    """Return what `seconds` does, once the threads of the previous contestant have stopped looking for work."""
    settle()
    action()
    return seconds(action, repeat)


def _session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


if __name__ == "__main__":
    arguments(__doc__)
    regions()
    resnet()
