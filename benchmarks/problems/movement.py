"""Operations that move elements."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .problem import Problem, normals


def transposes() -> Iterator[Problem]:
    """Yield the heads of attention to and fro, a matrix, pictures with channels first and last, and pixels shuffled."""
    for dims, perm in (
        ((1, 128, 12, 64), (0, 2, 1, 3)), ((1, 128, 12, 64), (0, 2, 3, 1)), ((1024, 1024), (1, 0)),
        ((1, 64, 56, 56), (0, 2, 3, 1)), ((1, 224, 224, 3), (0, 3, 1, 2)),
        ((1, 256, 28, 2, 2), (0, 1, 3, 2, 4)), ((1, 64, 64, 3, 2), (0, 3, 1, 2, 4)),
    ):  # fmt: skip
        yield Problem(
            "transpose",
            f"transpose to {perm}",
            dims,
            lambda g, x, perm=perm: g.transpose(x, perm),
            "Transpose",
            (),
            {"perm": perm},
        )


def gathers() -> Iterator[Problem]:
    """Yield the embeddings of BERT-base, of one prompt and of a batch, and rows, columns and elements of activations."""
    for dims, table in (((1, 128), (30522, 768)), ((32, 128), (30522, 768)), ((1, 2048), (32000, 2048))):
        weights = normals(*table)
        yield Problem(
            "gather", f"gather rows of {table[0]}x{table[1]}", dims,
            lambda g, x, weights=weights: g.gather(weights, x), "Gather", (weights,), dtype="int64", order=(1, 0), below=table[0],
        )  # fmt: skip
    for dims, axis in (((1, 197, 768), 1), ((64, 1000), 1)):
        chosen = np.random.default_rng(1).integers(0, dims[axis], 100)
        yield Problem(
            "gather", f"100 along axis {axis}", dims,
            lambda g, x, chosen=chosen, axis=axis: g.gather(x, chosen, axis), "Gather", (chosen,), {"axis": axis},
        )  # fmt: skip
    chosen = np.random.default_rng(1).integers(0, 1000, (64, 1000))
    yield Problem(
        "gather", "elements", (64, 1000), lambda g, x, chosen=chosen: g.gather_elements(x, chosen, 1), "GatherElements",
        (chosen,), {"axis": 1},
    )  # fmt: skip
    pairs = np.random.default_rng(1).integers(0, 56, (500, 2))
    rows = np.random.default_rng(1).integers(0, 20000, (20000, 8))
    yield Problem(
        "gather", "elements along 0", rows.shape, lambda g, x: g.gather_elements(x, rows, 0), "GatherElements", (rows,),
        {"axis": 0},
    )  # fmt: skip
    yield Problem(
        "gather",
        "500 pairs of indices",
        (56, 56, 64),
        lambda g, x, pairs=pairs: g.gather_nd(x, pairs),
        "GatherND",
        (pairs,),
    )


def pads() -> Iterator[Problem]:
    """Yield margins of images: zeros around them, and mirrored ones."""
    for dims, width, mode in (
        ((1, 64, 56, 56), 1, "constant"), ((1, 3, 224, 224), 3, "constant"), ((1, 64, 128, 128), 1, "reflect"),
        ((1, 64, 128, 128), 1, "edge"),
    ):  # fmt: skip
        pads = np.array([0, 0, width, width] * 2, np.int64)
        yield Problem(
            "pad", f"{mode} {width}", dims,
            lambda g, x, width=width, mode=mode: g.pad(x, (0, 0, width, width), mode), "Pad", (pads,), {"mode": mode},
        )  # fmt: skip


def scatters() -> Iterator[Problem]:
    """Yield rows of a cache replaced, and elements added."""
    rows, updates = np.random.default_rng(1).integers(0, 2048, (64, 1)), normals(64, 1024)
    yield Problem(
        "scatter", "64 rows", (2048, 1024), lambda g, x: g.scatter_nd(x, rows, updates), "ScatterND", (rows, updates)
    )
    chosen, added = np.random.default_rng(1).integers(0, 1000, (64, 500)), normals(64, 500)
    yield Problem(
        "scatter", "elements added", (64, 1000), lambda g, x: g.scatter_elements(x, chosen, added, 1, "add"),
        "ScatterElements", (chosen, added), {"axis": 1, "reduction": "add"},
    )  # fmt: skip


def concats() -> Iterator[Problem]:
    """Yield channels joined, of a U-Net and of DenseNet, keys joined to a cache of them, and short rows: boxes and scores."""
    for dims, second, axis in (
        ((1, 64, 128, 128), (1, 64, 128, 128), 1),
        ((1, 256, 28, 28), (1, 32, 28, 28), 1),
        ((1, 12, 1024, 64), (1, 12, 1, 64), 2),
        ((1, 8400, 4), (1, 8400, 80), 2),
        ((1, 12, 128, 32), (1, 12, 128, 32), 3),
        ((100000, 2), (100000, 3), 1),
    ):
        title = f"concat along {axis} with {'x'.join(map(str, second))}"
        yield Problem(
            "concat", title, dims, lambda g, x, y, axis=axis: g.concat([x, y], axis), "Concat", (), {"axis": axis},
            inputs=2, second=second,
        )  # fmt: skip
