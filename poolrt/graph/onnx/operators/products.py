"""Matrix products."""

from __future__ import annotations

import math
import string
from collections.abc import Mapping
from typing import Final

import numpy as np

from ...values import Value
from ..call import NodeCall, Operator
from ..element_types import FLOATS
from ..folding import Array
from ..tensors import WRAPS_AS, Operand, Tensors, dtype_of
from .integer_products import integer_product


def gemm(call: NodeCall) -> Operand:
    """Compute alpha * op(A) * op(B) + beta * C: an inner product if B is constant and C a constant row."""
    alpha, beta = call.number("alpha", 1.0), call.number("beta", 1.0)
    left, right = call.operand(0), call.operand(1)
    dtype = dtype_of(left)
    turned = bool(call.integer("transB", 0))
    if len(right.shape) != 2:
        raise call.malformed(f"input 1 has shape {tuple(right.shape)}; expect a matrix")
    if dtype not in FLOATS and not (float(alpha).is_integer() and float(beta).is_integer()):
        raise call.unsupported("integers times a fraction")
    if call.integer("transA", 0):
        left = call.math.transpose(left, (1, 0))
    extra = call.tensor(2) if call.has(2) and beta != 0.0 else None
    outputs = right.shape[0 if turned else 1]
    row = None if extra is None or dtype not in ("float32", "float64") else _row(call, extra, outputs, beta)
    if isinstance(right, Value) or dtype not in ("float32", "float64") or 0 in (*left.shape, *right.shape):
        right = call.math.transpose(right, (1, 0)) if turned else right
        result = _scaled(call, call.math.matmul(left, right), alpha)
        row = None
    else:
        weights = right if turned else right.T
        if alpha != 1.0:
            weights = call.folding.combine(np.multiply, weights, np.asarray(alpha, weights.dtype))
        result = _inner_product(call, left, weights, row)
    if extra is None or row is not None:
        return result
    return call.math.binary(result, _scaled(call, extra, beta), "wrap_add" if dtype in WRAPS_AS else "add")


def _inner_product(call: NodeCall, left: Operand, weights: Array, row: Array | None) -> Operand:
    known = None if isinstance(left, Value) else call.folding.multiply(left, weights.T)
    if known is None:
        return call.graph.inner_product(call.math.value(left), weights, row, name=call.name)
    return known if row is None else call.folding.combine(np.add, known, row)


def matmul(call: NodeCall) -> Operand:
    """Multiply as NumPy's matmul does, operands of rank 1 included."""
    return call.math.matmul(call.operand(0), call.operand(1))


def matmul_integer(call: NodeCall) -> Operand:
    """Multiply integers less their zero points, as int32."""
    given = call.tensor(0), call.optional(2), call.tensor(1), call.optional(3)
    if (product := integer_product(call, *given)) is not None:
        return product
    left, right = (call.math.cast(call.tensor(index), "int32") for index in range(2))
    if call.has(2):
        left = call.math.binary(left, _zero_points(call, 2, left, -2), "sub")
    if call.has(3):
        right = call.math.binary(right, _zero_points(call, 3, right, -1), "sub")
    return call.math.matmul(left, right, "int32")


def _zero_points(call: NodeCall, index: int, operand: Operand, axis: int) -> Operand:
    """Return zero points, one for each row or column if there are several."""
    zero = call.math.cast(call.tensor(index), "int32")
    if len(zero.shape) != 1 or len(operand.shape) < 2 or zero.shape[0] == 1:
        return zero
    return call.math.unsqueeze(zero, (-1,)) if axis == -2 else zero


def einsum(call: NodeCall) -> Operand:
    """Multiply and add up along named dimensions, two operands at a time by one matrix product."""
    equation = call.text("equation", "").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    operands = [call.tensor(index) for index in range(len(call.operands))]
    if "..." in equation and len(terms) == len(operands):
        terms, right = _named(call, terms, right if arrow else None, operands)
        arrow = "->"
    letters = "".join(terms)
    if (letters and not letters.isalpha()) or len(terms) != len(operands):
        raise call.malformed(f"equation {equation!r:.80} does not fit {len(operands)} inputs")
    if not arrow:
        right = "".join(sorted(each for each in set(letters) if letters.count(each) == 1))
    for number, (term, operand) in enumerate(zip(terms, operands, strict=True)):
        if len(term) == len(operand.shape):
            operands[number], terms[number] = _diagonal(call.math, operand, term)
    sizes: dict[str, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        if len(term) != len(operand.shape) or any(
            sizes.setdefault(n, d) != d for n, d in zip(term, operand.shape, strict=True)
        ):
            raise call.malformed(f"equation {equation!r:.80} does not fit the shapes")
    if len(set(right)) != len(right) or not set(right) <= set(letters):
        raise call.malformed(f"equation {equation!r:.80}: the letters of its result")
    current, term = operands[0], terms[0]
    for position in range(1, len(operands)):
        later = set(right).union(*terms[position + 1 :])
        current, term = _contract(call, (current, term), (operands[position], terms[position]), later)
    dropped = [axis for axis, letter in enumerate(term) if letter not in right]
    if dropped:
        current = call.math.reduce(current, "sum", dropped, False)
        term = "".join(letter for letter in term if letter in right)
    return call.math.transpose(current, [term.index(letter) for letter in right])


def _named(call: NodeCall, terms: list[str], right: str | None, operands: list[Operand]) -> tuple[list[str], str]:
    """Return the terms with letters in the place of each ellipsis, and operands broadcast along these dimensions."""
    free = [each for each in string.ascii_letters if each not in "".join(terms) + (right or "")]
    counts = [len(each.shape) - len(term.replace("...", "")) for term, each in zip(terms, operands, strict=True)]
    most = max((count for term, count in zip(terms, counts, strict=True) if "..." in term), default=0)
    if min(counts) < 0 or most > len(free):
        raise call.malformed("the equation does not fit the shapes")
    letters, sizes = "".join(free[:most]), dict.fromkeys(free[:most], 1)
    made = [term.replace("...", letters[most - count :]) for term, count in zip(terms, counts, strict=True)]
    for term, operand in zip(made, operands, strict=True):
        for letter, size in zip(term, operand.shape, strict=False):
            if letter in sizes:
                sizes[letter] = max(sizes[letter], size)
    for number, (term, operand) in enumerate(zip(made, operands, strict=True)):
        wide = [sizes.get(letter, size) for letter, size in zip(term, operand.shape, strict=False)]
        if len(wide) == len(operand.shape):
            operands[number] = call.math.expand(operand, wide)
    if right is None:
        named = "".join(terms).replace("...", "")
        right = "..." + "".join(sorted(each for each in set(named) if named.count(each) == 1))
    return made, right.replace("...", letters)


def _diagonal(m: Tensors, operand: Operand, term: str) -> tuple[Operand, str]:
    """Return the elements whose indices are equal along dimensions of one letter, which are then one dimension."""
    for letter in dict.fromkeys(term):
        while term.count(letter) > 1:
            first, second = term.index(letter), term.rindex(letter)
            size = operand.shape[first]
            if operand.shape[second] != size:
                raise ValueError(f"dimensions {letter} of {tuple(operand.shape)} differ")
            order = [axis for axis in range(len(term)) if axis not in (first, second)]
            outer = [operand.shape[axis] for axis in order]
            flat = m.reshape(m.transpose(operand, [*order, first, second]), (*outer, size * size))
            operand = m.slice(flat, [0], [size * size], [len(outer)], [size + 1])
            term = "".join(term[axis] for axis in order) + letter
    return operand, term


def _contract(
    call: NodeCall, first: tuple[Operand, str], second: tuple[Operand, str], later: set[str]
) -> tuple[Operand, str]:
    """Multiply two tensors and add up along the letters that neither the result nor a later term has."""
    m = call.math
    (left, one), (right, two) = first, second
    summed = [each for each in one if each in two and each not in later]
    batch = [each for each in one if each in two and each in later]
    rows, columns = [e for e in one if e not in two], [e for e in two if e not in one]
    size = dict(zip(one + two, (*left.shape, *right.shape), strict=True))

    def arranged(operand: Operand, term: str, order: list[str], dims: tuple[int, ...]) -> Operand:
        return m.reshape(m.transpose(operand, [term.index(each) for each in order]), dims)

    def count(names: list[str]) -> int:
        return math.prod(size[each] for each in names)

    a = arranged(left, one, [*batch, *rows, *summed], (count(batch), count(rows), count(summed)))
    b = arranged(right, two, [*batch, *summed, *columns], (count(batch), count(summed), count(columns)))
    order = [*batch, *rows, *columns]
    return m.reshape(m.matmul(a, b), [size[each] for each in order]), "".join(order)


def _row(call: NodeCall, extra: Operand, outputs: int, beta: float) -> Array | None:
    """Return C as a bias if it is constant and the same for every row, else None."""
    if isinstance(extra, Value) or extra.size not in (1, outputs) or extra.shape[-1:] not in ((), (1,), (outputs,)):
        return None
    if extra.size == outputs and extra.shape[-1:] != (outputs,):
        return None
    scaled = extra if beta == 1.0 else call.folding.combine(np.multiply, extra, np.asarray(beta, extra.dtype))
    row = call.folding.reshape(scaled, (-1,))
    return row if row.size == outputs else call.folding.fill(row, (outputs,))


def _scaled(call: NodeCall, operand: Operand, factor: float) -> Operand:
    dtype = dtype_of(operand)
    if factor == 1.0:
        return operand
    if dtype in FLOATS:
        return call.math.eltwise(operand, "linear", factor)
    # The factor modulo 2**64, whose low bits are those of the type: products wrap.
    whole = np.array(int(factor) % 2**64, np.uint64).astype(dtype)
    return call.math.binary(operand, whole, "wrap_mul" if dtype in WRAPS_AS else "mul")


OPERATORS: Final[Mapping[str, Operator]] = {
    "Gemm": gemm,
    "MatMul": matmul,
    "MatMulInteger": matmul_integer,
    "Einsum": einsum,
}
