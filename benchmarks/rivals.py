"""The rivals of graphs: ONNX Runtime and OpenVINO on an ONNX model, in float32 on the CPU, checked and measured in turns.

A session takes arrays by name and returns the outputs in the model's order, as arrays of its caller.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import onnxruntime
import openvino
from measure import SHORT, alternate, settle
from numpy.typing import NDArray

from poolrt import Executor, Graph, Stream
from poolrt.workers.primitives.provider import PrimitiveProvider

Array = NDArray[Any]
Session = Callable[[Mapping[str, Array]], tuple[Array, ...]]
POOLRT: Final = "poolrt"
#: The largest difference of two results, as a share of the largest number of the expected one.
NEAR: Final = 1e-4
#: Ratios below these are counted.
_LOW: Final = (0.7, 0.9)


def poolrt_session(graph: Graph, stream: Stream, cache: PrimitiveProvider) -> Session:
    """Return a session of poolrt's executor."""
    executor = Executor(graph, stream=stream, cache=cache)
    return lambda feeds: tuple(executor.run(**feeds).values())


def onnx_runtime_session(model: bytes, threads: int) -> Session:
    """Return a session of ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda feeds: tuple(session.run(None, dict(feeds)))


def openvino_session(model: bytes, threads: int, lends: bool = False) -> Session:
    """Return a session of OpenVINO, which reads inputs where they are. Raises RuntimeError for an operator it does not have.

    Outputs that it ``lends`` are its own memory, which its next run overwrites; other ones are copies.

    It would compute in bfloat16 on processors that have it, unless an option forbids it.
    """
    core = openvino.Core()
    how = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(model), "CPU", how)
    request = compiled.create_infer_request()
    return lambda feeds: tuple(request.infer(dict(feeds), share_inputs=True, share_outputs=lends).values())


def rival_sessions(model: bytes, threads: int, with_openvino: bool = True, lends: bool = False) -> dict[str, Session]:
    """Return the sessions of the rivals by name, without OpenVINO if it does not take the model; it may lend its outputs."""
    found = {"ONNX Runtime": onnx_runtime_session(model, threads)}
    if with_openvino:
        try:
            found["OpenVINO"] = openvino_session(model, threads, lends)
        except RuntimeError as error:
            print(f"OpenVINO sits out: {str(error).strip().splitlines()[-1]}", flush=True)
    return found


def differs(got: tuple[Array, ...], expected: tuple[Array, ...], near: float = NEAR) -> str:
    """Return how results differ by more than ``near`` of the largest number of an output, or an empty text."""
    if len(got) != len(expected):
        return f"{len(got)} outputs, expected {len(expected)}"
    for number, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        if ours.shape != theirs.shape:
            return f"output {number} has the shape {ours.shape}, expected {theirs.shape}"
        wide, exact = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
        reach = float(np.abs(exact).max(initial=0.0)) or 1.0
        worst = float(np.abs(wide - exact).max(initial=0.0)) / reach
        if not worst <= near:
            return f"output {number} differs by {worst:.2g} of its largest number"
    return ""


def check(name: str, got: tuple[Array, ...], expected: tuple[Array, ...], near: float = NEAR) -> None:
    """Raise AssertionError, which begins with a name, if results differ."""
    why = differs(got, expected, near)
    assert not why, f"{name}: {why}"


def measure(
    contestants: Mapping[str, Callable[[], object]], threads: int, rounds: int, least: float
) -> dict[str, float]:
    """Return the median seconds of a call of each contestant, measured in turns for at least ``least`` seconds each.

    They are the processor's seconds on one thread, which other programs disturb less, and a clock's on several.
    """
    clock = time.process_time if threads == 1 else time.perf_counter

    def timed(run: Callable[[], object], repeat: int) -> float:
        start = clock()
        for _ in range(repeat):
            run()
        return (clock() - start) / repeat

    def measured(run: Callable[[], object]) -> Callable[[], float]:
        run()
        repeat = 1 if SHORT else max(1, math.ceil(least / max(timed(run, 1), 1e-7)))

        def once() -> float:
            if threads > 1:
                settle()
            if repeat > 1:
                run()
            return timed(run, repeat)

        return once

    return alternate({name: measured(run) for name, run in contestants.items()}, rounds)


def ratio_of(found: Mapping[str, float]) -> float:
    """Return the time of the fastest rival divided by poolrt's."""
    return min(time for name, time in found.items() if name != POOLRT) / found[POOLRT]


def describe_times(found: Mapping[str, float]) -> str:
    """Return the times of all contestants, and the ratio."""
    unit, factor = ("us", 1e6) if found[POOLRT] < 1e-3 else ("ms", 1e3)
    times = ", ".join(f"{name} {factor * time:.{1 + (factor * time < 10)}f} {unit}" for name, time in found.items())
    return f"{times}; ratio {ratio_of(found):.2f}"


def summarize(ratios: Mapping[str, float]) -> str:
    """Return the geometric mean of ratios, the worst of them, and how many are low."""
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    worst = min(ratios, key=ratios.__getitem__)
    low = ", ".join(f"{sum(each < limit for each in ratios.values())} below {limit}" for limit in _LOW)
    return f"geometric mean of {len(ratios)}: ratio {mean:.2f}; worst {ratios[worst]:.2f} ({worst}); {low}"
