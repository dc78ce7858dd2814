"""Columns of 16 adjacent rows of a few elements as lanes: whole vectors are read and shuffled, without masks."""

from __future__ import annotations

from typing import Any, Final

import llvmlite.ir as ir
import numpy as np

from ...desc.data_type import item_size
from .compiler import types
from .compiler.language import intrinsic
from .deinterleave import joined, shuffled
from .elements import STORED, elements, widened
from .vec import I64, LANES, Builder, Value, doubles, pointer, vector

#: Elements of a row at most: further columns would take more shuffles than a row takes instructions of its own.
MOST_COLUMNS: Final = 4
#: Bytes of one column that are shuffled at a time: a register of AVX2.
_REGISTER: Final = 32


def column_of(dtype: str, columns: int, k: int) -> Any:
    """Return an intrinsic (address): element k of each of 16 adjacent rows of ``columns`` elements, as lanes."""
    rows = min(LANES, _REGISTER // item_size(dtype))
    wide = ir.VectorType(STORED[dtype], rows * columns)
    lanes = doubles if elements(dtype).real is np.float64 else vector

    @intrinsic
    def column(_: Any, address: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            size = item_size(dtype) * rows * columns
            parts = [b.load(pointer(b, b.add(a[0], I64(size * at)), wide), align=1) for at in range(LANES // rows)]
            return widened(
                b, joined(b, [shuffled(b, part, part, range(k, rows * columns, columns)) for part in parts]), dtype
            )

        return lanes(types.int64), emit

    return column
