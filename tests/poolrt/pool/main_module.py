"""A program whose functions use what its main module defines; it prints their results, by a pool or by a ProcessPoolExecutor."""

import math
import os
import sys
from collections import namedtuple
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import numpy as np

SCALE = 3
TABLE = np.arange(100_000.0)
state = None
Pair = namedtuple("Pair", "a b")  # noqa: PYI024 - a class of this kind too


class Colour(Enum):
    RED = 1


@dataclass
class Circle:
    r: float

    def area(self) -> float:
        return area(self.r)


class Refused(Exception):
    pass


def helper(r: float, factor: int = SCALE) -> float:
    return math.pi * r**2 * factor


def area(r: float) -> float:
    return helper(r) * SCALE + float(TABLE[7]) + float(square(r))


def fact(n: int) -> int:
    return 1 if n < 2 else n * fact(n - 1)


def initialize(value: str) -> None:
    global state
    state = value


def get_state() -> Any:
    return state


def refuse() -> None:
    raise Refused("no")


def make(r: float) -> tuple[Any, ...]:
    return Circle(r), Colour.RED, Pair(1, 2), Circle


def square(x: float) -> float:
    return x * x


if os.environ.get("WITH_NUMBA"):
    import numba

    square = numba.njit(square)


def results(executor: Executor) -> list[Any]:
    with executor as pool:
        found: list[Any] = [
            pool.submit(area, 2.0).result(),
            *pool.map(area, [1.0, 2.0]),
            pool.submit(fact, 20).result(),
        ]
        found += [pool.submit(get_state).result() for _ in range(4)]
        made = pool.submit(make, 2.0).result()
        found += [
            type(made[0]) is Circle,
            made[0].area(),
            made[1] is Colour.RED,
            type(made[2]) is Pair,
            made[3] is Circle,
        ]
        found += [pool.submit(made[0].area).result(), list(pool.map(partial(helper, factor=5), [2.0]))]
        try:
            pool.submit(refuse).result()
        except Refused as error:
            found += [repr(error), "refuse" in str(error.__cause__)]
    return found


if __name__ == "__main__":
    if sys.argv[1:] == ["processes"]:
        # A fork has the main module as it is; from standard input no other kind could.
        import multiprocessing

        fork = multiprocessing.get_context("fork")
        print(results(ProcessPoolExecutor(2, mp_context=fork, initializer=initialize, initargs=("set",))))
    else:
        import poolrt

        print(results(poolrt.Pool(2, threads=1, initializer=initialize, initargs=("set",))))
