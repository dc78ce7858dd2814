"""ResNet-50, one picture a run, on workers of one thread each, beside ONNX Runtime with one thread.

``one``: one worker, one run after the other, beside ONNX Runtime in this process. ``two``: pictures a second of two workers
beside two processes of ONNX Runtime that begin together, with their own copies of the weights.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import onnxruntime
from measure import alternate, arguments, record, seconds, settle, sized
from numpy.typing import NDArray

import poolrt
from poolrt import models

#: Pictures of one measurement of two workers, for each, and the runs in flight on the pool.
_PICTURES: Final = sized(40, 2)
_IN_FLIGHT: Final = 4
#: The longest wait for a process of a rival, in seconds.
_LATEST_S: Final = 120.0


def rival(path: str) -> Callable[[NDArray[Any]], Any]:
    """Return what runs a model with ONNX Runtime on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (port,) = session.get_inputs()
    return lambda picture: session.run(None, {port.name: picture})[0]


def one_worker(path: str, name: str, picture: NDArray[np.float32], rounds: int = 15, repeat: int = 5) -> None:
    """Print both medians and poolrt's share of ONNX Runtime's speed."""
    theirs = rival(path)
    with poolrt.Pool(workers=1, threads=1) as pool:
        model = pool.load(path)
        (got,) = model.run(**{name: picture}).values()
        np.testing.assert_allclose(got, theirs(picture), rtol=1e-3, atol=1e-7)
        found = alternate(
            {
                "onnxruntime": lambda: seconds(lambda: theirs(picture), repeat),
                "poolrt": lambda: seconds(lambda: model.run(**{name: picture}), repeat),
            },
            rounds,
        )
    record(
        "ResNet-50, batch 1, one thread",
        [
            f"ONNX Runtime {onnxruntime.__version__}: {found['onnxruntime'] * 1e3:.1f} ms a picture",
            f"poolrt: {found['poolrt'] * 1e3:.1f} ms a picture",
            f"speed to that of ONNX Runtime, ratio {found['onnxruntime'] / found['poolrt']:.2f} (goal: at least 0.70)",
        ],
    )


def serve(path: str, picture: NDArray[np.float32], line: Connection) -> None:
    """Be a process of the rival: send one result, then, for each number that comes, run that many and send when they end."""
    run = rival(path)
    line.send(run(picture))
    while number := line.recv():
        for _ in range(number):
            run(picture)
        line.send(None)


@contextmanager
def rivals(path: str, picture: NDArray[np.float32], count: int) -> Iterator[list[Connection]]:
    """Give the lines to some processes of the rival that have loaded the model and run it once."""
    context = multiprocessing.get_context("spawn")
    lines, processes = [], []
    try:
        for _ in range(count):
            line, other = context.Pipe()
            process = context.Process(target=serve, args=(path, picture, other), daemon=True)
            process.start()
            other.close()
            lines.append(line)
            processes.append(process)
        yield lines
    finally:
        for process in processes:
            process.kill()
            process.join()


def answer(line: Connection) -> Any:
    """Return what a process of the rival sends."""
    if not line.poll(_LATEST_S):
        raise TimeoutError(f"a process of ONNX Runtime has not answered for {_LATEST_S:.0f} s")
    return line.recv()


def two_workers(path: str, name: str, picture: NDArray[np.float32], rounds: int = 7) -> None:
    """Print the pictures a second of two workers and of two processes of ONNX Runtime, and their ratio."""
    with rivals(path, picture, 2) as lines, poolrt.Pool(workers=2, threads=1) as pool:
        model = pool.load(path)
        (got,) = model.run(**{name: picture}).values()
        for line in lines:
            np.testing.assert_allclose(got, answer(line), rtol=1e-3, atol=1e-7)

        def theirs() -> float:
            settle()
            begin = time.perf_counter()
            for line in lines:
                line.send(_PICTURES)
            for line in lines:
                answer(line)
            return (time.perf_counter() - begin) / (2 * _PICTURES)

        def ours() -> float:
            settle()
            waiting: deque[Any] = deque()
            begin = time.perf_counter()
            for _ in range(2 * _PICTURES):
                waiting.append(model.submit(**{name: picture}))
                if len(waiting) == _IN_FLIGHT:
                    waiting.popleft().result()
            while waiting:
                waiting.popleft().result()
            return (time.perf_counter() - begin) / (2 * _PICTURES)

        found = alternate({"onnxruntime": theirs, "poolrt": ours}, rounds)
    record(
        "ResNet-50, batch 1, two workers of one thread",
        [
            f"ONNX Runtime {onnxruntime.__version__}, two processes: {1 / found['onnxruntime']:.1f} pictures/s",
            f"poolrt: {1 / found['poolrt']:.1f} pictures/s",
            f"speed to that of ONNX Runtime, ratio {found['onnxruntime'] / found['poolrt']:.2f} (goal: at least 1.0)",
        ],
    )


PARTS: Final = {"one": one_worker, "two": two_workers}


def main() -> None:
    """Print what was chosen."""
    chosen = arguments(__doc__, tuple(PARTS))
    with tempfile.TemporaryDirectory() as folder:
        path = str(models.write("resnet50", Path(folder) / "resnet50.onnx"))
        ((name, dims),) = poolrt.load_onnx(path).inputs.items()
        picture = np.random.default_rng(0).standard_normal(dims, np.float32)
        for part in chosen:
            PARTS[part](path, name, picture)


if __name__ == "__main__":
    main()
