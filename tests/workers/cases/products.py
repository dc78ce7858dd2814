"""Cases of matmul and inner product."""

from __future__ import annotations

from poolrt.workers.desc import Arg, InnerProduct, Matmul, PrimitiveAttr

from .case import Array, Case, chains, integers, plain, post_op_args


def matmul_cases() -> list[Case]:
    # batch of src, batch of weights, M, K, N, bias
    problems: list[tuple[tuple[int, ...], tuple[int, ...], int, int, int, bool]] = [
        ((), (), 64, 64, 64, False),
        ((), (), 64, 784, 128, True),
        ((), (), 1, 100, 37, True),
        ((), (), 37, 100, 1, True),
        ((), (), 1, 1, 1, False),
        ((), (), 29, 31, 33, True),
        ((), (), 5, 300, 257, False),
        ((), (), 300, 560, 65, True),
        ((), (), 15, 129, 48, True),
        ((3,), (3,), 9, 17, 20, True),
        ((3,), (1,), 9, 17, 20, False),
        ((1,), (4,), 9, 17, 20, True),
        ((2, 1), (1, 3), 6, 8, 10, False),
        ((), (), 0, 5, 6, True),
        ((), (), 4, 0, 6, True),
        ((3,), (3,), 11, 1024, 20, True),
        ((2,), (1,), 1, 43, 610, True),
        ((2,), (2,), 1, 33, 50, True),
        ((2,), (2,), 30, 700, 64, True),
    ]
    found = []
    for index, (left, right, m, k, n, bias) in enumerate(problems):
        batch = tuple(a if b == 1 else b for a, b in zip(left, right, strict=True))
        dst = plain(*batch, m, n)
        row = plain(*(1,) * (len(batch) + 1), n)
        op = Matmul(plain(*left, m, k), plain(*right, k, n), row if bias else None, dst)
        args: dict[int, Array] = {
            Arg.SRC: integers(op.src.dims, index),
            Arg.WEIGHTS: integers(op.weights.dims, index, "w"),
        }
        if bias:
            args[Arg.BIAS] = integers(row.dims, index, "b")
        title, steps = chains(dst)[index % 4]
        name = f"{left}{right} {m}x{k}x{n}{title}"
        found.append(Case(name, op, {**args, **post_op_args(steps)}, PrimitiveAttr(steps)))
    return found


def inner_product_cases() -> list[Case]:
    found = []
    problems = (
        (1, 512, 1000, True),
        (1, 4096, 96, True),
        (2, 37, 19, True),
        (7, 128, 64, False),
        (33, 65, 17, True),
        (1, 1, 1, True),
        (0, 8, 4, True),
        (16, 256, 128, True),
    )
    for index, (n, ic, oc, bias) in enumerate(problems):
        op = InnerProduct(plain(n, ic), plain(oc, ic), plain(oc) if bias else None, plain(n, oc))
        args: dict[int, Array] = {Arg.SRC: integers((n, ic), index), Arg.WEIGHTS: integers((oc, ic), index, "w")}
        if bias:
            args[Arg.BIAS] = integers((oc,), index, "b")
        title, steps = chains(op.dst)[index % 4]
        found.append(Case(f"{n}x{ic} to {oc}{title}", op, {**args, **post_op_args(steps)}, PrimitiveAttr(steps)))
    return found
