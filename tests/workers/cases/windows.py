"""Cases of convolution and pooling."""

from __future__ import annotations

from typing import Any

from poolrt.workers.desc import Arg, Convolution, Pooling, PrimitiveAttr

from .case import EPSILON, Array, Case, chains, integers, plain, post_op_args


def convolution_cases() -> list[Case]:
    # name, batch, IC, OC, spatial, kernel, strides, dilations, left, right, groups, bias
    problems: list[tuple[Any, ...]] = [
        ("3x3", 1, 16, 32, (14, 14), (3, 3), (1, 1), (0, 0), (1, 1), (1, 1), 1, True),
        ("3x3 wide", 1, 64, 64, (28, 28), (3, 3), (1, 1), (0, 0), (1, 1), (1, 1), 1, True),
        ("3x3/2 odd", 2, 32, 48, (15, 17), (3, 3), (2, 2), (0, 0), (1, 1), (1, 1), 1, True),
        ("1x1", 1, 64, 32, (7, 7), (1, 1), (1, 1), (0, 0), (0, 0), (0, 0), 1, False),
        ("1x1 batch 3", 3, 32, 64, (5, 9), (1, 1), (1, 1), (0, 0), (0, 0), (0, 0), 1, True),
        ("1x1/2", 1, 64, 128, (14, 14), (1, 1), (2, 2), (0, 0), (0, 0), (0, 0), 1, True),
        ("first 7x7/2", 1, 3, 64, (37, 37), (7, 7), (2, 2), (0, 0), (3, 3), (3, 3), 1, True),
        ("first 3x3 one channel", 2, 1, 8, (9, 11), (3, 3), (1, 1), (0, 0), (1, 1), (1, 1), 1, True),
        ("first 11x11/4 unpadded", 1, 3, 96, (51, 51), (11, 11), (4, 4), (0, 0), (0, 0), (0, 0), 1, True),
        ("odd channels", 2, 17, 23, (6, 6), (3, 3), (1, 1), (0, 0), (1, 1), (1, 1), 1, True),
        ("24 to 112 channels", 1, 24, 112, (9, 9), (1, 1), (1, 1), (0, 0), (0, 0), (0, 0), 1, True),
        ("asymmetric padding", 1, 16, 16, (8, 9), (3, 3), (2, 2), (0, 0), (0, 0), (1, 2), 1, True),
        ("left padding only", 1, 16, 16, (8, 9), (3, 3), (1, 1), (0, 0), (2, 1), (0, 0), 1, False),
        ("dilation 1", 1, 16, 32, (12, 12), (3, 3), (1, 1), (1, 1), (2, 2), (2, 2), 1, True),
        ("dilation uneven", 1, 16, 16, (13, 11), (3, 2), (1, 2), (2, 1), (3, 0), (1, 2), 1, True),
        ("5x5", 1, 32, 32, (27, 27), (5, 5), (1, 1), (0, 0), (2, 2), (2, 2), 1, True),
        ("1x7", 1, 32, 32, (17, 17), (1, 7), (1, 1), (0, 0), (0, 3), (0, 3), 1, True),
        ("kernel of the whole image", 1, 32, 64, (6, 6), (6, 6), (1, 1), (0, 0), (0, 0), (0, 0), 1, True),
        ("1x1 image", 1, 64, 40, (1, 1), (1, 1), (1, 1), (0, 0), (0, 0), (0, 0), 1, True),
        ("2 groups", 1, 32, 64, (9, 9), (5, 5), (1, 1), (0, 0), (2, 2), (2, 2), 2, True),
        ("4 groups of 24 to 68", 1, 96, 272, (7, 7), (1, 1), (1, 1), (0, 0), (0, 0), (0, 0), 4, True),
        ("3 groups of 5 to 7", 2, 15, 21, (6, 5), (3, 3), (1, 1), (0, 0), (1, 1), (1, 1), 3, True),
        ("depthwise", 1, 32, 32, (14, 14), (3, 3), (1, 1), (0, 0), (1, 1), (1, 1), 32, True),
        ("depthwise/2 odd channels", 2, 37, 37, (11, 13), (3, 3), (2, 2), (0, 0), (1, 1), (1, 1), 37, True),
        ("depthwise 136 channels", 1, 136, 136, (14, 14), (3, 3), (1, 1), (0, 0), (1, 1), (1, 1), 136, False),
        ("depthwise multiplier 2", 1, 12, 24, (8, 8), (3, 3), (1, 1), (0, 0), (1, 1), (1, 1), 12, True),
        ("1 spatial dimension", 2, 16, 32, (29,), (3,), (1,), (0,), (1,), (1,), 1, True),
        ("1 spatial dimension strided", 1, 5, 7, (31,), (4,), (3,), (1,), (2,), (0,), 1, True),
        ("3 spatial dimensions", 1, 16, 16, (5, 6, 7), (3, 3, 3), (1, 1, 1), (0, 0, 0), (1, 1, 1), (1, 1, 1), 1, True),
        (
            "3 spatial dimensions strided",
            2,
            4,
            6,
            (7, 6, 5),
            (2, 3, 1),
            (2, 1, 2),
            (0, 1, 0),
            (0, 1, 0),
            (1, 2, 0),
            2,
            True,
        ),
        (
            "3 dimensions, odd channels",
            2,
            19,
            37,
            (4, 9, 8),
            (3, 3, 2),
            (1, 1, 1),
            (0, 0, 0),
            (1, 1, 0),
            (1, 1, 1),
            1,
            True,
        ),
        (
            "3 dimensions, strided",
            1,
            32,
            20,
            (7, 9, 31),
            (3, 2, 3),
            (2, 2, 2),
            (0, 0, 0),
            (1, 0, 1),
            (0, 1, 1),
            1,
            True,
        ),
        (
            "3 dimensions, dilated",
            1,
            16,
            16,
            (9, 7, 9),
            (2, 3, 2),
            (1, 1, 2),
            (3, 1, 1),
            (2, 2, 0),
            (1, 2, 1),
            1,
            False,
        ),
        ("1x1x1", 2, 24, 40, (3, 5, 4), (1, 1, 1), (1, 1, 1), (0, 0, 0), (0, 0, 0), (0, 0, 0), 1, True),
        ("1x1x1/2", 1, 40, 24, (5, 6, 7), (1, 1, 1), (2, 3, 2), (0, 0, 0), (1, 0, 0), (0, 0, 1), 1, True),
        ("3x1x1", 1, 20, 33, (6, 5, 7), (3, 1, 1), (1, 1, 1), (0, 0, 0), (1, 0, 0), (1, 0, 0), 1, True),
        ("first 3x7x7", 2, 3, 24, (5, 19, 17), (3, 7, 7), (1, 2, 2), (0, 0, 0), (1, 3, 3), (1, 3, 3), 1, True),
        ("first, dilated", 1, 2, 17, (7, 6, 19), (2, 3, 2), (2, 1, 3), (2, 0, 2), (1, 0, 2), (0, 2, 1), 1, False),
        (
            "3 dimensions, 2 groups",
            2,
            32,
            64,
            (3, 5, 6),
            (3, 3, 3),
            (1, 1, 2),
            (0, 0, 0),
            (1, 1, 1),
            (1, 1, 1),
            2,
            True,
        ),
        (
            "3 dimensions, 3 groups",
            2,
            15,
            21,
            (4, 5, 6),
            (2, 3, 3),
            (1, 1, 1),
            (1, 0, 0),
            (1, 1, 0),
            (0, 1, 1),
            3,
            True,
        ),
        (
            "3 dimensions, depthwise",
            2,
            19,
            19,
            (5, 6, 21),
            (3, 3, 3),
            (1, 1, 1),
            (0, 0, 0),
            (1, 1, 1),
            (1, 1, 1),
            19,
            True,
        ),
        ("depthwise 2x3x5/2", 1, 35, 35, (6, 9, 11), (2, 3, 5), (2, 1, 2), (2, 1, 0), (1, 0, 2), (2, 2, 1), 35, False),
        ("depthwise 5x1x1", 1, 16, 16, (9, 4, 7), (5, 1, 1), (1, 1, 1), (0, 0, 0), (2, 0, 0), (2, 0, 0), 16, True),
        ("depthwise, wide rows", 2, 18, 18, (4, 33), (3, 3), (1, 1), (0, 0), (1, 1), (1, 1), 18, True),
        ("depthwise, wide rows/2 dilated", 1, 20, 20, (7, 45), (3, 2), (1, 2), (0, 1), (1, 1), (1, 0), 20, False),
        ("depthwise 7x7", 1, 35, 35, (7, 7), (7, 7), (1, 1), (0, 0), (3, 3), (3, 3), 35, True),
        ("depthwise, short rows/3 dilated", 2, 17, 17, (9, 31), (3, 4), (2, 3), (1, 2), (2, 3), (1, 5), 17, True),
        ("wide rows", 1, 16, 16, (3, 131), (3, 3), (1, 1), (0, 0), (1, 1), (1, 1), 1, True),
        ("empty batch", 0, 16, 16, (4, 4), (3, 3), (1, 1), (0, 0), (1, 1), (1, 1), 1, True),
        ("5 groups of 6 to 3/2", 3, 30, 15, (7, 5), (1, 1), (2, 2), (0, 0), (0, 0), (0, 0), 5, True),
        ("4 groups of 34", 2, 136, 136, (5, 3), (1, 1), (1, 1), (0, 0), (0, 0), (0, 0), 4, True),
    ]
    found = []
    for index, (name, n, ic, oc, size, kernel, strides, dilations, left, right, groups, bias) in enumerate(problems):
        out = tuple(
            (s + a + b - ((k - 1) * (d + 1) + 1)) // st + 1
            for s, k, st, d, a, b in zip(size, kernel, strides, dilations, left, right, strict=True)
        )
        src, weights, dst = plain(n, ic, *size), plain(oc, ic // groups, *kernel), plain(n, oc, *out)
        op = Convolution(src, weights, plain(oc) if bias else None, dst, strides, dilations, left, right, groups)
        args: dict[int, Array] = {Arg.SRC: integers(src.dims, name), Arg.WEIGHTS: integers(weights.dims, name, "w")}
        if bias:
            args[Arg.BIAS] = integers((oc,), name, "b")
        title, steps = chains(dst)[index % 4]
        found.append(Case(name + title, op, {**args, **post_op_args(steps)}, PrimitiveAttr(steps)))
    return found


def pooling_cases() -> list[Case]:
    # name, batch, C, spatial, kernel, strides, dilations, left, right
    problems: list[tuple[Any, ...]] = [
        ("3x3/2 padded", 1, 64, (28, 28), (3, 3), (2, 2), (0, 0), (1, 1), (1, 1)),
        ("3x3/2 right padding", 1, 32, (13, 13), (3, 3), (2, 2), (0, 0), (0, 0), (1, 1)),
        ("3x3/1", 2, 48, (9, 7), (3, 3), (1, 1), (0, 0), (1, 1), (1, 1)),
        ("3x3/1 of 5 planes", 1, 18, (5, 3, 37), (1, 3, 3), (1, 1, 1), (0, 0, 0), (0, 1, 2), (0, 2, 1)),
        ("2x2/2", 1, 16, (10, 10), (2, 2), (2, 2), (0, 0), (0, 0), (0, 0)),
        ("odd channels", 2, 19, (11, 9), (3, 2), (2, 1), (0, 0), (1, 0), (0, 1)),
        ("one channel", 1, 1, (5, 5), (3, 3), (1, 1), (0, 0), (0, 0), (0, 0)),
        ("dilated", 1, 20, (12, 11), (3, 2), (1, 2), (1, 2), (2, 0), (1, 3)),
        ("global", 2, 40, (7, 7), (7, 7), (1, 1), (0, 0), (0, 0), (0, 0)),
        ("global large", 1, 33, (31, 31), (31, 31), (1, 1), (0, 0), (0, 0), (0, 0)),
        ("1 spatial dimension", 3, 17, (23,), (4,), (3,), (0,), (1,), (2,)),
        ("3 spatial dimensions", 1, 18, (5, 6, 7), (2, 3, 3), (2, 1, 2), (0, 0, 1), (1, 1, 0), (0, 1, 2)),
        ("wide rows", 1, 5, (3, 150), (3, 5), (1, 2), (0, 0), (1, 2), (1, 2)),
        ("window of the source's size that moves", 2, 18, (4, 5), (4, 5), (1, 2), (0, 0), (0, 0), (2, 3)),
        ("window longer than the source", 1, 4, (2, 3), (5, 5), (1, 1), (0, 0), (2, 2), (2, 2)),
        ("5x5/1 of 3 planes", 1, 18, (3, 9, 21), (1, 5, 5), (1, 1, 1), (0, 0, 0), (0, 2, 2), (0, 2, 2)),
        ("7x4 that moves by two and three", 2, 5, (17, 60), (7, 4), (2, 3), (0, 0), (3, 1), (2, 3)),
        ("3x3/2 of wide rows", 1, 3, (9, 77), (3, 3), (2, 2), (0, 0), (1, 1), (1, 1)),
        ("2x2/2 of wide rows", 1, 3, (6, 64), (2, 2), (2, 2), (0, 0), (0, 0), (0, 0)),
        ("4x4/2 of 16 positions", 2, 3, (8, 32), (4, 4), (2, 2), (0, 0), (1, 1), (1, 1)),
        ("5x3/2 of wide planes", 1, 2, (4, 7, 51), (2, 5, 3), (1, 2, 2), (0, 0, 0), (1, 2, 0), (0, 2, 2)),
        ("rows in pieces", 1, 2, (3, 2500), (2, 3), (1, 3), (0, 4), (1, 5), (0, 7)),
        ("window wider than its room", 1, 1, (2, 1100), (1, 1030), (1, 3), (0, 0), (0, 30), (0, 3)),
        ("empty batch", 0, 16, (4, 4), (3, 3), (1, 1), (0, 0), (1, 1), (1, 1)),
    ]
    found = []
    for name, n, c, size, kernel, strides, dilations, left, right in problems:
        out = tuple(
            (s + a + b - ((k - 1) * (d + 1) + 1)) // st + 1
            for s, k, st, d, a, b in zip(size, kernel, strides, dilations, left, right, strict=True)
        )
        for algorithm in ("max", "avg_include_padding", "avg_exclude_padding"):
            src, dst = plain(n, c, *size), plain(n, c, *out)
            op = Pooling(src, dst, algorithm, kernel, strides, dilations, left, right)
            # Integers: sums are exact, and all values negative tells a padding of 0 from one of minus infinity.
            values = integers(src.dims, name, algorithm, low=-90, high=-1 if algorithm == "max" else 90)
            found.append(Case(f"{algorithm} {name}", op, {Arg.SRC: values}, rtol=2 * EPSILON))
    return found
