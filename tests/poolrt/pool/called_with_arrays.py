"""Functions of arrays that tests have workers call, in a module that imports NumPy and not pytest: see `called`."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_KEPT: list[Any] = []


def describe(x: NDArray[Any]) -> tuple[Any, ...]:
    return x.shape, x.dtype, x.flags.c_contiguous, x.flags.f_contiguous, x.tobytes()


def same(x: Any) -> Any:
    return x


def with_what_it_is(x: NDArray[Any]) -> tuple[Any, NDArray[Any], NDArray[Any]]:
    """Return what the array is here, the array, and a new one of its order in memory."""
    return describe(x), x, x.copy(order="K")


def nested(x: dict[str, Any], *more: Any, key: Any = None) -> dict[str, Any]:
    first, (second, third) = x["first"], x["others"]
    return {
        "sums": [first.sum(), second.sum()],
        "same twice": first is third,
        "views": (first[1:], first[:, 0], second),
        "bytes": more,
        "key": key,
        "new": [second * 2, first + 1],
    }


def keep(x: NDArray[Any], number: int) -> int:
    _KEPT.append((number, x, x[5:]))
    return os.getpid()


def kept(_: int) -> list[tuple[int, NDArray[Any], NDArray[Any]]]:
    return _KEPT


def sum_in_fork(x: NDArray[Any]) -> float:
    """Return the sum of an array that a forked process computes."""
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        os.write(send, str(float(x.sum())).encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive) as file:
        text = file.read()
    os.waitpid(child, 0)
    return float(text)


def scribble(x: NDArray[Any]) -> None:
    x += 1
    raise ValueError("written")


def count_up(x: NDArray[Any], places: slice) -> tuple[float, NDArray[Any], NDArray[Any]]:
    before = float(x.sum())
    x[places] += 1
    return before, x, x[-1000:]


def write_in_fork(x: NDArray[Any]) -> float:
    child = os.fork()
    if not child:
        x += 1
        os._exit(0)
    os.waitpid(child, 0)
    return float(x.sum())


def keep_and_write(x: NDArray[Any], number: int) -> None:
    x[:50_000] = -number
    _KEPT.append((number, x))


def kept_and_written(_: int) -> list[tuple[int, NDArray[Any]]]:
    found = [(number, x.copy()) for number, x in _KEPT]
    for _, x in _KEPT:
        x += 1000  # an array that is kept may be written later, too
        x -= 1000
    return found


def double_or_die(x: NDArray[Any], path: str) -> NDArray[Any]:
    Path(path).write_text(str(os.getpid()))
    if len(x) % 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return x * 2


def threes(nbytes: int) -> NDArray[Any]:
    return np.full(nbytes, 3, np.uint8)


def describe_all(*args: Any) -> list[Any]:
    return [
        (x.shape, x.dtype.str, x.strides, x.flags.writeable, x.tobytes()) if hasattr(x, "shape") else x for x in args
    ]


def overwrite(x: NDArray[Any], value: int) -> int:
    x[...] = value
    return int(x.sum())


def sum_when_gone(path: str, x: Any) -> float:
    """Return the sum of an array or number once a file, if there is a path, is gone."""
    while path and os.path.exists(path):
        time.sleep(0.001)
    return float(np.sum(x))


def last(x: NDArray[Any], count: int) -> NDArray[Any]:
    return x[-count:]


def raise_first(x: NDArray[Any]) -> None:
    raise LookupError(int(x[0]))
