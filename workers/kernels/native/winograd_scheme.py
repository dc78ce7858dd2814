"""Winograd's matrices of one dimension of a 3 x 3 kernel, as whole numbers. Pure; imports nothing heavy.

A window of results is a sum of products of factors: one of the sources that it reads, one of the three taps. All windows
have the same factors of taps, so windows of two sizes cover any number of results, and the smaller ones lack some factors.
"""

from __future__ import annotations

from typing import Final

from poolrt.cachestore.deferred_dataclass import dataclass

#: Numbers that are multiplied by each other for a window, in each dimension.
FACTORS: Final = 5


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of one size: for each factor what it has of the sources (nothing: it is lacking), for each result of products."""

    factors: tuple[tuple[int, ...], ...]
    results: tuple[tuple[int, ...], ...]

    @property
    def sources(self) -> int:
        """How many neighbouring sources a window reads."""
        return max(map(len, self.factors))


@dataclass(frozen=True, slots=True)
class Scheme:
    """What each different factor has of the three taps, and windows of both sizes, the ``small`` ones last.

    The last of ``taps`` belongs to all factors from its number on. Results of two dimensions are 2**``shift`` times those of
    the convolution if they are multiplied by ``inverse`` modulo 2**32.
    """

    stride: int
    taps: tuple[tuple[int, int, int], ...]
    large: Windows
    small: Windows
    shift: int
    inverse: int

    @property
    def lacking(self) -> int:
        """A bit for each factor that small windows lack."""
        return sum(1 << number for number, factor in enumerate(self.small.factors) if not factor)

    def cut(self, length: int) -> tuple[int, int]:
        """Return how many large and small windows cover ``length`` results."""
        large, small = len(self.large.results), len(self.small.results)
        count = next(n for n in range(length // small + 1) if (length - n * small) % large == 0)
        return (length - count * small) // large, count


#: Three results of stride 1 by 5 products, at 0, 1, -1, 2 and infinity; two by 4, without 2. Six times the results.
DENSE: Final = Scheme(
    stride=1,
    taps=((3, 0, 0), (3, 3, 3), (1, -1, 1), (1, 2, 4), (0, 0, 6)),
    large=Windows(
        ((2, -1, -2, 1, 0), (0, 2, 1, -1, 0), (0, -2, 3, -1, 0), (0, -1, 0, 1, 0), (0, 2, -1, -2, 1)),
        ((1, 1, 1, 1, 0), (0, 1, -1, 2, 0), (0, 1, 1, 4, 1)),
    ),
    small=Windows(((2, 0, -2, 0), (0, 1, 1, 0), (0, -3, 3, 0), (), (0, -1, 0, 1)), ((1, 1, 1, 0, 0), (0, 1, -1, 0, 1))),
    shift=2,
    inverse=pow(9, -1, 1 << 32),
)
#: Two results of stride 2 by 5 products: of the sources in even places by 3 instead of 4, of the others by 2. One by 3.
STRIDED: Final = Scheme(
    stride=2,
    taps=((1, 0, 0), (1, 0, 1), (0, 0, 1), (0, 1, 0)),
    large=Windows(
        ((1, 0, -1, 0, 0), (0, 0, 1, 0, 0), (0, 0, -1, 0, 1), (0, 1, 0, 0, 0), (0, 0, 0, 1, 0)),
        ((1, 1, 0, 1, 0), (0, 1, 1, 0, 1)),
    ),
    small=Windows(((1, 0, 0), (), (0, 0, 1), (0, 1, 0), ()), ((1, 0, 1, 1, 0),)),
    shift=0,
    inverse=1,
)
#: Stride -> scheme.
SCHEMES: Final = {scheme.stride: scheme for scheme in (DENSE, STRIDED)}
