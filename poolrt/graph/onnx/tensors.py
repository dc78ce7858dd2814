"""Operations on tensors of the graph and on arrays that are known while a model is loaded, written once for both.

An operation of known arrays alone gives a known array: that is how shapes, axes and masks that a model computes come to be
known. All others add nodes to the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np

from ..builder import Graph
from ..shapes import normalize_axes, normalize_axis
from ..values import Value
from .element_types import FLOATS, LIMITS, STORED_TYPES, array_type, number_of
from .folding import Array, Folding

#: A tensor of the graph, or an array that is known while the model is loaded.
Operand: TypeAlias = "Value | Array"

_COMPARISONS: Final = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_ARITHMETIC: Final = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "and": np.logical_and,
    "or": np.logical_or, "xor": np.logical_xor, "mod": np.remainder, "fmod": np.fmod, "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor, "shift_left": np.left_shift, "shift_right": np.right_shift,
}  # fmt: skip
#: Functions of one variable that known arrays have too.
_FUNCTIONS: Final[dict[str, np.ufunc]] = {
    "abs": np.abs, "sqrt": np.sqrt, "exp": np.exp, "log": np.log, "tanh": np.tanh, "round": np.rint, "square": np.square,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "atan": np.arctan, "asin": np.arcsin, "acos": np.arccos,
}  # fmt: skip
_REDUCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "sum": np.sum, "max": np.max, "min": np.min, "mul": np.prod, "mean": np.mean,
}  # fmt: skip
#: Type whose sums, differences and products saturate in a graph -> one that holds their low bits.
WRAPS_AS: Final = {"int32": "uint32", "int8": "int16", "uint8": "uint16"}
#: Reductions of integers that lose high bits.
_WHOLE_NORMS: Final = ("sum", "mul", "norm_lp_sum", "norm_lp_power_p_sum")
#: Functions of elements that norms of an order add up.
_POWERS: Final[dict[float | None, np.ufunc]] = {1.0: np.abs, 2.0: np.square}
#: Elements of a known array that is rearranged element by element, such as one that is sorted.
MOST_SORTED: Final = 1 << 24


class Unavailable(ValueError):
    """An operation is not there for tensors of a graph."""


def dtype_of(operand: Operand) -> str:
    """Return the name of a data type: NumPy's, or bfloat16."""
    return operand.dtype if isinstance(operand, Value) else _name_of(operand.dtype)


@lru_cache(maxsize=64)
def _name_of(dtype: np.dtype[Any]) -> str:
    return str(dtype.name)  # NumPy makes it again each time, which takes 2 us


def shape_of(operand: Operand) -> tuple[int, ...]:
    """Return a shape as plain integers."""
    return tuple(int(size) for size in operand.shape)


class Tensors:
    """Operations for one node of a model; ``name`` returns a name for each graph node that they add.

    Every operation raises ValueError for what it cannot compute.
    """

    def __init__(self, graph: Graph, folding: Folding, name: Callable[[str], str]) -> None:
        self.graph = graph
        self.folding = folding
        self.name = name

    def number(self, value: float, like: Operand) -> Array:
        """Return a number of the data type of an operand."""
        return np.asarray(value, array_dtype(dtype_of(like)))

    def empty(self, dims: Sequence[int], like: Operand) -> Array:
        """Return a tensor without elements: always a known array, because tensors of a graph have some."""
        return np.zeros(tuple(dims), array_dtype(dtype_of(like)))

    def eltwise(self, x: Operand, algorithm: str, alpha: float | None = None, beta: float | None = None) -> Operand:
        """Apply a function of one variable, see `Graph.eltwise`."""
        if algorithm == "linear" and dtype_of(x) == "float64" and not _are_float32(alpha, beta):
            # Parameters of eltwise are float32.
            scaled = x if alpha is None or alpha == 1.0 else self.binary(x, self.number(alpha, x), "mul")
            return self.binary(scaled, self.number(beta, x), "add") if beta else scaled
        if isinstance(x, Value):
            return self.graph.eltwise(x, algorithm, alpha, beta, name=self.name(algorithm))
        if algorithm in _FUNCTIONS and alpha is None and beta is None:
            return self.folding.apply(_FUNCTIONS[algorithm], x)
        if algorithm == "relu" and not alpha and dtype_of(x) != "bool":
            return self.folding.combine(np.maximum, x, self.number(0, x))
        if algorithm == "logistic" and x.dtype.kind == "f":
            one, powers = self.number(1, x), self.folding.apply(np.exp, self.folding.negate(x))
            return self.folding.combine(np.true_divide, one, self.folding.combine(np.add, powers, one))
        return self.graph.eltwise(self.value(x), algorithm, alpha, beta, name=self.name(algorithm))

    def binary(self, a: Operand, b: Operand, algorithm: str) -> Operand:
        """Combine two tensors of one data type, broadcast; comparisons give bool, integers divide towards zero."""
        if dtype_of(a) != dtype_of(b):
            raise ValueError(f"data types {dtype_of(a)} and {dtype_of(b)} differ")
        if not isinstance(a, Value) and not isinstance(b, Value):
            return self._fold_binary(a, b, algorithm)
        if algorithm == "div" and dtype_of(a) not in FLOATS:
            algorithm = "trunc_div"
        self._refuse_empty(a, b)
        dtype = "bool" if algorithm in _COMPARISONS else None
        return self.graph.binary(a, b, algorithm, dtype=dtype, name=self.name(algorithm))

    def _fold_binary(self, a: Array, b: Array, algorithm: str) -> Array:
        if algorithm in _COMPARISONS:
            return self.folding.combine(_COMPARISONS[algorithm], a, b, np.dtype(np.bool_))
        if algorithm == "div":
            return self.folding.divide(a, b)
        if algorithm in ("mod", "fmod") and a.dtype.kind in "iu" and not b.all():
            raise ValueError("an integer is divided by zero")
        if a.dtype == np.bool_ and algorithm in ("add", "sub"):
            raise ValueError(f"{algorithm} of booleans is not defined")
        return self.folding.combine(_ARITHMETIC[algorithm], a, b)

    def floor(self, x: Operand) -> Operand:
        """Round down."""
        if not isinstance(x, Value):
            return self.folding.apply(np.floor, x)
        if dtype_of(x) not in FLOATS:
            return x
        return self.eltwise(x, "floor")

    def ceil(self, x: Operand) -> Operand:
        """Round up."""
        if not isinstance(x, Value):
            return self.folding.apply(np.ceil, x)
        if dtype_of(x) not in FLOATS:
            return x
        return self.eltwise(x, "ceil")

    def logical_not(self, x: Operand) -> Operand:
        """Return whether a bool is false."""
        return self.binary(x, np.asarray(False), "eq")

    def cast(self, x: Operand, dtype: str) -> Operand:
        """Convert as ONNX's Cast: fractions are cut off, and integers lose the high bits that do not fit."""
        given = dtype_of(x)
        if given == dtype:
            return x
        if not isinstance(x, Value):
            return self.folding.cast(x, array_dtype(dtype))
        if dtype in LIMITS and given in FLOATS:
            return self.graph.eltwise(self.value(x), "trunc", dtype=dtype, name=self.name("cast"))
        wraps = dtype in LIMITS and given in LIMITS
        return self.graph.reorder(self.value(x), wraps=wraps, dtype=dtype, name=self.name("cast"))

    def select(self, condition: Operand, a: Operand, b: Operand) -> Operand:
        """Return a where a condition is true, else b; all three are broadcast."""
        if dtype_of(a) != dtype_of(b):
            raise ValueError(f"data types {dtype_of(a)} and {dtype_of(b)} differ")
        if not (isinstance(condition, Value) or isinstance(a, Value) or isinstance(b, Value)):
            return self.folding.select(condition, a, b)
        if not isinstance(condition, Value) and condition.size:
            # Often a model chooses between its own shape and a constant one.
            chosen = a if condition.all() else b if not condition.any() else None
            if chosen is not None:
                return self.expand(chosen, np.broadcast_shapes(condition.shape, shape_of(a), shape_of(b)))
        self._refuse_empty(condition, a, b)
        return self.graph.select(condition, self.value(a), self.value(b), name=self.name("select"))

    def reshape(self, x: Operand, dims: Sequence[int]) -> Operand:
        """Reshape; a size of -1 is inferred, and 0 is a size."""
        if not isinstance(x, Value):
            return self.folding.reshape(x, dims)
        if 0 in dims:
            raise ValueError(f"{x.shape} does not reshape to {tuple(dims)}")
        return x if tuple(dims) == x.shape else self.graph.reshape(x, dims, name=self.name("reshape"))

    def transpose(self, x: Operand, perm: Sequence[int]) -> Operand:
        """Permute dimensions."""
        if isinstance(x, Value):
            return self.graph.transpose(x, perm, name=self.name("transpose"))
        return x.transpose(tuple(normalize_axis(axis, x.ndim, "perm") for axis in perm))

    def squeeze(self, x: Operand, axes: Sequence[int] | None) -> Operand:
        """Drop dimensions of 1."""
        if isinstance(x, Value):
            return self.graph.squeeze(x, axes, name=self.name("squeeze"))
        return np.squeeze(x, None if axes is None else tuple(normalize_axes(axes, x.ndim)))

    def unsqueeze(self, x: Operand, axes: Sequence[int]) -> Operand:
        """Insert dimensions of 1 at axes of the result."""
        if isinstance(x, Value):
            return self.graph.unsqueeze(x, axes, name=self.name("unsqueeze"))
        return np.expand_dims(x, tuple(normalize_axes(axes, x.ndim + len(axes))))

    def expand(self, x: Operand, dims: Sequence[int]) -> Operand:
        """Repeat dimensions of 1 up to a shape, which has at least the rank of x."""
        wanted = tuple(int(size) for size in dims)
        if not isinstance(x, Value):
            return self.folding.broadcast(x, wanted)
        if 0 in wanted:
            np.broadcast_shapes(x.shape, wanted)
            return self.empty(wanted, x)
        return x if wanted == x.shape else self.graph.expand(x, wanted, name=self.name("expand"))

    def slice(
        self, x: Operand, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]
    ) -> Operand:
        """Slice as ONNX does: steps may be negative, ends before the first element, and starts before it mean it then."""
        sizes = shape_of(x)
        index = [slice(None)] * len(sizes)
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
            axis = normalize_axis(axis, len(sizes))
            start = start if step > 0 else max(start, -sizes[axis])
            # An end before the first element, when walking backwards, cannot be written as a Python index.
            index[axis] = slice(start, None if step < 0 and end < -sizes[axis] else end, step)
        if not isinstance(x, Value):
            return x[tuple(index)]
        taken = [range(size)[cut] for size, cut in zip(sizes, index, strict=True)]
        if not all(taken):
            return self.empty([len(each) for each in taken], x)
        cut, turned = [], []
        for axis, each in enumerate(taken):
            if each.step < 0 and len(each) > 1:
                turned.append(axis)
            elif each.step < 0:
                cut.append((axis, each.start, each.start + 1, 1))
            elif each != range(sizes[axis]):
                # As they are given: an end beyond the last element stays one if a run has more of them.
                cut.append((axis, index[axis].start, index[axis].stop, each.step))
        if cut:
            # First, as a view: what turns the other axes round reads less.
            along, first, last, pace = zip(*cut, strict=True)
            x = self.graph.slice(x, first, last, along, pace, name=self.name("slice"))
        for axis in turned:
            x = self.take(x, np.asarray(taken[axis], np.int64), axis)
        return x

    def take(self, x: Operand, indices: Operand, axis: int) -> Operand:
        """Return the elements at indices along an axis; negative indices count from the end."""
        if not isinstance(x, Value) and not isinstance(indices, Value):
            return self.folding.take(x, indices, axis)
        if isinstance(x, Value) and not isinstance(indices, Value):
            at = normalize_axis(axis, x.ndim)
            if not indices.size:
                return self.empty((*x.shape[:at], *indices.shape, *x.shape[at + 1 :]), x)
            if indices.size == 1:
                index = int(indices.reshape(()))
                index = normalize_axis(index, x.shape[at], "indices")
                kept = self.slice(x, [index], [index + 1], [at], [1])
                if not indices.shape:
                    return self.squeeze(kept, (at,))
                return self.reshape(kept, (*x.shape[:at], *indices.shape, *x.shape[at + 1 :]))
            self._check_indices(indices, x.shape[at])
        self._refuse_empty(x, indices)
        return self.graph.gather(self.value(x), indices, axis, name=self.name("gather"))

    def _check_indices(self, indices: Array, size: int) -> None:
        if indices.dtype.kind not in "iu" or indices.min() < -size or indices.max() >= size:
            raise ValueError(f"indices: expect integers from {-size} to {size - 1}")

    def concat(self, operands: Sequence[Operand], axis: int) -> Operand:
        """Join along an axis; what has no elements is left out beside tensors of the graph."""
        if len({dtype_of(each) for each in operands}) > 1:
            raise ValueError("expect arrays of one rank and one data type")
        if not any(isinstance(each, Value) for each in operands):
            return self.folding.join([each for each in operands if not isinstance(each, Value)], axis)
        ranks = {len(each.shape) for each in operands}
        if len(ranks) != 1:
            raise ValueError("expect arrays of one rank and one data type")
        at = normalize_axis(axis, ranks.pop())
        kept = [each for each in operands if isinstance(each, Value) or each.shape[at]]
        return kept[0] if len(kept) == 1 else self.graph.concat(kept, at, name=self.name("concat"))

    def reduce(self, x: Operand, algorithm: str, axes: Sequence[int], keep: bool, p: float | None = None) -> Operand:
        """Reduce along axes; see `Graph.reduction`."""
        along = tuple(sorted(normalize_axes(tuple(axes), len(x.shape))))
        if not isinstance(x, Value):
            if algorithm.startswith("norm") and p in _POWERS:
                powers = self.folding.apply(_POWERS[p], x)
                total = self.folding.reduce(np.sum, powers, along, keep)
                is_root = p == 2.0 and algorithm == "norm_lp_sum"
                return self.folding.apply(np.sqrt, total) if is_root else total
            if algorithm in ("max", "min") and not x.size:
                return self._extreme_of_none(x, along, keep, algorithm == "max")
            if algorithm in _REDUCTIONS and x.size <= MOST_SORTED and (x.size or algorithm in ("sum", "mul")):
                return self.folding.reduce(_REDUCTIONS[algorithm], x, along, keep)
            x = self.value(x)
        if not along:
            raise Unavailable("a reduction over no axes is not supported")
        if algorithm in _REDUCTIONS and all(x.shape[axis] == 1 for axis in along):
            # One element is its own sum, mean and extreme.
            return x if keep else self.squeeze(x, along)
        if dtype_of(x) in LIMITS and algorithm in _WHOLE_NORMS:
            return self._reduce_whole(x, algorithm, along, keep, p)
        return self.graph.reduction(x, algorithm, along, keep_dims=keep, p=p, name=self.name(algorithm))

    def _reduce_whole(self, x: Operand, algorithm: str, axes: tuple[int, ...], keep: bool, p: float | None) -> Operand:
        """Return a sum, product or norm of integers that loses the high bits that do not fit, as NumPy's does."""
        dtype = dtype_of(x)
        if algorithm in ("sum", "mul"):
            wraps = self.cast(x, WRAPS_AS.get(dtype, dtype))
            found = self.graph.reduction(self.value(wraps), algorithm, axes, keep_dims=keep, name=self.name(algorithm))
            return self.cast(found, dtype)
        if p not in _POWERS or (p == 2.0 and algorithm == "norm_lp_sum"):
            return self.graph.reduction(self.value(x), algorithm, axes, keep_dims=keep, p=p, name=self.name(algorithm))
        # Absolute numbers and squares
        wide = x if dtype in ("int64", "uint64") else self.cast(x, "int64")
        other = wide if p == 2.0 else self.binary(self.number(0, wide), wide, "sub")
        if p == 2.0 or dtype not in ("uint32", "uint64"):
            wide = self.binary(wide, other, "mul" if p == 2.0 else "max")
        found = self.graph.reduction(self.value(wide), "sum", axes, keep_dims=keep, name=self.name(algorithm))
        return self.cast(found, dtype)

    def _extreme_of_none(self, x: Array, axes: Sequence[int], keep: bool, largest: bool) -> Array:
        """Return the greatest or least of no elements: the least or greatest number of their type."""
        dims = [1 if axis in axes else size for axis, size in enumerate(x.shape) if keep or axis not in axes]
        name = dtype_of(x)
        if name in FLOATS:
            return self.folding.fill(self.number(-math.inf if largest else math.inf, x), dims)
        low, high = LIMITS.get(name, (0, 1))
        return self.folding.fill(self.number(low if largest else high, x), dims)

    def matmul(self, a: Operand, b: Operand, dtype: str | None = None) -> Operand:
        """Multiply as NumPy's matmul does, operands of rank 1 included."""
        rows, columns = len(a.shape) == 1, len(b.shape) == 1
        left = self.unsqueeze(a, (0,)) if rows else a
        right = self.unsqueeze(b, (1,)) if columns else b
        dropped = [axis for axis, one in ((-2, rows), (-1, columns)) if one]
        kind = dtype_of(a)
        if 0 in (*left.shape, *right.shape):
            return self.squeeze(self._sums_of_none(left, right, dtype or kind), dropped)
        if not isinstance(left, Value) and not isinstance(right, Value):
            known = self.folding.multiply(left, right) if dtype is None else None
            if known is not None:
                return self.squeeze(known, dropped) if dropped else known
            left = self.value(left)
        if dtype is None and kind in WRAPS_AS and dtype_of(b) == kind:
            left, right = (self.cast(each, WRAPS_AS[kind]) for each in (left, right))
            found = self.graph.matmul(left, right, dtype=WRAPS_AS[kind], name=self.name("matmul"))
            result = self.cast(found, kind)
        else:
            result = self.graph.matmul(left, right, dtype=dtype or kind, name=self.name("matmul"))
        return self.squeeze(result, dropped) if dropped else result

    def _sums_of_none(self, a: Operand, b: Operand, dtype: str) -> Array:
        """Return the product of matrices one of which has no elements: zeros, or no elements."""
        if a.shape[-1] != b.shape[-2]:
            raise ValueError(f"shapes {tuple(a.shape)} and {tuple(b.shape)} do not fit")
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return self.folding.fill(np.zeros((), array_dtype(dtype)), (*batch, a.shape[-2], b.shape[-1]))

    def gather_elements(self, x: Operand, indices: Operand, axis: int) -> Operand:
        """Return one element along an axis for each element of the indices."""
        return self.graph.gather_elements(self.value(x), indices, axis, name=self.name("gather"))

    def gather_nd(self, x: Operand, indices: Operand, batch: int) -> Operand:
        """Return what is at places that the rows of the indices name, after ``batch`` dimensions that go together."""
        return self.graph.gather_nd(self.value(x), indices, batch, name=self.name("gather"))

    def pad(self, x: Operand, before: Sequence[int], after: Sequence[int], mode: str) -> Operand:
        """Pad with elements of x itself: ``edge``, ``reflect`` or ``wrap``, as NumPy does."""
        if mode not in ("edge", "reflect", "wrap"):
            raise ValueError(f"unknown mode {mode!r}")
        if isinstance(x, Value):
            ends = list(zip(before, after, strict=True))
            return self.graph.pad(x, ends, mode, name=self.name("pad"))
        for axis, (size, first, last) in enumerate(zip(shape_of(x), before, after, strict=True)):
            if first or last:
                if first + last > MOST_SORTED:
                    raise ValueError(f"a padding of {first + last} elements")
                kind: Any = mode
                x = self.take(x, np.pad(np.arange(size), (first, last), kind), axis)
        return x

    def pad_constant(self, x: Operand, before: Sequence[int], after: Sequence[int], number: Operand) -> Operand:
        """Pad with one number."""
        if isinstance(x, Value) and not isinstance(number, Value):
            value = float(number.reshape(()))
            if _are_float32(value) and value == number.reshape(()).item():
                around = list(zip(before, after, strict=True))
                return self.graph.pad(x, around, value=value, name=self.name("pad"))
        for axis, ends in enumerate(zip(before, after, strict=True)):
            sizes = shape_of(x)
            parts: list[Operand] = [x]
            for count, place in zip(ends, (0, 2), strict=True):
                if count:
                    dims = (*sizes[:axis], count, *sizes[axis + 1 :])
                    filled = self.expand(self.reshape(number, (1,) * len(sizes)), dims)
                    parts.insert(min(place, len(parts)), filled)
            x = parts[0] if len(parts) == 1 else self.concat(parts, axis)
        return x

    def value(self, x: Operand) -> Value:
        """Return a tensor of the graph, a constant for a known array."""
        if isinstance(x, Value):
            return x
        self._refuse_empty(x)
        return self.graph.constant(x, array_dtype_name(x))

    def _refuse_empty(self, *operands: Operand) -> None:
        for operand in operands:
            if not isinstance(operand, Value) and not math.prod(operand.shape):
                raise Unavailable("an operand has no elements; tensors of a graph have at least one")


def _are_float32(*parameters: float | None) -> bool:
    """Return whether float32 holds parameters exactly."""
    return all(each is None or float(np.float32(each)) == each for each in parameters)


def array_dtype(name: str) -> np.dtype[Any]:
    """Return the type of arrays of a data type."""
    if name == "bfloat16" or name in STORED_TYPES.values():
        found = array_type(number_of(name))
        if found is None:
            raise ValueError(f"data type {name} is not supported")
        return found
    return np.dtype(name)


def array_dtype_name(array: Array) -> str:
    """Return the name of an array's data type for a graph. Raises ValueError if graphs do not have it."""
    name = str(array.dtype.name)
    if name not in (*FLOATS, *LIMITS, "bool"):
        raise ValueError(f"data type {name}: a graph has no tensors of it")
    return name


def extreme(like: Operand, greatest: bool) -> Array:
    """Return the greatest or the least of all elements of a data type, infinities included."""
    name = dtype_of(like)
    if name in FLOATS:
        return np.asarray(math.inf if greatest else -math.inf, array_dtype(name))
    if name == "bool":
        return np.asarray(greatest)
    return np.asarray(LIMITS[name][int(greatest)], np.dtype(name))
