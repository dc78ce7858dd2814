"""Quantise exported networks and compare them with ONNX Runtime: ``python benchmarks/exported/quantize.py FOLDER [WORD ...]``.

``FOLDER`` has the files that ``export.py`` writes; with words, only files whose names contain one of them are quantised.
ONNX Runtime's tools write the forms of `FORMS`, those of 4 bits if onnx_ir is installed. poolrt's results must be within one
step of ONNX Runtime's, for each output. A step is the output's scale, or if it has none, 1/255 of its range, or 1/65535 of
forms with 16 bits. ONNX Runtime's optimiser replaces quantised nodes by fused ones that round elsewhere. If its results
differ from those without it by more than a step, and poolrt's from them, then poolrt's are compared with those without it,
and the line says so. Steps of 16 bits are as small as errors of sums in float32, so four of these are right. If poolrt's
results are further from both, ONNX's evaluator judges in float64: poolrt's are right if they are no further from its results
than the better of ONNX Runtime's are. Ends with 1 if a form is not supported or wrong. Forms that ONNX Runtime itself does not
compute are counted apart.

Rows that NonMaxSuppression chooses may change places as in ``compare.py``.

ONNX Runtime's sums of bytes without sign by bytes with sign are wrong on processors without VNNI (they saturate at 16 bits), so
both of its results are computed in forms with exact sums: its own option for the fused nodes, and weights of uint8 without its
optimiser. If it does not create a session with that option, results are compared with those without its optimiser.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import onnx
import onnxruntime
from choices import Choice, choices_of
from compare import MOST_ERROR, Arrays, feeds_of, largest_difference, session_of
from exact import in_float64
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

import poolrt
from tests.references.unsigned_weights import with_unsigned_weights

#: Inputs that ranges are measured on, beside the exporter's own.
_SAMPLES: Final = 3
#: Steps that are right, and what float32 makes of one.
_MOST: Final = 1.001
_MOST_OF_16_BITS: Final = 4.01
#: Weights of a scale in forms of four bits.
_BLOCK: Final = 32
Make = Callable[[Path, Path, Arrays], None]


class Samples(CalibrationDataReader):  # type: ignore[misc]
    """Inputs to measure ranges on: the given ones, and disturbed forms of their floats."""

    def __init__(self, feeds: Arrays) -> None:
        rng = np.random.default_rng(0)
        self._left: Iterator[Arrays] = iter(
            [feeds]
            + [
                {
                    name: (each + rng.standard_normal(each.shape) / 4).astype(each.dtype)
                    if each.dtype.kind == "f"
                    else each
                    for name, each in feeds.items()
                }
                for _ in range(_SAMPLES)
            ]
        )

    def get_next(self) -> Arrays | None:
        """Return the next inputs."""
        return next(self._left, None)


def static(
    activations: QuantType, weights: QuantType, form: QuantFormat, source: Path, to: Path, feeds: Arrays
) -> None:
    """Write a form whose scales are measured before."""
    options = {"UseQDQContribOps": True} if activations in (QuantType.QUInt16, QuantType.QInt16) else {}
    quantize_static(
        source, to, Samples(feeds), quant_format=form, activation_type=activations, weight_type=weights,
        per_channel=form == QuantFormat.QDQ and weights == QuantType.QInt8, extra_options=options,
    )  # fmt: skip


def dynamic(weights: QuantType, source: Path, to: Path, feeds: Arrays) -> None:
    """Write a form whose scales a run computes."""
    quantize_dynamic(source, to, weight_type=weights)


def few_bits(symmetric: bool, source: Path, to: Path, feeds: Arrays) -> None:
    """Write a form whose products have weights of four bits, with zero points or without."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    made = MatMulNBitsQuantizer(onnx.load(source), block_size=_BLOCK, is_symmetric=symmetric)
    made.process()
    made.model.save_model_to_file(str(to))


#: Name -> (its writer, steps in the range of an output).
FORMS: Final[dict[str, tuple[Make, int]]] = {
    "qdq u8s8": (partial(static, QuantType.QUInt8, QuantType.QInt8, QuantFormat.QDQ), 255),
    "qdq s8s8": (partial(static, QuantType.QInt8, QuantType.QInt8, QuantFormat.QDQ), 255),
    "qdq u16u8": (partial(static, QuantType.QUInt16, QuantType.QUInt8, QuantFormat.QDQ), 65535),
    "operators u8s8": (partial(static, QuantType.QUInt8, QuantType.QInt8, QuantFormat.QOperator), 255),
    "operators u8u8": (partial(static, QuantType.QUInt8, QuantType.QUInt8, QuantFormat.QOperator), 255),
    "dynamic s8": (partial(dynamic, QuantType.QInt8), 255),
    "dynamic u8": (partial(dynamic, QuantType.QUInt8), 255),
    "4 bits": (partial(few_bits, True), 255),
    "4 bits with zero points": (partial(few_bits, False), 255),
}


def fused(path: Path) -> onnxruntime.InferenceSession:
    """Return a session with all optimisations and exact sums."""
    options = options_of(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL)
    options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def unoptimised(path: Path) -> onnxruntime.InferenceSession:
    """Return a session that computes each node as it is, with exact sums."""
    options = options_of(onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    text = with_unsigned_weights(onnx.load(path)).SerializeToString()
    return onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])


def options_of(level: onnxruntime.GraphOptimizationLevel) -> onnxruntime.SessionOptions:
    """Return the options of a session on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = level
    return options


def scales_of(path: Path) -> dict[str, float]:
    """Return the scales of the outputs that are dequantised."""
    graph = onnx.load(path).graph
    known = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
    return {
        node.output[0]: float(known[node.input[1]].item())
        for node in graph.node
        if node.op_type == "DequantizeLinear" and known.get(node.input[1], np.zeros(2)).size == 1
    }


def distance(found: Arrays, wanted: Arrays, scales: dict[str, float], steps: int, choices: dict[str, Choice]) -> float:
    """Return the largest difference of any output in steps."""
    worst = 0.0
    for name, want in wanted.items():
        got = found[name]
        if got.shape != want.shape or got.dtype != want.dtype:
            print(f"    {name}: {got.dtype}{got.shape} instead of {want.dtype}{want.shape}")
            return float("inf")
        if want.size and want.dtype.kind == "f":
            step = scales.get(name, (float(want.max()) - float(want.min())) / steps)
            worst = max(worst, largest_difference(got, want) / max(step, 1e-30))
        elif not np.array_equal(got, want) and (
            name not in choices or choices[name].moved(got, want, MOST_ERROR) is None
        ):
            return float("inf")
    return worst


def compare(name: str, path: Path, feeds: Arrays, steps: int) -> bool | None:
    """Print the line of one form; return whether it is supported and right, None if ONNX Runtime does not compute it."""

    def results(session: onnxruntime.InferenceSession) -> Arrays:
        names = [each.name for each in session.get_outputs()]
        return dict(zip(names, session.run(names, feeds), strict=True))

    try:
        plain = results(unoptimised(path))
    except Exception as error:  # noqa: BLE001 -- a form that ONNX Runtime itself does not compute is no failure
        print(f"{name}: ONNX Runtime does not compute it: {str(error)[:120]}", flush=True)
        return None
    try:
        optimised = results(fused(path))
    except Exception:  # noqa: BLE001 -- the option fails on weights that several products share
        optimised = plain
    try:
        graph = poolrt.load_onnx(path, shapes={key: each.shape for key, each in feeds.items()})
        found = poolrt.Executor(graph).run(**feeds)
    except poolrt.ModelError as error:
        print(f"{name}: REFUSED: {error}", flush=True)
        return False
    except Exception as error:  # noqa: BLE001 -- the other forms are compared, too
        print(f"{name}: RAISED {type(error).__name__}: {error}", flush=True)
        return False
    scales, choices = scales_of(path), choices_of(path, feeds)
    pairs = ((found, optimised), (found, plain), (optimised, plain))
    far, near, own = (distance(left, right, scales, steps, choices) for left, right in pairs)
    most = _MOST if steps == 255 else _MOST_OF_16_BITS
    right = far <= most or (own > most and near <= most)
    note = (
        "" if far <= most else f"; ONNX Runtime is {own:.2f} steps from itself without its optimiser, poolrt {near:.2f}"
    )
    exact = None if right else in_float64(path, feeds)
    if exact is not None:
        ours, *theirs = (distance(each, exact, scales, steps, choices) for each in (found, optimised, plain))
        right = ours <= min(theirs)
        note += f"; from float64 {ours:.2f}, ONNX Runtime {theirs[0]:.2f} and {theirs[1]:.2f}"
    print(f"{name}: {'right' if right else 'WRONG'}, {far:.2f} steps{note}", flush=True)
    return right


def main() -> int:
    """Quantise and compare the files that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--forms", default="", help="only forms whose names contain one of these words, by commas")
    parser.add_argument("--keep", type=Path, help="a folder for the quantised files")
    chosen = parser.parse_args()
    paths = sorted(chosen.folder.glob("*.onnx"))
    paths = [each for each in paths if not chosen.words or any(word in each.stem for word in chosen.words)]
    wanted = {key: made for key, made in FORMS.items() if any(word in key for word in chosen.forms.split(","))}
    results: list[bool | None] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if chosen.keep is None else chosen.keep
        folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            feeds: Any = feeds_of(path, session_of(path))
            prepared = folder / f"{path.stem}.prepared.onnx"
            try:
                quant_pre_process(path, prepared, skip_symbolic_shape=True)
            except Exception as error:  # noqa: BLE001 -- its own optimiser fails on some exports
                print(f"{path.stem}: as exported, without ONNX Runtime's preparation: {str(error)[:80]}", flush=True)
                prepared = path
            for form, (make, steps) in wanted.items():
                target = folder / f"{path.stem}.{form.replace(' ', '-')}.onnx"
                try:
                    make(prepared, target, feeds)
                except Exception as error:  # noqa: BLE001 -- the other forms are compared, too
                    print(f"{path.stem}, {form}: ONNX Runtime's tools do not write it: {str(error)[:120]}", flush=True)
                    continue
                results.append(compare(f"{path.stem}, {form}", target, feeds, steps))
    judged = [each for each in results if each is not None]
    print(f"{sum(judged)} of {len(judged)} are right; ONNX Runtime does not compute {len(results) - len(judged)} more")
    return 0 if all(judged) else 1


if __name__ == "__main__":
    sys.exit(main())
