"""Pieces of a row of a depthwise convolution whose sums registers hold. Pure: implementations read it without the compiler."""

from __future__ import annotations

from typing import Final, NamedTuple

#: Columns of a piece at most; of halves of vectors, less the weights of a row if registers hold them; of halves alone.
PIECE: Final = 14
_HALVES: Final = 13
_HALVES_ALONE: Final = 8
#: Weights of a row of the window that registers hold beside sums of halves.
HELD: Final = 5
#: Columns of a window whose taps are written out, and products of all different pieces of a row that are.
TAPS: Final = 32
_PRODUCTS: Final = 700
#: ISA levels with such kernels.
_WRITTEN_OUT: Final = ("x86-64-v3", "x86-64-v4")


class Piece(NamedTuple):
    """Alike pieces that follow one another: the first output of the first one, their number, and the columns of each.

    ``taps`` are (column of src, column of dst, tap) that read no padding, from the first column on that windows and outputs have.
    """

    first: int
    number: int
    columns: int
    taps: tuple[tuple[int, int, int], ...]


def columns_of_piece(isa: str, kernel: int) -> int:
    """Return the most columns of a piece, whose sums stay in the registers of an ISA level."""
    if isa == "x86-64-v4":
        return PIECE
    return _HALVES - kernel if kernel <= HELD else _HALVES_ALONE


def pieces_of(isa: str, width: int, out_width: int, kernel: int, stride: int, dilation: int, left: int) -> list[Piece]:
    """Return the pieces of a row in order, of a width of src and dst, and kernel, stride, dilation and padding in columns."""
    found: list[Piece] = []
    number = -(-out_width // columns_of_piece(isa, kernel))
    first = 0
    for part in range(number):
        columns = out_width // number + (part < out_width % number)
        begin = first * stride - left
        places = [(column * stride + tap * dilation, column, tap) for column in range(columns) for tap in range(kernel)]
        taps = tuple(sorted(place for place in places if 0 <= begin + place[0] < width))
        last = found[-1] if found else None
        if last is not None and (last.columns, last.taps) == (columns, taps):
            found[-1] = last._replace(number=last.number + 1)
        else:
            found.append(Piece(first, 1, columns, taps))
        first += columns
    return found


def are_written_out(isa: str, width: int, out_width: int, kernel: int, stride: int, dilation: int, left: int) -> bool:
    """Return whether a kernel for an ISA level has all taps of the different pieces of a row written out."""
    if kernel > TAPS or isa not in _WRITTEN_OUT:
        return False
    pieces = pieces_of(isa, width, out_width, kernel, stride, dilation, left)
    return sum(len(piece.taps) for piece in pieces) <= _PRODUCTS
