"""Nodes with random operators, data types, shapes and special numbers compute what ONNX's own evaluator computes."""

from __future__ import annotations

import random
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from poolrt import Executor, load_onnx
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.workers.drawn import drawn

Array = NDArray[Any]
#: Seeds of nodes; `make test` takes a few of them.
SEEDS: Final = range(600)
OPSET: Final = 20
FLOATS: Final = ("float16", "float32", "float64")
INTEGERS: Final = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FUNCTIONS: Final = (
    "Relu", "LeakyRelu", "Elu", "Celu", "Selu", "Mish", "Sigmoid", "Tanh", "Softplus", "Softsign", "Exp", "Log", "Sqrt", "Abs",
    "Neg", "Reciprocal", "Floor", "Ceil", "Round", "Sign", "Sinh", "Cosh", "Atanh", "Sin", "Cos", "Asin", "Acos", "Atan", "Erf",
    "IsNaN", "IsInf", "ThresholdedRelu", "Identity",
)  # fmt: skip
OF_TWO: Final = ("Add", "Sub", "Mul", "Max", "Min", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
OF_TWO_FLOATS: Final = ("Div", "Pow", "PRelu")
REDUCTIONS: Final = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare")
#: Relative and absolute errors: those of the evaluator, which computes in the type itself, and the error function in float32.
TOLERANCES: Final = {"float16": (6e-3, 3e-3), "float32": (2e-4, 1e-5), "float64": (1e-9, 1e-7)}


def numbers(rng: random.Random, dtype: str, shape: tuple[int, ...], huge: bool) -> Array:
    """Return random numbers with NaN, infinities, zeros and halves among them, or the limits of integers."""
    generator = np.random.default_rng(rng.getrandbits(32))
    if dtype in INTEGERS:
        whole = np.iinfo(dtype)
        limits = (whole.min, whole.max) if rng.random() < 0.5 else (max(whole.min, -20), 20)
        return generator.integers(*limits, shape, dtype, endpoint=True)
    drawn_numbers = np.asarray(generator.standard_normal(shape) * rng.choice((1, 3))).astype(dtype)
    known = np.finfo(dtype)
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -0.5, 1.5, 2.5, 1, -1]
    if huge:
        special += map(float, (known.max, known.min, known.tiny, known.smallest_subnormal))
    takes = generator.random(shape) < rng.choice((0.0, 0.1, 0.3))
    return np.where(takes, generator.choice(np.array(special, dtype), shape), drawn_numbers).astype(dtype)


def broadcast(rng: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape that broadcasts to another one."""
    kept = [size if rng.random() < 0.7 else 1 for size in shape]
    return tuple(kept[rng.randint(0, len(kept)) if rng.random() < 0.3 else 0 :])


def node(seed: int) -> tuple[str, dict[str, Array], dict[str, Array], dict[str, Any]]:
    """Return an operator, its inputs, its constants and its attributes."""
    rng = random.Random(seed)
    shape = tuple(rng.choice((1, 2, 3, 5, 8, 17, 33)) for _ in range(rng.randint(0, 3)))
    match rng.choice(("function", "two", "two floats", "reduction", "clip")):
        case "function":
            return rng.choice(FUNCTIONS), {"x": numbers(rng, rng.choice(FLOATS), shape, True)}, {}, {}
        case "two":
            dtype = rng.choice((*FLOATS, *INTEGERS))
            given = {name: numbers(rng, dtype, broadcast(rng, shape), True) for name in ("x", "z")}
            constants = {"z": given.pop("z")} if rng.random() < 0.3 else {}
            return rng.choice(OF_TWO), given, constants, {}
        case "two floats":
            operator, dtype = rng.choice(OF_TWO_FLOATS), rng.choice(FLOATS)
            left = shape if operator == "PRelu" else broadcast(rng, shape)
            shapes = {"x": left, "z": broadcast(rng, shape)}
            return operator, {name: numbers(rng, dtype, each, True) for name, each in shapes.items()}, {}, {}
        case "reduction":
            x = numbers(rng, rng.choice(("float32", "float64")), shape, False)
            axes = np.array(rng.sample(range(x.ndim), rng.randint(0, x.ndim)), np.int64)
            return rng.choice(REDUCTIONS), {"x": x}, {"axes": axes}, {"keepdims": rng.randint(0, 1)}
        case _:
            dtype = rng.choice((*FLOATS, *INTEGERS))
            low, high = sorted(numbers(rng, dtype, (2,), False)) if dtype in INTEGERS else np.array([-0.5, 1.5], dtype)
            limits = {"low": np.asarray(low, dtype), "high": np.asarray(high, dtype)}
            if rng.random() < 0.3:
                del limits["high"]
            return "Clip", {"x": numbers(rng, dtype, shape, True)}, limits, {}


def model_of(operator: str, feeds: dict[str, Array], constants: dict[str, Array], attributes: Any) -> onnx.ModelProto:
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    made = helper.make_node(operator, [*feeds, *constants], ["y"], **attributes)
    graph = helper.make_graph([made], "g", ports, [helper.make_empty_tensor_value_info("y")], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


def test_random_nodes_compute_what_the_evaluator_of_onnx_does(cache: PrimitiveProvider) -> None:
    for seed in drawn(SEEDS, 16):
        operator, feeds, constants, attributes = node(seed)
        model = model_of(operator, feeds, constants, attributes)
        with np.errstate(all="ignore"):
            (evaluated,) = ReferenceEvaluator(model).run(["y"], feeds)
        want = np.asarray(evaluated)
        found = Executor(load_onnx(model), cache=cache).run(**feeds)["y"]
        kinds = [f"{array.dtype}{list(array.shape)}" for array in feeds.values()]
        case = f"seed {seed}: {operator} {kinds} {list(constants)} {attributes}"
        assert (found.dtype, found.shape) == (want.dtype, want.shape), case
        relative, absolute = TOLERANCES.get(found.dtype.name, (0.0, 0.0))
        np.testing.assert_allclose(found, want, rtol=relative, atol=absolute, err_msg=case)
