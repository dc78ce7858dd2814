"""The register tile of products of a batch of matrices of bytes: sums begin with a term of the row beside the column's."""

from __future__ import annotations

from typing import Any

from .compiler import types
from .compiler.language import intrinsic
from .integer_tile import IntegerTile, TileArguments, emit_stores, emit_sums
from .vec import I32, I64, Builder, Value, pointer, splat


def make_batch_tile(shape: IntegerTile, points: bool) -> Any:
    """Return the intrinsic of a tile: the arguments of `TileArguments` but the last two, and the address of rows' terms."""

    @intrinsic
    def tile(
        _: Any, T: Any, steps: Any, src: Any, run: Any, step: Any, weights: Any, weight_block: Any, ahead: Any,
        dst: Any, dst_step: Any, terms: Any, factor: Any, offset: Any, count: Any, residual: Any, residual_step: Any,
        weight: Any, lower: Any, upper: Any, point: Any, rows: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            arguments = TileArguments._make([*a[:-1], I64(0), None])
            own = [
                splat(b, b.load(pointer(b, b.add(a[-1], I64(4 * position)), I32), align=4))
                for position in range(shape.runs[0] if points else 0)
            ]
            sums = emit_sums(b, shape, arguments, own)
            emit_stores(b, shape, arguments, sums)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 16, types.float32, types.float32, types.float32, *[types.int64] * 2), emit

    return tile
