"""Pieces of a row of a depthwise convolution whose sums registers hold. Pure: implementations read it without the compiler."""

from __future__ import annotations

from typing import Final, NamedTuple

#: Columns of a piece at most.
PIECE: Final = 14
#: Columns of a window whose taps are written out, and products of all different pieces of a row that are.
TAPS: Final = 32
_PRODUCTS: Final = 700


class Piece(NamedTuple):
    """Alike pieces that follow one another: the first output of the first one, their number, and the columns of each.

    ``taps`` are (column of src, column of dst, tap) that read no padding, from the first column on that windows and outputs have.
    """

    first: int
    number: int
    columns: int
    taps: tuple[tuple[int, int, int], ...]


def pieces_of(width: int, out_width: int, kernel: int, stride: int, dilation: int, left: int) -> list[Piece]:
    """Return the pieces of a row in order, of a width of src and dst, and kernel, stride, dilation and padding in columns."""
    found: list[Piece] = []
    number = -(-out_width // PIECE)
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


def are_written_out(width: int, out_width: int, kernel: int, stride: int, dilation: int, left: int) -> bool:
    """Return whether a kernel has all taps of the different pieces of a row written out."""
    if kernel > TAPS:
        return False
    pieces = pieces_of(width, out_width, kernel, stride, dilation, left)
    return sum(len(piece.taps) for piece in pieces) <= _PRODUCTS
