"""A process of `weights.py` that loads a model, runs it once, prints times, and memory when asked.

Arguments: ``poolrt``, ``executor``, ``pool`` or ``onnxruntime``, the path of the model, and that of a model of one node. The
latter is loaded first: with it come the modules that the first session of a process imports.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def proportional_bytes(process: str = "self") -> int:
    """Return the proportional memory of a process and of those that it has started."""
    total = 0
    with open(f"/proc/{process}/smaps_rollup", encoding="ascii") as file:
        total += sum(int(line.split()[1]) << 10 for line in file if line.startswith("Pss:"))
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        total += sum(map(proportional_bytes, children.read_text(encoding="ascii").split()))
    return total


def contestant(name: str) -> Callable[[str], Callable[[dict[str, Any]], Any]]:
    """Return what loads a model and returns what runs it, on one thread."""
    if name == "pool":
        import poolrt

        pool = poolrt.Pool(workers=1, threads=1, progress=False)

        def load(path: str) -> Callable[[dict[str, Any]], Any]:
            model = pool.load(path)
            return lambda feed: model.run(**feed)

        return load
    if name == "executor":
        import poolrt

        def execute(path: str) -> Callable[[dict[str, Any]], Any]:
            executor = poolrt.Executor(poolrt.load_onnx(path))
            return lambda feed: executor.run(**feed)

        return execute
    if name == "poolrt":
        from poolrt import onnx as runtime
    else:
        import onnxruntime as runtime  # type: ignore[no-redef]
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1

    def create(path: str) -> Callable[[dict[str, Any]], Any]:
        session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return lambda feed: session.run(None, feed)

    return create


def main() -> None:
    """Load, run, print a line of JSON; then a number of bytes for each line that comes."""
    name, path, small = sys.argv[1:]
    load = contestant(name)
    load(small)({"x": np.zeros(4, np.float32)})
    before = proportional_bytes()
    wall, processor = time.perf_counter(), time.process_time()
    run = load(path)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    run({"ids": np.arange(64, dtype=np.int64)[None] * 7 % 100})
    print(json.dumps({"wall": wall, "processor": processor}), flush=True)
    for _ in sys.stdin:
        print(proportional_bytes() - before, flush=True)


if __name__ == "__main__":
    main()
