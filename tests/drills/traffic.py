"""Clients of a pool during a drill: threads that run a model, call functions and load graphs, and look at each result.

Every answer has one of four forms: right; *struck*, an error because processes that worked on this very call were killed;
refused, any other documented error; and bad, a wrong value or an exception that is not documented.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field, fields
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

import poolrt
from poolrt.errors import CoordinatorLost, CreatorLost, PoolClosed, PoolError, WorkerLost

from .delay import all_delayed_s

#: Bound, in seconds, on one call: far beyond any, so that what exceeds it hangs.
CALL_S: Final = 120.0
#: Kinds of calls that need no creation.
WORK: Final = ("run", "futures", "map", "function")
#: Parts of the errors of calls whose own processes were killed.
_STRUCK: Final = (
    "functions are not repeated",
    "were lost one after the other while",
    "processes (the compiler crashed",
)
_ROWS: Final = 32
_INPUTS: Final = 8
_Array = NDArray[Any]


@dataclass(slots=True)
class Tally:
    """Answers to the calls of one kind; times in seconds."""

    right: int = 0
    struck: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)
    longest_s: float = 0.0

    @property
    def asked(self) -> int:
        """The number of calls that have been answered."""
        return self.right + self.struck + self.refused.total() + len(self.bad)

    def add(self, other: Tally) -> None:
        """Count the answers of another tally too."""
        self.right += other.right
        self.struck += other.struck
        self.refused += other.refused
        self.bad += other.bad
        self.longest_s = max(self.longest_s, other.longest_s)

    def report(self) -> dict[str, Any]:
        """Return the answers as JSON can hold them; `dataclasses.asdict` makes tuples of the keys of a counter."""
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"refused": dict(self.refused)}

    @classmethod
    def of_report(cls, report: dict[str, Any]) -> Self:
        """Return the answers in a report."""
        return cls(**{**report, "refused": Counter(report["refused"])})

    def __str__(self) -> str:
        others = f", {self.refused.total()} refused" if self.refused else ""
        return f"{self.right} of {self.asked} right, {self.struck} killed{others}, longest {self.longest_s:.2f} s"


class Traffic:
    """Threads that use a pool until the end of the block, or until their pool is lost; ``kinds`` says for what.

    ``load`` builds another small graph each time, with kernels that no store has: sizes are drawn from ``seed``. ``urgent`` lets
    calls go before others, and cancels some. Each thread waits ``pause_s`` seconds after each call.
    """

    def __init__(
        self, pool: poolrt.Pool, kinds: tuple[str, ...] = (*WORK, "load"), seed: int = 1, pause_s: float = 0.0
    ) -> None:
        self.tallies = {kind: Tally() for kind in kinds}
        #: When the calls of each kind ended with the loss of the pool, on the steady clock.
        self.lost: dict[str, float] = {}
        #: `all_delayed_s` at the last of these.
        self.delayed_s = 0.0
        #: The primitives that were created for loads.
        self.created = 0
        self._pool = pool
        self._pause_s = pause_s
        self._over = threading.Event()
        self._numbers = itertools.count(1)
        self._random = random.Random(seed)
        generator = np.random.default_rng(seed)
        self._inputs: list[_Array] = [
            generator.standard_normal((_ROWS, 256)).astype(np.float32) for _ in range(_INPUTS)
        ]
        graph, self._weights = product_graph()
        self.model = pool.load(graph, progress=False)
        self._right = [np.array(self.model.run(x=x)["y"]) for x in self._inputs]
        for x, y in zip(self._inputs, self._right, strict=True):
            np.testing.assert_allclose(y, np.maximum(x @ self._weights, 0), rtol=1e-3, atol=1e-3)
        self._threads = [threading.Thread(target=self._work, args=(kind,), daemon=True) for kind in kinds]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> list[str]:
        """Let each thread end after its call; return the kinds of those that do not, because they hang."""
        self._over.set()
        until = time.monotonic() + CALL_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return [kind for kind, thread in zip(self.tallies, self._threads, strict=True) if thread.is_alive()]

    def once(self) -> None:
        """Do one call of each kind in this thread, for which nothing may fail."""
        for kind in self.tallies:
            getattr(self, f"_{kind}")()

    def total(self, *kinds: str) -> Tally:
        """Return the answers to the calls of some kinds as one."""
        whole = Tally()
        for tally in (self.tallies[kind] for kind in kinds if kind in self.tallies):
            whole.add(tally)
        return whole

    def _work(self, kind: str) -> None:
        tally, act = self.tallies[kind], getattr(self, f"_{kind}")
        while not self._over.is_set() and not self.lost.get(kind):
            begin = time.monotonic()
            try:
                act()
            except (CoordinatorLost, PoolClosed) as error:
                self.lost[kind] = time.monotonic()
                self.delayed_s = all_delayed_s()
                tally.refused[_short(error)] += 1
            except PoolError as error:
                struck = isinstance(error, WorkerLost | CreatorLost) and any(part in str(error) for part in _STRUCK)
                tally.struck += struck
                if not struck:
                    tally.refused[_short(error)] += 1
            except Exception as error:  # noqa: BLE001 - such an exception is a finding of the drill
                tally.bad.append(_short(error))
            else:
                tally.right += 1
            tally.longest_s = max(tally.longest_s, time.monotonic() - begin)
            self._over.wait(self._pause_s)

    def _run(self) -> None:
        number = self._draw()
        self._check(number, self.model.run(x=self._inputs[number]))

    def _futures(self) -> None:
        drawn = [self._draw() for _ in range(8)]
        futures = [self.model.submit(x=self._inputs[number]) for number in drawn]
        for number, future in zip(drawn, futures, strict=True):
            self._check(number, future.result(CALL_S))

    def _map(self) -> None:
        drawn = [self._draw() for _ in range(16)]
        results = self.model.map({"x": self._inputs[number]} for number in drawn)
        for number, result in zip(drawn, results, strict=True):
            self._check(number, result)

    def _function(self) -> None:
        number = next(self._numbers)
        if self._pool.submit(divmod, number * 7 + 3, 7).result(CALL_S) != (number, 3):
            raise WrongResult("a function returned another's result")

    def _urgent(self) -> None:
        numbers = [next(self._numbers) for _ in range(10)]
        later, urgent = self._pool.at_priority(-1), self._pool.at_priority(1)
        futures = [later.submit(divmod, number * 7 + 3, 7) for number in numbers[1:]]
        first = urgent.submit(divmod, numbers[0] * 7 + 3, 7)
        kept = [future for future in futures if future is not futures[-3] or not future.cancel()]
        expected = [(number, 3) for number, future in zip(numbers[1:], futures, strict=True) if future in kept]
        if first.result(CALL_S) != (numbers[0], 3) or [future.result(CALL_S) for future in kept] != expected:
            raise WrongResult("calls of two priorities returned others' results")

    def _load(self) -> None:
        graph, x, y = _uncommon_convolution(self._random)
        with closing(self._pool.load(graph, progress=False)) as model:
            self.created += model.report["primitives"]["created"]
            if not np.array_equal(model.run(x=x)["y"], y):
                raise WrongResult("a model that was just loaded returned a wrong result")

    def _draw(self) -> int:
        return next(self._numbers) % _INPUTS

    def _check(self, number: int, outputs: dict[str, _Array]) -> None:
        if not np.array_equal(outputs["y"], self._right[number]):
            raise WrongResult("a run returned another result than before")


class WrongResult(Exception):
    """A call got a value that is not its result."""


def product_graph() -> tuple[poolrt.Graph, _Array]:
    """Return y = relu(x @ w) for x of 32x256 float32, and w."""
    weights = np.random.default_rng(0).standard_normal((256, 128)).astype(np.float32)
    graph = poolrt.Graph("product")
    graph.output("y", graph.eltwise(graph.matmul(graph.input("x", (_ROWS, 256)), weights), "relu"))
    return graph, weights


def _uncommon_convolution(chance: random.Random) -> tuple[poolrt.Graph, _Array, _Array]:
    """Return a convolution of drawn sizes, for which kernels are compiled, an input, and its result.

    All numbers are small integers, so each sum is exact in any order.
    """
    channels, filters, height, width = (chance.randrange(1, limit) for limit in (32, 32, 6, 6))
    generator = np.random.default_rng(channels)
    x = generator.integers(-3, 4, (1, channels, 12, 12)).astype(np.float32)
    weights = generator.integers(-3, 4, (filters, channels, height, width)).astype(np.float32)
    graph = poolrt.Graph(f"convolution {weights.shape}")
    graph.output("y", graph.convolution(graph.input("x", x.shape), weights))
    windows = np.lib.stride_tricks.sliding_window_view(x, (height, width), (2, 3))
    return graph, x, np.einsum("nchwij,fcij->nfhw", windows, weights)


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:120]}"
