"""Handles on the tensors of a graph, and the forms in which users give window arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict

import numpy as np

from poolrt.cachestore.deferred_dataclass import dataclass, field
from poolrt.spelling import hint
from poolrt.workers.desc import data_type
from poolrt.workers.desc.typed import shorten, to_integer, to_integers

from .value_operators import ValueOperators

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

#: Names of data types that users write.
_DTYPES: Final = (
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Value(ValueOperators):
    """A tensor in a graph, made by `Graph.input` or an operation; it holds no data.

    ``shape`` is its shape, ``dtype`` NumPy's name of its data type, or ``bfloat16``; ``owner`` identifies its graph.
    """

    shape: tuple[int, ...]
    dtype: str
    id: int = field(repr=False)
    owner: object = field(repr=False)

    @property
    def ndim(self) -> int:
        """The rank."""
        return len(self.shape)

    def size(self, axis: int) -> Size:
        """Return a dimension, which `Graph.call` follows if the graph runs on inputs of other shapes."""
        return Size(self, axis)


class Size(int):
    """A dimension of a value: an integer that knows where it comes from. Arithmetic on it gives plain integers."""

    value: Value
    axis: int

    def __new__(cls, value: Value, axis: int) -> Size:
        """Return the size along an axis (negative: from the end). Raises IndexError if there is none."""
        found = super().__new__(cls, value.shape[axis])
        found.value = value
        found.axis = axis % value.ndim
        return found

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)  # a value has no meaning in another process


#: An operand: a tensor of the same graph, or anything that NumPy turns into an array, which becomes a constant.
Operand: TypeAlias = "Value | ArrayLike"
#: One number for all spatial dimensions, or one for each.
Spatial: TypeAlias = "int | Iterable[int]"
#: As `Spatial`, or a pair (before, after) for each spatial dimension.
Padding: TypeAlias = "int | Iterable[int] | Iterable[tuple[int, int]]"


class NodeOptions(TypedDict, total=False):
    """The options of every operation.

    ``name`` is for messages and traces; a node without one gets a number. ``engine`` runs the node, by default the
    graph's. Names of implementations that may compute it begin with ``implementation``, such as ``ref:`` for the plain
    and slow one. ``dtype`` is the data type of its result. ``scales`` and ``zero_points`` name arguments
    (``src``, ``src1``, ``weights``, ``dst``): one number, or an array of the argument's rank with a size of 1 along
    dimensions that share one; one for each output channel of weights may be a row. Sources are read as scale * (value -
    zero point), and the result is stored as value / scale + zero point. ``is_test`` computes the node as in phase ``test`` in
    each phase of an `Executor`; by default the phase decides.
    """

    name: str | None
    engine: str | None
    implementation: str | None
    dtype: DTypeLike | str | None
    scales: Mapping[str, Operand] | None
    zero_points: Mapping[str, Operand] | None
    is_test: bool


def parse_dtype(dtype: DTypeLike | str) -> str:
    """Return the short name of a data type that a user names. Raises ValueError naming the argument."""
    try:
        return data_type(dtype if isinstance(dtype, str) else np.dtype(dtype))
    except (TypeError, ValueError) as error:
        raise ValueError(f"dtype: {error}{hint(dtype, _DTYPES)}") from error


def spread_spatial(name: str, value: Spatial, count: int) -> tuple[int, ...]:
    """Return one number for each of ``count`` spatial dimensions. Raises ValueError naming the argument."""
    found = _integers(value, count)
    if found is None or len(found) != count:
        raise ValueError(f"{name}: expect one integer or {count}, got {shorten(value)}")
    return found


def split_padding(value: Padding, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding before and after each spatial dimension. Raises ValueError naming the argument."""
    one = _integers(value, count)
    try:
        sides = [_integers(side, 2) for side in (value if one is None else one)]  # type: ignore[union-attr]
    except TypeError:  # no sequence, or an array without dimensions
        sides = []
    found = [side for side in sides if side is not None and len(side) == 2]
    if not len(found) == len(sides) == count:
        expected = f"one integer, {count} integers or {count} pairs (before, after)"
        raise ValueError(f"padding: expect {expected}, got {shorten(value)}")
    return tuple(before for before, _ in found), tuple(after for _, after in found)


def _integers(value: Any, count: int) -> tuple[int, ...] | None:
    """Return ``count`` times one integer, or those of a sequence; None for anything else."""
    try:
        return (to_integer("", value),) * count
    except ValueError:
        pass
    try:
        return to_integers("", value)
    except ValueError:
        return None
