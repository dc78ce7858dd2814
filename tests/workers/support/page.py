"""The page that tells what is supported: docs/primitives.md, written from what primitive descriptors offer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from poolrt.workers.engines.target import Target
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

What each engine kind computes, and with which implementations, best first: `PrimitiveDesc` takes the first one that
accepts a descriptor, `next_impl` goes on to the next. The tables are what primitive descriptors offer for descriptors of
odd shapes in many layouts; behind each implementation is the number of those that it takes, all of which the tests
compute. Whether it takes a given one depends on layouts, sizes and attributes. The reference implementations (`ref:`)
take every layout: plain, permuted, blocked in any way, with strides. `nested:matmul` is made of other primitives, reorders
and products, which come from the cache under keys of their own.

A data type is that of all tensors that hold data, with two exceptions: of products, weights of u8 and bool are s8, and
results of s8, u8 and bool are s32. Tensors may also differ in type; the reference implementations take any mixture.
Statistics, scales and shifts of normalisations are f32.

Not in the tables: a reorder between engines takes what a reorder within the one that computes does. On a device that is
`opencl:crossing`, on the host instead `native:crossing`.
"""

_VERIFIED: Final = """
## How each cell is verified

The tests compute every cell of these tables with each implementation in it, and compare with plain NumPy in float64,
written from the definitions and itself held to ONNX Runtime, SciPy and finite differences. Shapes are odd: sizes that
are no multiples of blocks, groups, depthwise, dilations, paddings unlike on both sides, 1 to 3 spatial dimensions, tensors
without elements. Layouts are row-major, left open, permuted, blocked, with gaps between elements, and each tensor in
another one. Padding of blocked layouts must be zero, gaps and whatever is only read untouched, nothing written behind the
end; on the CPU, work cut into 1, 2 and 7 parts must give the same bytes.

Results are compared by benchdnn's rule: what is expected is rounded to the data type, then errors are relative (absolute
where less than 1e-5 is expected, of recurrent networks in f32 less than 1); infinities and NaN agree. Integers are exact,
and so is what is made for speed in f32, on values whose sums f32 holds. What may differ, and by how much:

| implementations | type | error |
| --- | --- | --- |
{limits}

Further tests draw shapes, types, layouts and attributes (chains, scales, zero points) at random for every reference
implementation, and hold those made for speed to more shapes on every instruction set.

## Gradients

`backward_data` computes the gradient of src, `backward_weights` those of weights and bias, `backward` those of src, scale
and shift. The tests hold what the implementations compute in f64 to central differences through the forward
implementations, and to PyTorch's autograd where it is installed:

{backward}.

Matmul has no backward of its own, as in oneDNN. With errors `diff_dst` (.., M, N), its gradients are matmuls on the same
bytes, described with the last two dimensions exchanged (a tag `ab` as `ba`, strides likewise); nothing is copied:

| gradient | src | weights | dst |
| --- | --- | --- | --- |
| of src | diff_dst (M, N) | weights, as (N, K) | diff_src (M, K) |
| of weights | src, as (K, M) | diff_dst (M, N) | diff_weights (K, N) |

That of the bias is a reduction of diff_dst by `sum`, and so is what follows where batch dimensions were broadcast.
`native:tiles` takes the first as it is, and the second after a reorder of src into rows.
"""


def page() -> str:
    """Return the text of the page."""
    limits = [(f"reference, {kind}", "f64", limit) for kind, limit in DIFFERENCES.items()]
    limits += [("reference", dtype, limit) for dtype, limit in LAST_PLACE.items()]
    limits += [(f"made for speed, {kind}", "f32", limit) for kind, limit in FAST.items()]
    lines = "\n".join(f"| {name} | {dtype} | {limit:.1e} |" for name, dtype, limit in limits)
    backward = ", ".join(dict.fromkeys(kind for kind, _ in BACKWARD))
    sections = (_section(engine, target) for engine, target in TARGETS.items())
    return _HEAD + "".join(sections) + _VERIFIED.format(limits=lines, backward=backward)


def _section(engine: str, target: Target) -> str:
    titles = {
        "cpu": "On x86-64-v4 with VNNI; lower levels have all of these but `native:integer_vnni`.",
        "opencl": "On PoCL; a device without double precision has no f64 and s64.",
    }
    head = (f"\n## {engine}\n", f"{titles[engine]}\n", "| operation | propagation | data types | implementations |")
    rows = [row for kind in MAKERS for row in _rows(kind, target)]
    return "\n".join((*head, "| --- | --- | --- | --- |", *rows)) + "\n"


def _rows(kind: str, target: Target) -> Iterator[str]:
    """Yield rows of an operation: propagation kinds that offer the same are one, and so are data types."""
    by_answer: dict[tuple[tuple[Names, Names], ...], list[str]] = {}
    for prop in MAKERS[kind][0]:
        groups: dict[Names, list[str]] = {}
        for dtype in TYPES:
            groups.setdefault(offered(Cell(kind, prop, dtype), target), []).append(dtype)
        answer = tuple((names, tuple(types)) for names, types in groups.items())
        by_answer.setdefault(answer, []).append(prop)
    for answer, props in by_answer.items():
        # What has most to choose from first.
        for names, types in sorted(answer, key=lambda group: -len(group[0])):
            taken: Counter[str] = Counter()
            for prop in props:
                for dtype in types:
                    taken.update(dict(counted(Cell(kind, prop, dtype), target)))
            choice = ", ".join(f"`{name}` {taken[name]}" for name in names) or "none"
            yield f"| {kind} | {', '.join(props)} | {' '.join(types)} | {choice} |"
