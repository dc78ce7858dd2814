"""Compare exported networks in poolrt with ONNX Runtime: ``python benchmarks/exported/compare.py FOLDER [WORD ...]``.

``FOLDER`` has the files that ``export.py`` writes; with words, only files whose names contain one of them are compared.
Each line has the largest error, relative to the largest expected value, of an Executor (and with ``--pool`` of a pool), or of a
session for a network that no single plan computes; the time to load (import and compilation) beside ONNX Runtime's; and the
ratio of the times of a run: above 1, poolrt takes less. These are processor times on one thread; on several (``--threads``),
wall times, once the other's threads rest. The runs of both alternate in one process. Ends with 1 if a network is not supported
or wrong.

Boxes that NonMaxSuppression chooses are in the order of their scores, and scores are sums in float32. Rows of such an output
may change places only if their scores differ by less than the tolerance, 1e-4 of the larger one; the scores are those that
ONNX Runtime computes. Everything else is an error: another row, a row less, two rows in another order whose scores are
further apart. The line says how many rows changed places.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime
from choices import Choice, choices_of

import poolrt
import poolrt.onnx

MOST_ERROR: Final = 1e-4
#: Threads of ONNX Runtime spin for 42 ms after their last work.
REST_S: Final = 0.1
Arrays = dict[str, np.ndarray[Any, Any]]


def session_of(path: Path, threads: int) -> onnxruntime.InferenceSession:
    """Return a session on some threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _takes(session: onnxruntime.InferenceSession, feeds: Arrays) -> bool:
    """Return whether a file computes inputs of these sizes: exporters open an input, and yet write its size into nodes."""
    try:
        session.run(None, feeds)
    except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
        return False
    return True


def feeds_of(path: Path, session: onnxruntime.InferenceSession) -> Arrays:
    """Return inputs of other sizes than the exporter saw if the file takes them; exporters leave out what nothing reads."""
    network, _, sizes = path.stem.split(".")
    for kind in (sizes, "fixed"):
        stored = np.load(path.parent / f"{network}.{kind}.npz")
        feeds = {each.name: stored[f"in:{each.name}"] for each in session.get_inputs()}
        if all(
            size in (given, None) or isinstance(size, str)
            for each in session.get_inputs()
            for size, given in zip(each.shape, feeds[each.name].shape, strict=True)
        ) and (kind == "fixed" or _takes(session, feeds)):
            break
        if kind != "fixed":
            print(f"{path.stem}: it takes only the sizes that the exporter saw", flush=True)
    return feeds


def error_of(found: Arrays, expected: Arrays, choices: dict[str, Choice]) -> tuple[float, int]:
    """Return the largest difference of any output, relative to its largest expected value; and the rows that changed places."""
    worst, moved = 0.0, 0
    for name, wanted in expected.items():
        got = found[name]
        if got.shape != wanted.shape or got.dtype != wanted.dtype:
            print(f"    {name}: {got.dtype}{got.shape} instead of {wanted.dtype}{wanted.shape}")
            return float("inf"), moved
        if name in choices and not np.array_equal(got, wanted):
            rows = choices[name].moved(got, wanted, MOST_ERROR)
            if rows is None:
                print(f"    {name}: other rows, or rows in another order whose scores differ")
                return float("inf"), moved
            moved = max(moved, rows)
        elif wanted.size:
            finite = np.abs(wanted[np.isfinite(wanted)])
            worst = max(worst, largest_difference(got, wanted) / max(float(finite.max(initial=0)), 1e-30))
    return worst, moved


def largest_difference(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> float:
    """Return the largest difference of two tensors with elements: none where both are NaN or infinite, infinity where one is."""
    with np.errstate(invalid="ignore"):
        difference = np.abs(found.astype(np.float64) - wanted)
    difference[(found == wanted) | (np.isnan(found) & np.isnan(wanted))] = 0.0
    return float(np.where(np.isnan(difference), np.inf, difference).max())


def seconds_of(run: Callable[[], object], least: float, clock: Callable[[], float]) -> float:
    """Return the time of a call by a clock, a mean over calls that take ``least`` seconds together."""
    calls, start, now = 0, clock(), 0.0
    while now < least:
        run()
        calls += 1
        now = clock() - start
    return now / calls


def graph_of(path: Path, feeds: Arrays) -> poolrt.Graph | None:
    """Return the graph for these inputs; None if it cannot be imported, and then a session may run it in stages."""
    try:
        return poolrt.load_onnx(path, shapes={name: each.shape for name, each in feeds.items()})
    except poolrt.ModelError:
        return None


def executor_of(graph: poolrt.Graph, threads: int) -> poolrt.Executor:
    """Return an Executor on some threads."""
    attr = poolrt.StreamAttr("cpu")
    if threads > 1:
        attr.set_threadpool(poolrt.NativePool(threads))
    return poolrt.Executor(graph, stream=poolrt.Stream(poolrt.Engine("cpu"), attr))


def runs_of(path: Path, feeds: Arrays, pool: poolrt.Pool | None, threads: int) -> Callable[[], Arrays]:
    """Return the runs of a session on threads, or on a pool. Raises poolrt.ModelError with the reason if it has none."""
    options = poolrt.onnx.SessionOptions()
    options.intra_op_num_threads = threads
    session = poolrt.onnx.InferenceSession(path, options, pool=pool)
    names = [each.name for each in session.get_outputs()]
    return lambda: dict(zip(names, session.run(names, feeds), strict=True))


def compare(path: Path, pool: poolrt.Pool | None, rounds: int, at_least: float, threads: int) -> bool:
    """Print the line of one file; return whether it is supported, right and fast enough."""
    start = time.perf_counter()
    session = session_of(path, threads)
    their_load = time.perf_counter() - start
    feeds = feeds_of(path, session)
    wanted = [each.name for each in session.get_outputs()]
    expected: Arrays = dict(zip(wanted, session.run(wanted, feeds), strict=True))
    start = time.perf_counter()
    try:
        graph = graph_of(path, feeds)
        imported = time.perf_counter() - start
        run = (
            runs_of(path, feeds, None, threads) if graph is None else partial(executor_of(graph, threads).run, **feeds)
        )
        found = run()
    except poolrt.ModelError as error:
        print(f"{path.stem}: REFUSED: {error}", flush=True)
        return False
    except Exception as error:  # noqa: BLE001 -- the other networks are compared, too
        print(f"{path.stem}: RAISED {type(error).__name__}: {error}", flush=True)
        return False
    loaded = time.perf_counter() - start
    choices = choices_of(path, feeds)
    judged = [error_of(found, expected, choices)]
    if pool is not None:
        there = runs_of(path, feeds, pool, threads) if graph is None else partial(pool.load(graph).run, **feeds)
        judged.append(error_of(there(), expected, choices))
    errors, moved = zip(*judged, strict=True)
    rivals: dict[str, Callable[[], object]] = {"here": run, "there": lambda: session.run(wanted, feeds)}
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(rounds):
        for name, each in rivals.items():
            if threads > 1:
                time.sleep(REST_S)
            times[name].append(seconds_of(each, at_least, time.perf_counter if threads > 1 else time.process_time))
    mine, theirs = (statistics.median(times[name]) if rounds else float("nan") for name in rivals)
    right = max(errors) <= MOST_ERROR
    print(
        f"{path.stem}: {'right' if right else 'WRONG'} {' '.join(f'{each:.1e}' for each in errors)}, "
        f"import {imported:.2f} s, load {loaded:.2f} s (ONNX Runtime {their_load:.2f} s), "
        f"run {mine * 1e3:.3f} ms, ratio {theirs / mine:.2f}"
        + (f", {max(moved)} rows changed places" if choices else "")
        + (", by a session" if graph is None else ""),
        flush=True,
    )
    return right


def main() -> int:
    """Compare the files that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--pool", action="store_true", help="run on a pool, too")
    parser.add_argument(
        "--rounds", type=int, default=5, help="how often runs alternate (default: 5; 0 measures no time)"
    )
    parser.add_argument("--seconds", type=float, default=0.05, help="least time of one round (default: 0.05)")
    parser.add_argument("--threads", type=int, default=1, help="threads of both (default: 1)")
    chosen = parser.parse_args()
    paths = sorted(chosen.folder.glob("*.onnx"))
    paths = [each for each in paths if not chosen.words or any(word in each.stem for word in chosen.words)]
    pool = poolrt.Pool(workers=1) if chosen.pool else None
    try:
        results = [compare(each, pool, chosen.rounds, chosen.seconds, chosen.threads) for each in paths]
    finally:
        if pool is not None:
            pool.shutdown()
    print(f"{sum(results)} of {len(results)} are right, {os.path.basename(chosen.folder)}")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
