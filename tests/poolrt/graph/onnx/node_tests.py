"""ONNX's own tests of operators, loaded and executed: `python -m tests.poolrt.graph.onnx.node_tests [--every N] [--names P]`.

Each model is loaded with all inputs open but those without elements. If the importer asks for the value of an input (axes,
sizes), the model is loaded again with it. Then an `Executor` runs it, and results are compared in shape, data type and
value. Exit status 0: nothing is wrong and nothing crashes.

An expected value that is further from float64 than its own test allows is no reference: a result that differs from it is
compared with ONNX's own evaluator on inputs of float64, with the same tolerances. Such tests are counted and named apart.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from poolrt import Executor, Graph, ModelError, UnsupportedNode, load_onnx
from poolrt.graph.cut_outputs import cut_outputs
from poolrt.graph.errors import LoweringError
from poolrt.workers.desc import data_type
from tests.poolrt.graph.interpreter import run_wire
from tests.references import numpy_type

Array = NDArray[Any]
_WANTED: Final = re.compile(r"give the input while loading: values=\{(.*)\}")
_NAME: Final = re.compile(r"'([^']+)': \.\.\.")
#: Lines of a page of the documentation around the counts.
FIRST: Final = "<!-- Written by `python -m tests.poolrt.graph.onnx.node_tests --document docs/onnx.md`: -->"
LAST: Final = "<!-- until here -->"
#: The outcome of a test whose expected value float64 contradicts, and the result does not.
CONTRADICTED: Final = "right by float64"
#: Inputs of one model whose values are asked for, one after the other.
_MOST_VALUES: Final = 12


@dataclass(slots=True)
class Counts:
    """What became of the models: by outcome, with the reasons of refusals and the names of the others."""

    outcomes: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    contradicted: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, outcome: str, detail: str) -> None:
        """Count one model."""
        self.outcomes[outcome] += 1
        if outcome == "refused":
            self.refused[detail] += 1
            self.examples.setdefault(detail, name)
        elif outcome == CONTRADICTED:
            self.contradicted[name] = detail
        elif outcome in ("wrong", "crashed"):
            self.failures[name] = f"{outcome}: {detail}"


def node_tests() -> list[Any]:
    """Return ONNX's tests of operators, with their inputs and expected results."""
    with warnings.catch_warnings():
        # Generating the cases divides by zero on purpose here and there.
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return list(load_model_tests(kind="node"))


def node_tests_of(*modules: str) -> list[Any]:
    """Return ONNX's tests that some modules of it define, which is much faster than all of them."""
    from onnx.backend.test.case import node

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = {each.name for each in node._NodeTestCases}
        for module in modules:
            import_module(f"onnx.backend.test.case.node.{module}")
    operators = {module.replace("_", "") for module in modules}
    return [each for each in node._NodeTestCases if each.name not in known or _operator_of(each) in operators]


def _operator_of(case: Any) -> str:
    return case.model.graph.node[0].op_type.lower() if case.model.graph.node else ""


def execute(graph: Graph, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
    """Return what an Executor computes."""
    return Executor(graph).run(**feeds)


def interpret(graph: Graph, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
    """Return what the NumPy references compute, without a compiler."""
    bits = {name for name, dtype in {**graph.input_types, **graph.output_types}.items() if dtype == "bfloat16"}
    given = {name: array.view(ml_dtypes.bfloat16) if name in bits else array for name, array in feeds.items()}
    found = run_wire(*graph.to_wire(), given)
    cut_outputs(found, graph.cuts)
    kinds = {name: numpy_type(data_type(dtype)) for name, dtype in graph.output_types.items()}
    made = {name: array.astype(kinds[name]) for name, array in found.items()}
    return {name: array.view(np.uint16) if name in bits else array for name, array in made.items()}


def judge(case: Any, compute: Callable[[Graph, Mapping[str, Array]], Mapping[str, Array]] = execute) -> tuple[str, str]:
    """Return what became of a test, and the reason or the difference.

    ``right``: all inputs are open; ``right, values given``: some are known while loading; `CONTRADICTED`: a result agrees
    with float64, and the expected value does not.
    """
    outcome, detail = "right", ""
    for inputs, expected in case.data_sets:
        graph = case.model.graph
        arrays = {each.name: _array(value) for each, value in zip(graph.input, inputs, strict=True)}
        if not all(isinstance(value, np.ndarray | np.generic) for value in arrays.values()):
            return "refused", "an input is no array"
        # A tensor of a graph has elements: an input that has none is known.
        given = {name: np.asarray(value) for name, value in arrays.items() if not np.asarray(value).size}
        try:
            made = _load(case.model, arrays, given)
            feeds = {name: _fed(arrays[name]) for name in made.inputs}
            results = compute(made, feeds)
        except UnsupportedNode as error:
            use = error.uses[0] if error.uses else error
            return "refused", f"{use.operator}: {use.reason}"
        except (ModelError, LoweringError) as error:
            return "refused", _general(str(error))
        except Exception:  # noqa: BLE001 - whatever it is, it is a crash
            return "crashed", traceback.format_exc(limit=-3)
        for declared, wanted in zip(graph.output, expected, strict=True):
            found, dtype = results[declared.name], made.output_types[declared.name]
            difference = compare(found, wanted, dtype, case.rtol, case.atol)
            if not difference:
                continue
            exact = in_float64(case.model, arrays, declared.name, np.asarray(_array(wanted)).dtype)
            if exact is None or compare(found, exact, dtype, case.rtol, case.atol):
                return "wrong", f"{declared.name}: {difference}"
            contradiction = compare(np.asarray(_array(wanted)), exact, dtype, case.rtol, case.atol)
            if not contradiction:
                return "wrong", f"{declared.name}: {difference}"
            outcome, detail = CONTRADICTED, f"{declared.name}: {difference}"
        if outcome != CONTRADICTED and given:
            outcome = "right, values given"
    return outcome, detail


def in_float64(model: Any, arrays: Mapping[str, Array], name: str, dtype: np.dtype[Any]) -> Array | None:
    """Return what ONNX's evaluator computes from inputs of float64, rounded to a type of floats; None if it does not."""
    if dtype.kind != "f" or all(array.dtype.kind != "f" for array in arrays.values()):
        return None
    wide = {key: array.astype(np.float64) if array.dtype.kind == "f" else array for key, array in arrays.items()}
    try:
        (found,) = ReferenceEvaluator(model).run([name], wide)
    except Exception:  # noqa: BLE001 - then there is no other reference than the expected value
        return None
    return np.asarray(found).astype(dtype) if isinstance(found, np.ndarray) and found.dtype == np.float64 else None


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def _load(model: Any, arrays: Mapping[str, Array], given: dict[str, Array]) -> Any:
    for _ in range(_MOST_VALUES):
        try:
            return load_onnx(model, values=given)
        except UnsupportedNode as error:
            asked = [match[1] for use in error.uses if (match := _WANTED.search(use.reason))]
            found = [name for each in asked for name in _NAME.findall(each)]
            more = {name: np.asarray(arrays[name]) for name in found if name not in given}
            if not more:
                raise
            given.update(more)
    return load_onnx(model, values=given)


def _fed(value: Any) -> Array:
    array = np.asarray(value)
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def compare(found: Array, wanted: Any, dtype: str, rtol: float, atol: float) -> str:
    """Return how a result differs from the expected one, empty if it does not."""
    expected = np.asarray(_array(wanted))
    if dtype != expected.dtype.name:
        return f"is of type {dtype}, not {expected.dtype.name}"
    if found.shape != expected.shape:
        return f"has shape {found.shape}, not {expected.shape}"
    if dtype == "bfloat16":
        found, expected = (each.view(np.uint16).astype(np.uint32) << 16 for each in (found, expected))
        found, expected = found.view(np.float32), expected.view(np.float32)
        # As in the tests of ONNX: two units in the last place.
        rtol = max(rtol, 2.0**-6)
    if expected.dtype.kind != "f":
        return "" if np.array_equal(found, expected) else f"{_shown(found)} is not {_shown(expected)}"
    with np.errstate(all="ignore"):
        close = np.allclose(found, expected, rtol=rtol, atol=atol, equal_nan=True)
    return "" if close else f"{_shown(found)} is not {_shown(expected)}"


def _shown(array: Array) -> str:
    return np.array2string(array.reshape(-1)[:8], precision=5)


def _general(text: str) -> str:
    """Return a message without names and numbers, so that those of one reason are counted together."""
    return re.sub(r"'[^']*'", "'...'", re.sub(r"\d+", "N", text))[:160]


def run(cases: Sequence[Any], interpreted: bool = False) -> Counts:
    """Judge tests one after the other."""
    counts = Counts()
    for case in cases:
        counts.add(case.name, *judge(case, interpret if interpreted else execute))
    return counts


def document(counts: Counts, total: int) -> str:
    """Return the part of the documentation that lists the counts."""
    right, given = counts.outcomes["right"], counts.outcomes["right, values given"]
    exact = len(counts.contradicted)
    text = (
        f"The `onnx` package {version('onnx')} has {total} tests of operators. For {right + given + exact} of them, an "
        f"`Executor` computes the right results: {right} with all inputs open, {given} with some given while loading, such as "
        "axes and sizes. Results are compared in shape, data type and value, with the tolerances of these tests. These differ "
        f"from the expected values: {_names(counts.failures)}."
    )
    if exact:
        text += (
            f" {exact} expect values that are further from float64 than they allow, and have results that are not: "
            f"{_names(counts.contradicted)}."
        )
    lines = [textwrap.fill(text, 120), "", f"{counts.outcomes['refused']} are refused:", ""]
    lines += ["| tests | reason | one of them |", "| ---: | --- | --- |"]
    for reason, number in sorted(counts.refused.items(), key=lambda item: (-item[1], item[0])):
        lines.append(f"| {number} | {reason.replace('|', ' ')} | `{counts.examples[reason]}` |")
    return "\n".join(lines)


def parts_of(page: str) -> tuple[str, str, str]:
    """Return what a page has before the part of the counts, this part, and what follows."""
    before, _, rest = page.partition(FIRST)
    part, _, after = rest.partition(LAST)
    return before + FIRST, part.strip(), LAST + after


def _names(tests: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(tests)) or "none"


def main() -> int:
    """Run the tests that the command line chooses, and print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="take each N-th test")
    parser.add_argument("--names", default="", help="take the tests whose names match")
    parser.add_argument(
        "--interpret", action="store_true", help="compute with the NumPy references, without a compiler"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--document", type=Path, help="write the counts into a page that has a place for them")
    options = parser.parse_args()
    chosen = [each for each in node_tests() if re.search(options.names, each.name)][:: options.every]
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counts = run(chosen, options.interpret)
    if options.document:
        before, _, after = parts_of(options.document.read_text(encoding="utf-8"))
        made = document(counts, len(chosen))
        options.document.write_text(f"{before}\n{made}\n{after}", encoding="utf-8")
    if options.json:
        listed = {"refused": counts.refused, "contradicted": counts.contradicted, "failures": counts.failures}
        print(json.dumps({"outcomes": counts.outcomes, **listed}))
    else:
        for reason, number in counts.refused.most_common():
            print(f"{number:5} refused  {reason}  ({counts.examples[reason]})")
        for name, failure in {**counts.contradicted, **counts.failures}.items():
            print(f"{name}: {failure}")
        print(f"{len(chosen)} models, {time.process_time() - started:.0f} s of processor time: {dict(counts.outcomes)}")
    return 1 if counts.failures else 0


if __name__ == "__main__":
    sys.exit(main())
