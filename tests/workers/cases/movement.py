"""Cases of concat and reorder, which only move data: results are exact."""

from __future__ import annotations

import numpy as np

from poolrt.workers.desc import Arg, Concat, MemoryDesc, Reorder, multiple_src

from .case import Array, Case, normals, plain


def concat_cases() -> list[Case]:
    problems: list[tuple[tuple[tuple[int, ...], ...], int]] = [
        (((2, 16, 5, 5), (2, 32, 5, 5)), 1),
        (((1, 64, 7, 7), (1, 32, 7, 7), (1, 32, 7, 7), (1, 19, 7, 7)), 1),
        (((2, 3, 4, 5), (2, 7, 4, 5), (2, 1, 4, 5)), 1),
        (((2, 20, 4, 5), (3, 20, 4, 5)), 0),
        (((2, 20, 4, 5), (2, 20, 6, 5)), 2),
        (((2, 20, 4, 5), (2, 20, 4, 1), (2, 20, 4, 17)), 3),
        (((5, 7), (5, 9)), 1),
        (((4,), (1,), (9,)), 0),
        (((2, 16, 3), (2, 0, 3), (2, 16, 3)), 1),
        (((1, 3, 2, 2),), 1),
        (tuple((1, 16 * (i % 3 + 1), 3, 3) for i in range(20)), 1),
        (((0, 4, 2, 2), (0, 4, 2, 2)), 1),
    ]
    found = []
    for shapes, axis in problems:
        dims = list(shapes[0])
        dims[axis] = sum(s[axis] for s in shapes)
        op = Concat(tuple(plain(*s) for s in shapes), plain(*dims), axis)
        args: dict[int, Array] = {multiple_src(i): normals(s, "concat", i) for i, s in enumerate(shapes)}
        found.append(Case(f"{len(shapes)} along {axis} to {tuple(dims)}", op, args, rtol=0.0, atol=0.0))
    return found


def reorder_cases() -> list[Case]:
    problems: list[tuple[tuple[int, ...], str, str]] = [
        ((2, 19, 5, 7), "abcd", "aBcd16b"),
        ((2, 19, 5, 7), "aBcd16b", "abcd"),
        ((1, 64, 14, 14), "abcd", "aBcd16b"),
        ((1, 64, 14, 14), "aBcd16b", "abcd"),
        ((1, 3, 17, 19), "abcd", "acdb"),
        ((1, 35, 17, 19), "acdb", "abcd"),
        ((2, 19, 5, 7), "abcd", "abcd"),
        ((2, 19, 5, 7), "acdb", "aBcd16b"),
        ((40, 24, 3, 3), "abcd", "ABcd16b32a"),
        ((64, 16, 3, 3), "abcd", "ABcd16b16a"),
        ((33, 65), "ab", "ba"),
        ((33, 65), "ba", "ab"),
        ((33, 65), "ab", "AB16b32a"),
        ((5, 17, 9), "abc", "aBc16b"),
        ((5, 17, 9), "cba", "bac"),
        ((1, 18, 3, 4, 5), "abcde", "aBcde16b"),
        ((100,), "a", "a"),
        ((0, 3, 2, 2), "abcd", "aBcd16b"),
    ]
    found = []
    for dims, source, target in problems:
        op = Reorder(MemoryDesc(dims, "f32", source), MemoryDesc(dims, "f32", target))
        found.append(Case(f"{dims} {source} to {target}", op, {Arg.SRC: normals(dims)}, rtol=0.0, atol=0.0))
    return found + _strided_reorders()


def _strided_reorders() -> list[Case]:
    """Return reorders of what slices, transpositions and expansions read; a size of 1 in the values is repeated."""
    problems: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], str]] = [
        ((2, 19, 5, 7), (2000, 70, 8, 1), (2, 19, 5, 7), ""),
        ((2, 19, 5, 7), (3000, 130, 21, 3), (2, 19, 5, 7), ""),
        ((7, 33), (1, 20), (7, 33), ""),
        ((40, 3, 50), (1, 2000, 40), (40, 3, 50), "bca"),
        ((5, 17, 9), (9, 0, 1), (5, 1, 9), ""),
        ((5, 17, 9), (0, 10, 0), (1, 17, 1), ""),
        ((3, 40), (0, 0), (1, 1), ""),
    ]
    found = []
    for dims, strides, given, tag in problems:
        source = MemoryDesc(dims, "f32", strides=strides)
        values = np.broadcast_to(normals(given, strides), dims)
        op = Reorder(source, MemoryDesc(dims, "f32", tag))
        found.append(Case(f"{source} to {tag or 'row-major'}", op, {Arg.SRC: values}, rtol=0.0, atol=0.0))
    return found
