"""Tiles of AMX: sums of products of rows by columns, left as 32-bit numbers in memory of the kernel's own.

A tile register holds up to 16 rows of 64 bytes. One instruction adds to 16 x 16 sums the products of 16 rows of 64 bytes on the
left by 16 rows of 16 groups of 4 bytes on the right, as weights are packed: two bf16 or four bytes along K side by side.

A kernel asks for the tiles, configures them, and releases them at its end: no call leaves tile state behind, which the
system would have to keep for a thread. Registers 0 to 3 have sums, 4 and 5 left factors, 6 and 7 right ones: each factor that
is loaded is used twice.
"""

from __future__ import annotations

from typing import Any, Final

import llvmlite.ir as ir

from .atomics import system_call
from .compiler import types
from .compiler.language import intrinsic, not_inlined
from .vec import I8, I32, I64, Builder, Value, pointer

#: Rows of a tile at most, on the left and of sums; groups along K at most; columns of a block.
ROWS: Final = 16
#: Bytes of a tile's row of right factors and of sums.
ROW_BYTES: Final = 64
#: Bytes of a tile of sums.
SUM_BYTES: Final = ROWS * ROW_BYTES
#: Bytes of the memory of `configure_tiles`, and of the sums of two panels of rows by two blocks of columns.
CONFIG_BYTES: Final = 64
ALL_SUM_BYTES: Final = 4 * SUM_BYTES
#: LLVM's names of the instructions, by data types of the left and the right factor.
PRODUCTS: Final = {
    ("bf16", "bf16"): "llvm.x86.tdpbf16ps",
    ("u8", "s8"): "llvm.x86.tdpbusd",
    ("s8", "s8"): "llvm.x86.tdpbssd",
}
_ARCH_PRCTL: Final = 158  # the number of the system call, x86-64
_REQUEST: Final = 0x1023  # ARCH_REQ_XCOMP_PERM
_TILE_DATA: Final = 18  # the state component of tiles
_ASKED: Final = "asked_for_tiles"


@intrinsic
def ask_for_tiles(_: Any) -> Any:
    """Ask the system once a process for the use of tiles: a process that was not asked for gets a signal.

    Processes that it forks have the use, too. A program that it starts does not, and its kernels ask again.
    """

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        asked = b.module.globals.get(_ASKED)
        if asked is None:
            asked = ir.GlobalVariable(b.module, I32, _ASKED)
            asked.linkage, asked.initializer = "internal", I32(0)
        with b.if_then(b.icmp_signed("==", b.load_atomic(asked, "monotonic", 4), I32(0)), likely=False):
            zero = I64(0)
            system_call(b, I64(_ARCH_PRCTL), I64(_REQUEST), I64(_TILE_DATA), zero, zero, zero, zero)
            b.store_atomic(I32(1), asked, "monotonic", 4)
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def configure_tiles(_: Any, place: Any, height: Any, groups: Any) -> Any:
    """Configure tiles of ``height`` rows and ``groups`` along K, 1 to 16 each; all tiles are zero then.

    ``place`` is the address of `CONFIG_BYTES` to write to.
    """

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        place, height, groups = a
        left = b.mul(b.shl(groups, I64(2)), I64(0x10001))
        rows = b.or_(b.mul(height, I64(0x010101010101)), b.mul(groups, I64(0x0101 << 48)))
        # Palette 1; bytes of a row, 2 bytes each; rows, 1 byte each.
        words = (
            I64(1),
            I64(0),
            I64(0x0040004000400040),
            b.or_(left, I64(0x00400040 << 32)),
            I64(0),
            I64(0),
            rows,
            I64(0),
        )
        for number, word in enumerate(words):
            b.store(word, pointer(b, b.add(place, I64(8 * number)), I64), align=8)
        _tile(b, "llvm.x86.ldtilecfg", pointer(b, place, I8))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), emit


@intrinsic
def release_tiles(_: Any) -> Any:
    """Give the tiles back: they are as before `configure_tiles`, which takes a thread's switches less time."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        _tile(b, "llvm.x86.tilerelease")
        return context.get_dummy_value()

    return types.void(), emit


def make_tile_sums(product: str, high: int, wide: int) -> Any:
    """Return the intrinsic that computes sums of ``high`` panels of rows by ``wide`` blocks of 16 columns, 1 or 2 each.

    Arguments, distances in bytes: 1 to add to the sums that are in memory, 0 to begin with zeros; steps, and their table of
    (offset on the left, products along K); addresses of the left factor; from one of its panels to the other, from row to row,
    and along K; of the right factor; from block to block, and along K; and of the sums, which are those of two blocks a panel.
    """

    @intrinsic
    def sums(
        _: Any, adds: Any, T: Any, steps: Any, left: Any, panel: Any, row: Any, along: Any, right: Any, block: Any,
        down: Any, to: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            _emit_sums(b, product, high, wide, a)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 11), emit

    return sums


def make_products(product: str) -> Any:
    """Return the function of kernels that computes sums of ``high`` panels by ``wide`` blocks, 1 or 2 each, see `make_tile_sums`.

    ``along`` is the bytes of a product along K, from which those of the right factor follow.
    """
    both, one_block, one_panel, single = (make_tile_sums(product, high, wide) for high in (2, 1) for wide in (2, 1))

    @not_inlined
    def add_products(
        high: int, wide: int, adds: int, T: int, steps: int, left: int, panel: int, row: int, along: int, right: int,
        block: int, to: int,
    ) -> None:  # fmt: skip
        down = along * ROWS
        if high == 2:
            if wide == 2:
                both(adds, T, steps, left, panel, row, along, right, block, down, to)
            else:
                one_block(adds, T, steps, left, panel, row, along, right, block, down, to)
        elif wide == 2:
            one_panel(adds, T, steps, left, panel, row, along, right, block, down, to)
        else:
            single(adds, T, steps, left, panel, row, along, right, block, down, to)

    return add_products


def _emit_sums(b: Builder, product: str, high: int, wide: int, a: list[Value]) -> None:
    adds, T, steps, left, panel, row, along, right, block, down, to = a
    places = {(i, j): 2 * i + j for i in range(high) for j in range(wide)}
    bytes_of_row = I64(ROW_BYTES)

    def sums_at(number: int) -> Value:
        return pointer(b, b.add(to, I64(SUM_BYTES * number)), I8)

    with b.if_else(b.icmp_signed("!=", adds, I64(0))) as (more, first):
        with more:
            for number in places.values():
                _tile(b, "llvm.x86.tileloadd64", I8(number), sums_at(number), bytes_of_row)
        with first:
            for number in places.values():
                _tile(b, "llvm.x86.tilezero", I8(number))
    before = b.block
    outer, inner, latch, done = (b.append_basic_block(name) for name in ("step", "product", "next", "store"))
    b.branch(outer)

    b.position_at_end(outer)
    t = _phi(b, I64(0), before)
    first_right = _phi(b, right, before)
    entry = b.add(steps, b.shl(t, I64(4)))
    offset, count = (b.load(pointer(b, b.add(entry, I64(8 * i)), I64), align=8) for i in range(2))
    begin = b.add(left, offset)
    b.branch(inner)

    b.position_at_end(inner)
    rest, source, factor = _phi(b, count, outer), _phi(b, begin, outer), _phi(b, first_right, outer)
    for i in range(high):
        at = b.add(source, panel) if i else source
        _tile(b, "llvm.x86.tileloadd64", I8(4 + i), pointer(b, at, I8), row)
        for j in range(wide if i == 0 else 0):
            at = b.add(factor, block) if j else factor
            _tile(b, "llvm.x86.tileloadd64", I8(6 + j), pointer(b, at, I8), bytes_of_row)
    for (i, j), number in places.items():
        _tile(b, product, I8(number), I8(4 + i), I8(6 + j))
    rest_next, source_next, factor_next = b.sub(rest, I64(1)), b.add(source, along), b.add(factor, down)
    for phi, value in zip((rest, source, factor), (rest_next, source_next, factor_next), strict=True):
        phi.add_incoming(value, inner)
    b.cbranch(b.icmp_signed(">", rest_next, I64(0)), inner, latch)

    b.position_at_end(latch)
    t_next = b.add(t, I64(1))
    for phi, value in zip((t, first_right), (t_next, factor_next), strict=True):
        phi.add_incoming(value, latch)
    b.cbranch(b.icmp_signed("<", t_next, T), outer, done)

    b.position_at_end(done)
    for number in places.values():
        _tile(b, "llvm.x86.tilestored64", I8(number), sums_at(number), bytes_of_row)


def _tile(b: Builder, name: str, *arguments: Value) -> None:
    """Call an instruction on tiles by LLVM's name; registers are constants."""
    kind = ir.FunctionType(ir.VoidType(), [a.type for a in arguments])
    b.call(b.module.globals.get(name) or ir.Function(b.module, kind, name), list(arguments))


def _phi(b: Builder, value: Value, block: Value) -> Value:
    phi = b.phi(value.type)
    phi.add_incoming(value, block)
    return phi
