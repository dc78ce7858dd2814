"""Operations that add, repeat or regroup elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Unpack

from poolrt.workers.desc.op_desc import one_of
from poolrt.workers.desc.typed import to_float, to_integer, to_integers

from ..values import NodeOptions, Operand, Padding, Value, split_padding
from .movement import Movement

#: ONNX's names of the orders of channels: depth, column and row, or column, row and depth.
_ORDERS: Final = ("DCR", "CRD")


class Rearrangement(Movement):
    """Pad, tile, and blocks of pixels as channels. All but pad are views, which take only ``name``."""

    def pad(
        self, src: Operand, padding: Padding, mode: str = "constant", value: float = 0.0, **options: Unpack[NodeOptions]
    ) -> Value:
        """Add elements around src, or cut some: ``padding`` has a pair (before, behind) for each dimension.

        Negative numbers cut. Elements that are added have the ``value`` (``constant``), repeat those at the edges (``edge``),
        mirror those behind them (``reflect``) or continue with those of the other end (``wrap``), as NumPy's ``pad``.
        """
        with self._build("pad", **options) as node:
            operand = node.operand("src", src)
            before, behind = split_padding(padding, operand.ndim)
            constant = to_float("value", value)
            return node.add([operand], padding_l=before, padding_r=behind, mode=mode, value=constant)

    def tile(self, src: Operand, repeats: Sequence[int], *, name: str | None = None) -> Value:
        """Repeat src along each dimension as often as ``repeats`` says."""
        with self._build("tile", name) as node:
            value, counts = node.operand("src", src), to_integers("repeats", repeats)
            if len(counts) != value.ndim or min(counts, default=1) < 1:
                raise ValueError(f"repeats: expect {value.ndim} numbers of at least 1, got {counts}")
        # A dimension that is repeated becomes two, of which the first has one element many times.
        apart, wide = [], []
        for count, size in zip(counts, value.shape, strict=True):
            apart += [1, size] if count > 1 else [size]
            wide += [count, size] if count > 1 else [size]
        repeated = self.expand(self.reshape(value, apart), wide) if wide != apart else value
        dims = [count * size for count, size in zip(counts, value.shape, strict=True)]
        return self.reshape(repeated, dims, name=name)

    def depth_to_space(self, src: Operand, block_size: int, order: str = "DCR", *, name: str | None = None) -> Value:
        """Return (N, C / b**2, H b, W b) of (N, C, H, W): channels become blocks of b x b pixels.

        With the order ``DCR`` the place in a block is the slowest part of the channel's number, with ``CRD`` the fastest.
        """
        with self._build("depth_to_space", name) as node:
            value, block = node.operand("src", src), to_integer("block_size", block_size)
            one_of("order", order, _ORDERS)
            if value.ndim != 4 or block < 1 or value.shape[1] % block**2:
                raise ValueError(f"src: expect (N, C, H, W) with C divisible by {block} x {block}, got {value.shape}")
        channels, height, width = value.shape[1:]
        own = channels // block**2
        first, perm = (((block, block, own), (0, 3, 4, 1, 5, 2)), ((own, block, block), (0, 1, 4, 2, 5, 3)))[
            order == "CRD"
        ]
        blocks = self.transpose(self.reshape(value, (0, *first, height, width)), perm)
        return self.reshape(blocks, (0, own, height * block, width * block), name=name)

    def space_to_depth(self, src: Operand, block_size: int, *, name: str | None = None) -> Value:
        """Return (N, C b**2, H / b, W / b) of (N, C, H, W): blocks of b x b pixels become channels, the slowest part of them."""
        with self._build("space_to_depth", name) as node:
            value, block = node.operand("src", src), to_integer("block_size", block_size)
            if value.ndim != 4 or block < 1 or any(size % block for size in value.shape[2:]):
                raise ValueError(f"src: expect (N, C, H, W) with H and W divisible by {block}, got {value.shape}")
        channels, height, width = value.shape[1:]
        small = height // block, width // block
        parts = self.transpose(self.reshape(value, (0, channels, small[0], block, small[1], block)), (0, 3, 5, 1, 2, 4))
        return self.reshape(parts, (0, channels * block**2, *small), name=name)
