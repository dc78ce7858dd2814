"""The page of supported primitives, docs/primitives.md, generated from the offers of primitive descriptors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from poolrt.workers.engines.target import Target
from poolrt.workers.implementations.contract import REFERENCE
from tests.workers.implementations.reference.drawing import LAST_PLACE

from .descriptors import MAKERS, TYPES
from .gradients import BACKWARD
from .problems import DIFFERENCES, FAST, Cell
from .table import TARGETS, counted, offered

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "primitives.md"
#: Names of implementations, or of data types.
Names = tuple[str, ...]
COMMAND: Final = "python -m tests.workers.support"

_HEAD: Final = f"""# Primitives

<!-- Written by `{COMMAND}`. -->

The operations of each engine kind, with their implementations, best first. `PrimitiveDesc` takes the first implementation
that accepts a descriptor, and `next_impl` moves to the next. The tables list the candidates of primitive descriptors for
descriptors of odd shapes in many layouts. The number after an implementation counts the descriptors that it accepts; the
tests compute all of them. Layouts, sizes and attributes decide whether it accepts a given one. The reference
implementations (`ref:`) accept every layout: plain, permuted, blocked in any way, with strides. `nested:matmul` consists of
other primitives, reorders and products, which the cache holds under keys of their own. `nested:f32` converts operands to f32
and the results back, by reorders, and computes with the fastest implementation for f32; it converts weights in every execution.

The data type is that of all tensors with data, with two exceptions for products: weights of u8 and bool are s8, and
results of s8, u8 and bool are s32. Tensors may also differ in type; the reference implementations accept any mixture.
Statistics, scales and shifts of normalisations are f32.

The tables omit reorders between engines. Such a reorder accepts the same descriptors as a reorder within the engine that
computes it. Its implementation is `opencl:cross_engine` on a device and `native:cross_engine` on the host.
They omit kernels of users too, which graphs call as `user:native` and `user:opencl` ([calls.md](calls.md)).
"""

#: Engine and operation -> why f32 has the plain implementation alone.
_REASONS: Final = {
    **dict.fromkeys(
        (
            ("opencl", kind)
            for kind in (
                "gather", "select", "pad", "scatter", "shuffle", "prelu", "resampling", "grid_sample", "roi_align",
                "tree_leaves", "rotary", "fold",
            )
        ),
        "each element of dst is read from its places and written once: there are no sums that work-items could share",
    ),
    **dict.fromkeys(
        (("opencl", kind) for kind in ("arg_reduction", "top_k", "cumulative_sum", "non_max_suppression", "non_zero")),
        "numbers along a dimension are compared or added in order, by one work-item",
    ),
    **dict.fromkeys(
        (
            ("opencl", kind)
            for kind in (
                "deconvolution", "reduction", "layer_normalization", "group_normalization", "attention", "dft",
                "matmul_nbits", "dynamic_quantise", "dynamic_lstm", "determinant",
            )
        ),
        "a faster kernel shares sums in a work-group; there was no device to measure one on but PoCL's, which is the processor",
    ),
    **dict.fromkeys(
        (("opencl", kind) for kind in ("pooling", "eltwise", "batch_normalization", "softmax")),
        "only gradients: graphs, which run on devices, have none",
    ),
}  # fmt: skip
_PLAIN: Final = """
## f32 by the plain implementation alone

Operations of which nothing but `ref:` takes f32, and why. Kernels of `ref:` are compiled, for the processor or by OpenCL. A graph
on a device can name the engine `cpu` for such a step, and has the native implementation there.

| engine | operation | propagation | reason |
| --- | --- | --- | --- |
{rows}
"""

_VERIFIED: Final = """
## How each cell is verified

The tests compute every cell of these tables with each implementation in it, and compare with plain NumPy in float64. That
NumPy code follows the definitions; other tests compare it with ONNX Runtime, SciPy and finite differences. Shapes are odd:
sizes that are no multiples of blocks, groups, depthwise, dilations, paddings that differ between the two sides, 1 to 3
spatial dimensions, tensors without elements. Layouts are row-major, left open, permuted, blocked, with gaps between
elements, and different for each tensor. Padding of blocked layouts must be zero; gaps and inputs must be unchanged; nothing
may be written past the end. On the CPU, work cut into 1, 2 and 7 parts must give the same bytes.

Results are compared by benchdnn's rule: the expected value is rounded to the data type, then errors are relative. They are
absolute if the expected value is below 1e-5, or below 1 for recurrent networks in f32. Infinities and NaN must agree. Errors of
fast gradients are relative to the sum of the magnitudes of what they add up, if that is larger.
Integers are exact, and so are the fast f32 implementations on values whose sums f32 can represent. Fast implementations in other
types are as near as the reference. The allowed errors:

| implementations | type | error |
| --- | --- | --- |
{limits}

Further tests draw shapes, types, layouts and attributes (chains, scales, zero points) at random for every reference
implementation, and test the fast implementations on more shapes and every instruction set.

## Gradients

`backward_data` computes the gradient of src, `backward_weights` those of weights and bias, `backward` those of src, scale
and shift. The tests compare the implementations' results in f64 with central differences through the forward
implementations, and with PyTorch's autograd if it is installed:

{backward}.

Matmul has no backward of its own, as in oneDNN. With errors `diff_dst` (.., M, N), its gradients are matmuls on the same
bytes, whose descriptors exchange the last two dimensions (a tag `ab` becomes `ba`, strides likewise); nothing is copied:

| gradient | src | weights | dst |
| --- | --- | --- | --- |
| of src | diff_dst (M, N) | weights, as (N, K) | diff_src (M, K) |
| of weights | src, as (K, M) | diff_dst (M, N) | diff_weights (K, N) |

The gradient of the bias is a reduction of diff_dst by `sum`, and so is the further step after broadcast batch dimensions.
`native:tiles` accepts the first as it is, and the second after a reorder of src into rows.
"""


def page() -> str:
    """Return the text of the page."""
    limits = [(f"reference, {kind}", "f64", limit) for kind, limit in DIFFERENCES.items()]
    limits += [("reference", dtype, limit) for dtype, limit in LAST_PLACE.items()]
    limits += [(f"fast, {kind}", "f32", limit) for kind, limit in FAST.items()]
    lines = "\n".join(f"| {name} | {dtype} | {limit:.1e} |" for name, dtype, limit in limits)
    backward = ", ".join(dict.fromkeys(kind for kind, _ in BACKWARD))
    sections = (_section(engine, target) for engine, target in TARGETS.items())
    return (
        _HEAD
        + "".join(sections)
        + _PLAIN.format(rows="\n".join(_plain_rows()))
        + _VERIFIED.format(limits=lines, backward=backward)
    )


def plain_alone() -> dict[tuple[str, str], list[str]]:
    """Return the operations of each engine of which the plain implementation alone takes f32, with the propagation kinds."""
    found: dict[tuple[str, str], list[str]] = {}
    for engine, target in TARGETS.items():
        for kind, (props, _) in MAKERS.items():
            for prop in props:
                if all(name.startswith(REFERENCE) for name in offered(Cell(kind, prop, "f32"), target)):
                    found.setdefault((engine, kind), []).append(prop)
    return found


def reasons() -> dict[tuple[str, str], str]:
    """Return why, for each engine and operation."""
    return dict(_REASONS)


def _plain_rows() -> Iterator[str]:
    alone = plain_alone()
    for engine in TARGETS:
        of_engine = {kind: props for (its, kind), props in alone.items() if its == engine}
        if not of_engine:
            yield f"| {engine} | none | | |"
        for kind, props in of_engine.items():
            yield f"| {engine} | {kind} | {', '.join(props)} | {_REASONS[engine, kind]} |"


def _section(engine: str, target: Target) -> str:
    titles = {
        "cpu": "On x86-64-v4 with VNNI, BF16 and AMX; processors without these have all except those that end with `_vnni`, "
        "`_bf16` or `_amx`. Those with registers of 256 bits also have `native:integer_winograd`, `native:packed_bytes` and "
        "`native:matmul_nbits_bytes`, and with AVX-VNNI those with `_vnni` but `native:depthwise_integer_vnni` and "
        "`native:matmul_nbits_vnni`.",
        "opencl": "On PoCL; a device without double precision has no f64, s64 and u64.",
    }
    head = (f"\n## {engine}\n", f"{titles[engine]}\n", "| operation | propagation | data types | implementations |")
    rows = [row for kind in MAKERS for row in _rows(kind, target)]
    return "\n".join((*head, "| --- | --- | --- | --- |", *rows)) + "\n"


def _rows(kind: str, target: Target) -> Iterator[str]:
    """Yield the rows of an operation; propagation kinds with equal offers share rows, and so do data types."""
    by_answer: dict[tuple[tuple[Names, Names], ...], list[str]] = {}
    for prop in MAKERS[kind][0]:
        groups: dict[Names, list[str]] = {}
        for dtype in TYPES:
            groups.setdefault(offered(Cell(kind, prop, dtype), target), []).append(dtype)
        answer = tuple((names, tuple(types)) for names, types in groups.items())
        by_answer.setdefault(answer, []).append(prop)
    for answer, props in by_answer.items():
        # The data types with most implementations come first.
        for names, types in sorted(answer, key=lambda group: -len(group[0])):
            taken: Counter[str] = Counter()
            for prop in props:
                for dtype in types:
                    taken.update(dict(counted(Cell(kind, prop, dtype), target)))
            choice = ", ".join(f"`{name}` {taken[name]}" for name in names) or "none"
            yield f"| {kind} | {', '.join(props)} | {' '.join(types)} | {choice} |"
