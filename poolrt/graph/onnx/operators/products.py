"""Matrix products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ...values import Value
from ..call import NodeCall, Operand, Operator


def gemm(call: NodeCall) -> Operand:
    """Compute alpha * op(A) * op(B) + beta * C: an inner product if B is constant and C a constant row."""
    alpha, beta = call.number("alpha", 1.0), call.number("beta", 1.0)
    left, right = call.tensor(0), call.tensor(1)
    turned = bool(call.integer("transB", 0))
    if call.integer("transA", 0):
        left = call.graph.transpose(left, (1, 0), name=call.name_part("A"))
    if len(right.shape) != 2:
        raise call.malformed(f"input 1 has shape {tuple(right.shape)}; expect a matrix")
    extra = call.tensor(2) if call.has(2) and beta != 0.0 else None
    outputs = right.shape[0 if turned else 1]
    row = None if extra is None else _row(call, extra, outputs, beta)
    if isinstance(right, Value):
        right = call.graph.transpose(right, (1, 0), name=call.name_part("B")) if turned else right
        result = _scaled(call, call.graph.matmul(left, right, name=call.name), alpha, "alpha")
        row = None
    else:
        weights = right if turned else right.T
        weights = weights if alpha == 1.0 else call.folding.combine(np.multiply, weights, np.asarray(alpha, np.float32))
        result = call.graph.inner_product(left, weights, row, name=call.name)
    if extra is None or row is not None:
        return result
    return call.graph.binary(result, _scaled(call, extra, beta, "beta"), "add", name=call.name_part("C"))


def matmul(call: NodeCall) -> Operand:
    """Multiply as NumPy's matmul does, operands of rank 1 included."""
    left, right = call.tensor(0), call.tensor(1)
    rows, columns = len(left.shape) == 1, len(right.shape) == 1
    if rows:
        left = call.graph.unsqueeze(left, 0, name=call.name_part("A"))
    if columns:
        right = call.graph.unsqueeze(right, 1, name=call.name_part("B"))
    result = call.graph.matmul(left, right, name=call.name)
    dropped = [axis for axis, one in ((-2, rows), (-1, columns)) if one]
    return call.graph.squeeze(result, dropped, name=call.name_part("squeeze")) if dropped else result


def _row(call: NodeCall, extra: Operand, outputs: int, beta: float) -> np.ndarray[Any, Any] | None:
    """Return C as a bias if it is constant and the same for every row, else None."""
    if isinstance(extra, Value) or extra.size not in (1, outputs) or extra.shape[-1:] not in ((), (1,), (outputs,)):
        return None
    if extra.size == outputs and extra.shape[-1:] != (outputs,):
        return None
    scaled = extra if beta == 1.0 else call.folding.combine(np.multiply, extra, np.asarray(beta, np.float32))
    row = call.folding.reshape(scaled, (-1,))
    return row if row.size == outputs else call.folding.fill(row, (outputs,))


def _scaled(call: NodeCall, operand: Operand, factor: float, part: str) -> Operand:
    return operand if factor == 1.0 else call.graph.eltwise(operand, "linear", factor, name=call.name_part(part))


OPERATORS: Final[Mapping[str, Operator]] = {"Gemm": gemm, "MatMul": matmul}
