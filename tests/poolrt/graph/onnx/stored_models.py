"""ONNX's stored models, in poolrt and in ONNX Runtime: `python -m tests.poolrt.graph.onnx.stored_models [KIND ...]`.

The kinds are the folders ``simple``, ``pytorch-operator`` and ``pytorch-converted`` of the onnx package's data, and ``real``:
its nine networks, whose weights and inputs are random here, and whose results are those of ONNX Runtime. Each model runs in a
session of both on the same inputs. A result is right if shape and data type are, and values within the tolerances of the test.
Exit status 0: poolrt computes right all models that ONNX Runtime does, and refuses the rest.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

import poolrt.onnx
from tests.acceptance.networks import LIGHT, make_network

KINDS: Final = ("simple", "pytorch-operator", "pytorch-converted", "real")
Array = NDArray[Any]
Make = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A model with inputs and expected results, in order, and tolerances."""

    name: str
    model: Any
    data: Sequence[tuple[list[Array], list[Array]]]
    rtol: float
    atol: float


def cases(kind: str, folder: Path) -> Iterator[Case]:
    """Yield the models of a kind by name; ``folder`` is for the networks."""
    if kind == "real":
        for name in LIGHT:
            made = make_network(name, folder)
            yield Case(name, onnx.load(made.path), [([made.x], [made.y])], 1e-3, 1e-7)
            made.path.unlink()
        return
    for test in sorted(load_model_tests(kind=kind), key=lambda each: str(each.name)):
        place = Path(str(test.model_dir))
        data = [(_tensors(each, "input"), _tensors(each, "output")) for each in sorted(place.glob("test_data_set_*"))]
        yield Case(test.name, onnx.load(place / "model.onnx"), data, test.rtol, test.atol)


def _tensors(folder: Path, what: str) -> list[Array]:
    files = sorted(folder.glob(f"{what}_*.pb"), key=lambda file: int(file.stem.rpartition("_")[2]))
    return [numpy_helper.to_array(onnx.load_tensor(str(file))) for file in files]


def theirs(model: bytes) -> Any:
    """Return a session of ONNX Runtime on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def ours(model: bytes) -> Any:
    """Return a session of poolrt on one thread."""
    options = poolrt.onnx.SessionOptions()
    options.intra_op_num_threads = 1
    return poolrt.onnx.InferenceSession(model, options)


def judge(case: Case, make: Make, refusals: tuple[type[Exception], ...]) -> tuple[str, str]:
    """Return ``right``, ``refused`` or ``wrong``, and why."""
    try:
        session = make(case.model.SerializeToString())
        names = [each.name for each in session.get_inputs()]
        found = [session.run(None, dict(zip(names, inputs, strict=True))) for inputs, _ in case.data]
    except refusals as error:
        return "refused", " ".join(str(error).split())
    for results, (_, expected) in zip(found, case.data, strict=True):
        for result, wanted in zip(results, expected, strict=True):
            if (result.dtype, result.shape) != (wanted.dtype, wanted.shape):
                return "wrong", f"{result.dtype}{result.shape} instead of {wanted.dtype}{wanted.shape}"
            same = (
                np.allclose(result, wanted, rtol=case.rtol, atol=case.atol, equal_nan=True)
                if wanted.dtype.kind == "f"
                else np.array_equal(result, wanted)
            )
            if not same:
                return "wrong", f"differs by up to {np.abs(result.astype(np.float64) - wanted).max():.1e}"
    return "right", ""


def run(kind: str, make: Make = ours) -> tuple[Counter[str], list[str]]:
    """Return counts by outcome of one kind, and a line for each model that breaks the promise; ``make`` makes sessions."""
    counts: Counter[str] = Counter()
    broken = []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(kind, Path(folder)):
            there, _ = judge(case, theirs, (Exception,))
            here, why = judge(case, make, (poolrt.GraphError,))
            counts[f"ONNX Runtime {there}"] += 1
            counts[f"poolrt {here}"] += 1
            if here == "wrong" or (there == "right" and here != "right"):
                broken.append(f"{case.name}: ONNX Runtime {there}, poolrt {here}: {why}")
    return counts, broken


def main() -> int:
    """Run the kinds that the command line names, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(KINDS)}; all unless given")
    chosen = parser.parse_args().kinds or KINDS
    unknown = sorted({*chosen} - {*KINDS})
    if unknown:
        parser.error(f"no kind {unknown[0]!r}; there are {', '.join(KINDS)}")
    failed = False
    for kind in chosen:
        counts, broken = run(kind)
        failed |= bool(broken)
        listed = ", ".join(f"{name} {number}" for name, number in sorted(counts.items()))
        print(f"{kind}: {listed}", flush=True)
        for line in broken:
            print(f"    {line:.300}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
