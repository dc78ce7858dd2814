"""Recurrent networks: all steps, layers and directions of a sequence in one work item."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from ...desc import Arg, Gru, Lstm, PrimitiveAttr, Rnn
from ...engines.target import Target
from ...kernels.codes import CELLS, ELTWISE
from ..program import LaunchArgument, Program
from .attributes import refuse_attributes
from .implementation import ReferenceImplementation
from .tables import Tables, as_float32

Op = TypeVar("Op", Rnn, Lstm, Gru)
#: In the kernel's order.
_ARGUMENTS = (
    Arg.SRC, Arg.SRC_1, Arg.SRC_2, Arg.WEIGHTS, Arg.WEIGHTS_1, Arg.WEIGHTS_2, Arg.BIAS, Arg.DST, Arg.DST_1, Arg.DST_2,
)  # fmt: skip
_TYPES = ("f64", "f32", "f16", "bf16")


class _Cell(NamedTuple):
    """The codes of a cell and of its functions of gates, of what is proposed and of c in h; alpha and beta of each."""

    codes: tuple[int, ...]
    constants: tuple[float, ...]


class ReferenceRecurrent(ReferenceImplementation[Op]):
    """Any floating-point types and layouts; states between steps and layers stay float64."""

    def __init__(self, kind: str) -> None:
        self.name = f"ref:{kind}"

    def reject(self, op: Op, attr: PrimitiveAttr, target: Target) -> str | None:
        if not attr.is_plain:
            return f"{op.kind} takes no scales or zero points"
        for desc in op.memories().values():
            if desc.dtype not in _TYPES:
                return f"data type {desc.dtype}"
        return refuse_attributes(op, attr)

    def program(self, op: Op, attr: PrimitiveAttr, target: Target) -> Program:
        tables = Tables(attr)
        described = op.memories()
        records: list[LaunchArgument] = [
            tables.tensor(arg, described[arg]) if arg in described else ("i", 0) for arg in _ARGUMENTS
        ]
        _, directions, channels, _, hidden = op.weights_layer.dims
        steps, batch, _ = op.src_layer.dims
        # Results, then h, c and the reset state, four gates, and the input: all float64.
        part = 8 * (directions * steps * hidden + 7 * hidden + max(channels, hidden))
        cell: _Cell = _cell(op)
        backwards, concat = op.direction == "right2left", op.direction == "bidirectional_concat"
        numbers: list[LaunchArgument] = [("i", number) for number in [*cell.codes, int(backwards), int(concat)]]
        args: tuple[LaunchArgument, ...] = (
            *records,
            *numbers,
            ("s", 0),
            ("i", part),
            *(("f", number) for number in [*cell.constants, float(op.clip)]),
        )
        written = [(arg, described[arg]) for arg in op.outputs()]
        return tables.program("recurrent", args, batch, written, scratchpad=batch * part)


def _cell(op: Rnn | Lstm | Gru) -> _Cell:
    if isinstance(op, Rnn):
        return _Cell((CELLS["rnn"], 0, ELTWISE[op.activation], 0), (0.0, 0.0, as_float32(op.alpha), 0.0, 0.0, 0.0))
    name = "lbr_gru" if isinstance(op, Gru) and op.linear_before_reset else op.kind
    functions = [ELTWISE[each] for each in op.activations]
    constants = [as_float32(number) for both in zip(op.alphas, op.betas, strict=True) for number in both]
    missing = 3 - len(functions)
    return _Cell((CELLS[name], *functions, *[0] * missing), (*constants, *[0.0] * (2 * missing)))
