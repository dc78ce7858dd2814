"""Nodes of the domain ``com.microsoft`` on random inputs, and what ONNX Runtime computes from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """A node: its operands in order (an empty name is a missing one), those that are inputs, and its attributes.

    ``quantum`` is the step of a quantised result, -1 of one in the operator; 0 compares numbers of float32. ``rows`` are
    the rows of each sequence in a cache; ONNX Runtime does not say what follows them.
    """

    operator: str
    operands: Mapping[str, Array | None]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = ("y",)
    quantum: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = 2e-5
    rows: tuple[int, ...] = ()

    def model(self) -> onnx.ModelProto:
        given = {name: array for name, array in self.operands.items() if array is not None}
        names = [name if name in given else "" for name in self.operands]
        node = helper.make_node(
            self.operator, names, list(self.outputs), "node", domain="com.microsoft", **self.attributes
        )
        declared = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(given[name].dtype), given[name].shape)
            for name in self.inputs
        ]
        fixed = [numpy_helper.from_array(array, name) for name, array in given.items() if name not in self.inputs]
        # The schema of MultiHeadAttention leaves the type of qk open.
        results = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            if name == "qk"
            else onnx.ValueInfoProto(name=name)
            for name in self.outputs
            if name
        ]
        graph = helper.make_graph([node], "single", declared, results, fixed)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def feeds(self) -> dict[str, Array]:
        found = {name: self.operands[name] for name in self.inputs}
        return {name: array for name, array in found.items() if array is not None}


def number(value: float) -> Array:
    """Return a scale."""
    return np.asarray(value, np.float32)


class Draw:
    """Random operands of a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def floats(self, *dims: int) -> Array:
        return self.rng.standard_normal(dims).astype(np.float32)

    def bytes(self, *dims: int, dtype: str = "uint8") -> Array:
        limits = np.iinfo(dtype)
        return self.rng.integers(limits.min, limits.max + 1, dims).astype(dtype)

    def scale(self, *dims: int, around: float = 0.02) -> Array:
        return np.asarray(self.rng.uniform(around / 2, around, dims), np.float32)

    def point(self, dtype: str = "uint8") -> Array:
        return np.asarray(self.rng.integers(100, 150) - (128 if dtype == "int8" else 0), dtype)


def quantised_cases(seed: int) -> list[Case]:
    """Return cases of operators with scales and zero points."""
    d = Draw(seed)
    s, p, f = d.scale, d.point, number
    found: list[Case] = []

    def add(operator: str, operands: Mapping[str, Array | None], *inputs: str, quantum: int = 1, **attrs: Any) -> None:
        found.append(Case(operator, operands, inputs, quantum=quantum, attributes=attrs))

    for dtype in ("uint8", "int8"):
        x, b = d.bytes(2, 3, 5, dtype=dtype), d.bytes(2, 3, 5, dtype=dtype)
        pair = {"a": x, "as": s(), "az": p(dtype), "b": b, "bs": s(), "bz": p(dtype), "cs": f(0.03), "cz": p(dtype)}
        add("QLinearAdd", pair, "a", "b")
        add("QLinearMul", {**pair, "b": b[:1, :, :1]}, "a", "b")
        one = {"x": x, "xs": s(around=0.05), "xz": p(dtype), "ys": f(0.05), "yz": p(dtype)}
        add("QLinearLeakyRelu", one, "x", alpha=0.2)
        add("QLinearSigmoid", {**one, "ys": f(0.004), "yz": np.zeros((), dtype)}, "x")
        image = {**one, "x": d.bytes(2, 3, 6, 5, dtype=dtype)}
        add("QLinearGlobalAveragePool", image, "x")
        add("QLinearAveragePool", image, "x", kernel_shape=[3, 2], pads=[1, 0, 1, 1], strides=[2, 1])
        add("QLinearSoftmax", {**one, "ys": f(1 / 256), "yz": np.zeros((), dtype)}, "x", axis=-1, opset=13)
        joined = {"ys": one["xs"], "yz": one["xz"], "a": x, "as": one["xs"], "az": one["xz"], "b": b, "bs": f(0.04)}
        add("QLinearConcat", {**joined, "bz": p(dtype)}, "a", "b", axis=1)
        wanted = p(dtype)
        for columns in ((), (7,)):
            gemm: dict[str, Array | None] = {
                "a": d.bytes(4, 6, dtype=dtype), "as": s(), "az": p(dtype), "b": d.bytes(6, 7, dtype="int8"),
                "bs": s(*columns), "bz": np.zeros(columns, np.int8), "c": d.rng.integers(-99, 99, (7,)).astype(np.int32),
            }  # fmt: skip
            add("QGemm", {**gemm, "ys": f(0.06), "yz": wanted}, "a", alpha=0.7)
            add("QGemm", {**gemm, "c": None}, "a", quantum=0)
        last = {**one, "x": d.bytes(2, 6, 5, 3, dtype=dtype)}
        window: dict[str, Any] = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}
        for attrs in ({}, {"count_include_pad": 1}):
            add("QLinearAveragePool", last, "x", channels_last=1, **window, **attrs)
        add("QLinearGlobalAveragePool", last, "x", channels_last=1)
        add("NhwcMaxPool", {"x": last["x"]}, "x", **window)
        for groups, columns in ((1, ()), (1, (6,)), (3, (6,))):
            convolved: dict[str, Array | None] = {
                "x": last["x"], "xs": s(), "xz": p(dtype), "w": d.bytes(6, 3 // groups, 3, 2, dtype="int8"),
                "ws": s(*columns), "wz": np.zeros(columns, np.int8), "ys": f(0.3), "yz": p(dtype),
                "b": d.rng.integers(-999, 999, (6,)).astype(np.int32),
            }  # fmt: skip
            add("QLinearConv", convolved, "x", channels_last=1, group=groups, **window)
    x, b = d.bytes(2, 3, 5), d.bytes(2, 3, 5)
    choice = {"c": d.rng.integers(0, 2, (2, 3, 1)).astype(bool), "x": x, "xs": f(0.02), "xz": p()}
    add("QLinearWhere", {**choice, "b": b, "bs": f(0.03), "bz": p(), "ys": f(0.03), "yz": p()}, "c", "x", "b")
    turned = {"a": d.bytes(6, 4), "as": s(), "az": p(), "b": d.bytes(7, 6), "bs": s(), "bz": p()}
    add("QGemm", {**turned, "c": None, "ys": f(0.06), "yz": p()}, "a", transA=1, transB=1)
    return found


def dynamic_cases(seed: int) -> list[Case]:
    """Return cases of products whose first operand is quantised while the model runs."""
    d = Draw(seed)
    found: list[Case] = []
    for dtype in ("uint8", "int8"):
        for columns in ((), (9,)):
            points = d.rng.integers(-3, 4, columns) + (128 if dtype == "uint8" else 0)
            weights = {"b": d.bytes(12, 9, dtype=dtype), "bs": d.scale(*columns)}
            zero = {"bz": points.astype(dtype)}
            operands = {"a": d.floats(2, 5, 12), **weights, **zero, "bias": d.floats(9)}
            found.append(Case("DynamicQuantizeMatMul", operands, ("a",), quantum=-1))
            for left in ("uint8", "int8")[: 1 if dtype == "uint8" else 2]:
                source = {"a": d.bytes(5, 12, dtype=left), "b": weights["b"], "as": d.scale(), "bs": weights["bs"]}
                operands = {**source, "az": d.point(left), **zero, "bias": d.floats(9)}
                found.append(Case("MatMulIntegerToFloat", operands, ("a", "az", "as"), tolerance=1e-4))
    bare = {"a": d.floats(3, 12), "b": d.bytes(12, 9, dtype="int8"), "bs": d.scale()}
    found.append(Case("DynamicQuantizeMatMul", bare, ("a", "b"), quantum=-1))
    return found


def recurrent_cases(seed: int) -> list[Case]:
    """Return cases of an LSTM whose rows are quantised while it runs."""
    d = Draw(seed)
    found: list[Case] = []
    steps, batch, inputs, hidden = 6, 3, 5, 7

    def add(dtype: str, scales: str, count: int, steps: int = steps, outputs: int = 3, **extra: Any) -> None:
        columns = (count, 4 * hidden) if scales == "columns" else (count,)
        middle = 128 if dtype == "uint8" else 0
        # ONNX Runtime takes zero points of columns only if all are the same.
        points = [np.full(columns, d.rng.integers(-3, 4) + middle).astype(dtype) for _ in range(2)]
        states = {name: d.floats(count, batch, hidden) if extra.get(name) else None for name in ("h", "c")}
        operands: dict[str, Array | None] = {
            "x": d.floats(steps, batch, inputs), "w": d.bytes(count, inputs, 4 * hidden, dtype=dtype),
            "r": d.bytes(count, hidden, 4 * hidden, dtype=dtype), "b": d.floats(count, 8 * hidden), "n": None, **states,
            "p": d.floats(count, 3 * hidden) if extra.get("peepholes") else None, "ws": d.scale(*columns, around=0.01),
            "wz": points[0], "rs": d.scale(*columns, around=0.01), "rz": points[1],
        }  # fmt: skip
        attributes = {"hidden_size": hidden, **extra.get("attributes", {})}
        names = ("y", "last", "cell")[:outputs]
        read = tuple(name for name in ("x", "h", "c") if operands[name] is not None)
        found.append(Case("DynamicQuantizeLSTM", operands, read, names, attributes=attributes, tolerance=1e-5))

    add("int8", "one", 1)
    add("uint8", "columns", 1, outputs=1)
    add("int8", "columns", 2, attributes={"direction": "bidirectional"}, h=True, c=True)
    add("uint8", "one", 1, attributes={"direction": "reverse"}, h=True, c=True, peepholes=True)
    add("int8", "one", 1, steps=1, attributes={"clip": 0.5})
    add("uint8", "one", 2, outputs=1, attributes={"direction": "bidirectional"}, h=True)
    add("int8", "columns", 1, steps=1, attributes={"direction": "reverse"}, c=True)
    return found


def fused_cases(seed: int) -> list[Case]:
    """Return cases of activations and normalisations with more, and of products with activations."""
    d = Draw(seed)
    found: list[Case] = []

    def add(operator: str, operands: Mapping[str, Array | None], *inputs: str, outputs: int = 1, **attrs: Any) -> None:
        names = tuple(f"y{number}" for number in range(outputs))
        found.append(Case(operator, operands, inputs, names, attributes=attrs))

    x = d.floats(2, 3, 8)
    for operator in ("Gelu", "FastGelu", "QuickGelu"):
        add(operator, {"x": x}, "x")
    add("FastGelu", {"x": x, "b": d.floats(8)}, "x")
    add("BiasGelu", {"x": x, "b": d.floats(8)}, "x")
    add("QuickGelu", {"x": x}, "x", alpha=0.7)
    a, b = d.floats(2, 3, 4, 5), d.floats(2, 3, 5, 6)
    add("FusedMatMul", {"a": a, "b": b}, "a", "b", alpha=0.3)
    add("FusedMatMul", {"a": a.swapaxes(2, 3).copy(), "b": b.swapaxes(2, 3).copy()}, "a", "b", transA=1, transB=1)
    add("FusedMatMul", {"a": d.floats(4, 2, 3, 5), "b": d.floats(5, 2, 3, 6)}, "a", "b", transBatchA=1, transBatchB=1)
    add("TransposeMatMul", {"a": a, "b": d.floats(6, 5)}, "a", transB=1)
    image = {"x": d.floats(1, 4, 6, 5), "w": d.floats(8, 4, 3, 3), "b": d.floats(8), "z": d.floats(1, 8, 6, 5)}
    same: dict[str, Any] = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    add("FusedConv", image, "x", "z", activation="Relu", **same)
    for name, values in (("LeakyRelu", [0.1]), ("Clip", [-0.5, 0.7]), ("HardSigmoid", [0.3, 0.4])):
        add("FusedConv", {**image, "z": None}, "x", activation=name, activation_params=values, **same)
    gemm = {"a": d.floats(4, 6), "b": d.floats(6, 7), "c": d.floats(7)}
    add("FusedConv", image, "x", "z", activation="Tanh", **same)
    add("FusedGemm", gemm, "a", activation="LeakyRelu", activation_alpha=0.2, alpha=0.5, beta=0.5)
    add("FusedGemm", {**gemm, "b": d.floats(7, 6)}, "a", activation="Sigmoid", transB=1)
    skip = {"x": x, "s": d.floats(2, 3, 8), "g": d.floats(8)}
    add("SkipLayerNormalization", {**skip, "b": d.floats(8), "bias": d.floats(8)}, "x", "s", epsilon=1e-3)
    add("SkipLayerNormalization", {**skip, "s": d.floats(3, 8)}, "x", "s")
    add("SkipSimplifiedLayerNormalization", {**skip, "bias": d.floats(8)}, "x", "s", epsilon=1e-3)
    names = {
        "ids": d.rng.integers(0, 11, (2, 5)).astype(np.int32),
        "seg": d.rng.integers(0, 2, (2, 5)).astype(np.int32),
    }
    tables = {
        "word": d.floats(11, 8),
        "pos": d.floats(9, 8),
        "segments": d.floats(2, 8),
        "g": d.floats(8),
        "b": d.floats(8),
    }
    mask = {"mask": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)}
    add("EmbedLayerNormalization", {**names, **tables, **mask}, "ids", "seg", "mask", outputs=3, epsilon=1e-5)
    none = {"ids": names["ids"], "seg": None, **tables, "segments": None, "mask": None}
    place = {"place": d.rng.integers(0, 9, (2, 5)).astype(np.int32)}
    add("EmbedLayerNormalization", {**none, **place}, "ids", "place", outputs=2)
    for case in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"):
        found.append(Case(case, skip, ("x", "s"), ("y", "", "", "total")))
    return found


def attention_cases(seed: int) -> list[Case]:
    """Return cases of attention."""
    d = Draw(seed)
    found: list[Case] = []

    def add(operator: str, operands: Mapping[str, Array | None], *inputs: str, outputs: int = 1, **attrs: Any) -> None:
        names = ("y", "present_k", "present_v", "qk")[:outputs]
        found.append(Case(operator, operands, inputs, names, attributes=attrs, tolerance=5e-5))

    batch, rows, heads, depth, past = 2, 5, 2, 8, 3
    width = heads * depth

    def lengths(*values: int) -> Array:
        return np.array(values, np.int32)

    own = {"x": d.floats(batch, rows, 12), "w": d.floats(12, 3 * width) / 4, "b": d.floats(3 * width)}
    masks: list[Array | None] = [
        None, lengths(5, 3), lengths(5, 3, 1, 0), np.array([[1] * 5, [1, 1, 1, 0, 0]], np.int32),
        (d.rng.integers(0, 2, (batch, rows, rows)) | np.eye(rows, dtype=np.int64)).astype(np.int32),
    ]  # fmt: skip
    for mask in masks:
        add("Attention", {**own, "mask": mask}, "x", *(["mask"] if mask is not None else []), num_heads=heads)
    cached = {**own, "mask": None, "past": d.floats(2, batch, heads, past, depth)}
    add("Attention", cached, "x", "past", outputs=2, num_heads=heads, unidirectional=1, scale=0.2)
    biased = {**cached, "past": None, "bias": d.floats(1, heads, rows, rows)}
    add("Attention", biased, "x", "bias", num_heads=heads, unidirectional=1, mask_filter_value=-5000.0)
    other = {**own, "w": d.floats(12, 2 * width + 6) / 4, "b": d.floats(2 * width + 6)}
    add("Attention", other, "x", num_heads=heads, qkv_hidden_sizes=[width, width, 6])

    stored: dict[str, Array | None] = {
        "x": d.bytes(batch, rows, 12), "w": d.bytes(12, 3 * width, dtype="int8"), "b": d.floats(3 * width),
        "xs": d.scale(), "ws": d.scale(), "mask": lengths(5, 3), "xz": d.point(), "wz": np.zeros((), np.int8),
    }  # fmt: skip
    columns = {"ws": d.scale(3 * width), "wz": np.zeros(3 * width, np.int8)}
    add("QAttention", stored, "x", "mask", num_heads=heads)
    add("QAttention", {**stored, **columns}, "x", "mask", num_heads=heads)
    past_state = {"past": d.floats(2, batch, heads, past, depth)}
    without = {**stored, "mask": None, **past_state}
    add("QAttention", without, "x", "past", outputs=2, num_heads=heads, unidirectional=1)

    q, k, v = (d.floats(batch, n, width) for n in (rows, rows + 2, rows + 2))
    three: dict[str, Array | None] = {"q": q, "k": k, "v": v}
    add("MultiHeadAttention", three, "q", "k", "v", num_heads=heads)
    padded = {**three, "b": d.floats(3 * width), "mask": np.array([[1] * 7, [1] * 4 + [0] * 3], np.int32)}
    add("MultiHeadAttention", padded, "q", "k", "v", "mask", num_heads=heads, scale=0.3)
    same = {"q": q, "k": d.floats(batch, rows, width), "v": d.floats(batch, rows, width), "b": None, "mask": None}
    add("MultiHeadAttention", {**same, "bias": d.floats(1, heads, rows, rows)}, "q", "k", "v", "bias", num_heads=heads)
    state = {"pk": d.floats(batch, heads, past, depth), "pv": d.floats(batch, heads, past, depth)}
    add(
        "MultiHeadAttention", {**same, "bias": None, **state}, "q", "k", "v", "pk", "pv",
        outputs=3, num_heads=heads, unidirectional=1,
    )  # fmt: skip
    add("MultiHeadAttention", same, "q", "k", "v", outputs=4, num_heads=heads)
    encoded = {"q": q, "k": d.floats(batch, heads, 7, depth), "v": d.floats(batch, heads, 7, depth)}
    add("MultiHeadAttention", encoded, "q", "k", "v", num_heads=heads)

    table = [np.cos(a := d.rng.uniform(0, 6, (16, depth // 2))).astype(np.float32), np.sin(a).astype(np.float32)]
    angles = dict(zip(("cos", "sin"), table, strict=True))
    x3, places = d.floats(batch, rows, width), d.rng.integers(0, 16, (batch, rows))
    for interleaved in (0, 1):
        add("RotaryEmbedding", {"x": x3, "p": places, **angles}, "x", "p", interleaved=interleaved)
        four = {"x": d.floats(batch, heads, rows, depth), "p": np.array([3]), **angles}
        add("RotaryEmbedding", four, "x", "p", interleaved=interleaved)
    part = {"cos": angles["cos"][:, :2].copy(), "sin": angles["sin"][:, :2].copy()}
    add("RotaryEmbedding", {"x": x3, "p": places, **part}, "x", "p", num_heads=heads, rotary_embedding_dim=4)

    wide = d.rng.uniform(0, 6, (16, 8))
    found += _group_query(d, {"cos": np.cos(wide).astype(np.float32), "sin": np.sin(wide).astype(np.float32)})
    return found


def _group_query(d: Draw, angles: Mapping[str, Array]) -> list[Case]:
    batch, heads, groups, depth = 2, 4, 2, 16
    found: list[Case] = []

    def add(
        rows: int, past: int, total: int, ends: list[int], extra: Mapping[str, Array] | None = None, **attrs: Any
    ) -> None:
        extra = extra or {}
        packed = attrs.pop("packed", False)
        widths = [(heads + 2 * groups) * depth] if packed else [heads * depth, groups * depth, groups * depth]
        three: list[Array | None] = [d.floats(batch, rows, width) for width in widths]
        three += [None] * (3 - len(three))
        operands: dict[str, Array | None] = dict(zip(("q", "k", "v"), three, strict=True))
        cache = [d.floats(batch, groups, past, depth) if past else None for _ in range(2)]
        operands |= {
            "pk": cache[0],
            "pv": cache[1],
            "ends": np.array(ends, np.int32),
            "total": np.array(total, np.int32),
        }
        rotary = attrs.get("do_rotary")
        operands |= {"cos": angles["cos"] if rotary else None, "sin": angles["sin"] if rotary else None}
        operands |= {name: extra.get(name) for name in ("places", "bias", "sink", "ks", "vs", "qn", "kn")}
        names = [n for n in ("q", "k", "v", "pk", "pv", "ends", "places", "bias") if operands[n] is not None]
        while operands[list(operands)[-1]] is None:
            operands.popitem()
        attributes = {"num_heads": heads, "kv_num_heads": groups, **attrs}
        outputs = ("y", "k1", "v1")
        found.append(
            Case(
                "GroupQueryAttention", operands, tuple(names), outputs, 0, attributes, 5e-5, tuple(e + 1 for e in ends)
            )
        )

    add(5, 0, 5, [4, 4])
    add(5, 0, 5, [4, 4], packed=True, do_rotary=1)
    add(5, 0, 5, [4, 4], do_rotary=1, rotary_interleaved=1, softcap=2.0, local_window_size=2)
    add(1, 6, 7, [6, 6], do_rotary=1, scale=0.2)
    add(1, 6, 7, [6, 3], do_rotary=1)
    add(1, 9, 7, [6, 4], do_rotary=1)
    add(1, 9, 7, [6, 6], local_window_size=3)
    add(5, 0, 5, [4, 4], {"sink": d.floats(heads)})
    add(5, 0, 5, [4, 4], smooth_softmax=1)
    add(5, 0, 5, [4, 4], {"bias": d.floats(1, heads, 5, 5)})
    return found


def weight_only_cases(seed: int) -> list[Case]:
    """Return cases of products by weights of a few bits."""
    d = Draw(seed)
    found: list[Case] = []
    for bits in (2, 4, 8):
        for number, (rows, depth, columns, block) in enumerate(((1, 64, 24, 32), (5, 100, 17, 16), (20, 64, 33, 32))):
            blocks = -(-depth // block)
            operands: dict[str, Array | None] = {
                "a": d.floats(1, rows, depth), "b": d.bytes(columns, blocks, block * bits // 8),
                "s": d.scale(columns, blocks), "z": None, "g": None, "bias": d.floats(columns) if number else None,
            }  # fmt: skip
            if number == 0:
                operands["z"] = d.bytes(columns, -(-blocks * bits // 8))
            attributes = {"K": depth, "N": columns, "bits": bits, "block_size": block}
            found.append(Case("MatMulNBits", operands, ("a",), attributes=attributes, tolerance=1e-4))
    return found


def table_cases(seed: int) -> list[Case]:
    """Return cases of rows of tables of a few bits: packed, then one number an element and any axes."""
    d = Draw(seed)
    found: list[Case] = []
    indices = {"i": d.rng.integers(-11, 11, (2, 3))}

    def add(operands: dict[str, Array | None], **attributes: Any) -> None:
        found.append(Case("GatherBlockQuantized", operands, ("i",), attributes=attributes))

    for bits in (2, 4, 8):
        for width, block in ((64, 32), (80, 16), (40, 64)):
            packed, scales = d.bytes(11, 2, width * bits // 8), d.scale(11, 2, -(-width // block))
            points = d.bytes(11, 2, -(-scales.shape[2] * bits // 8))
            options = {"bits": bits, "block_size": block, "quantize_axis": -1}
            add({"x": packed, **indices, "s": scales}, **options)
            add({"x": packed, **indices, "s": scales.astype(np.float16), "z": points}, **options)
    for kind, least in ((ml_dtypes.uint4, 0), (ml_dtypes.int4, -8)):
        for along, blocked in ((0, 1), (1, 0), (2, 1), (1, 1)):
            shape = [11 if axis == along else 40 if axis == blocked else 3 for axis in range(3)]
            sizes = [-(-size // 16) if axis == blocked else size for axis, size in enumerate(shape)]
            data, points = (d.rng.integers(least, least + 16, dims).astype(kind) for dims in (shape, sizes))
            options = {"block_size": 16, "gather_axis": along, "quantize_axis": blocked}
            add({"x": data, **indices, "s": d.scale(*sizes)}, **options)
            add({"x": data, **indices, "s": d.scale(*sizes), "z": points}, **options)
    return found


CASES: dict[str, Callable[[int], list[Case]]] = {
    "quantised": quantised_cases,
    "dynamic": dynamic_cases,
    "recurrent": recurrent_cases,
    "fused": fused_cases,
    "attention": attention_cases,
    "weight only": weight_only_cases,
    "tables": table_cases,
}
