"""A client of the soak: a process that uses a served pool until it is asked to end, and connects again when it is lost.

`python -m tests.drills.soak_client SOCKET SEED`; the end of its standard input ends it. Then it prints one JSON object: for
each kind of call what `Tally` holds.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any, Final

import numpy as np

import poolrt
from poolrt.errors import PoolError

from .traffic import CALL_S, WORK, Tally, Traffic, WrongResult

#: Seconds between two attempts to connect.
_AGAIN_S: Final = 0.05
#: Seconds after which a client leaves by itself and comes back, which frees all that it had.
_STAYS_S: Final = 10.0
_VALUES: Final = 1 << 16


class ArrayTraffic(Traffic):
    """Traffic that also sends arrays through functions, and calls a function on many values at once."""

    def _arrays(self) -> None:
        number = self._draw()
        given = np.arange(number, number + _VALUES, dtype=np.float32)
        if not np.array_equal(self._pool.submit(np.negative, given).result(CALL_S), -given):
            raise WrongResult("a function returned another's array")

    def _many(self) -> None:
        number = self._draw()
        if list(self._pool.map(abs, range(-number - 50, 0), chunksize=7)) != [*range(number + 50, 0, -1)]:
            raise WrongResult("a map of a function returned wrong values")


def work(path: str, seed: int, over: threading.Event) -> dict[str, Tally]:
    """Use the pool that is served at a path until ``over``; return what became of the calls."""
    kinds = (*WORK, "load", "arrays", "many")
    found = {kind: Tally() for kind in (*kinds, "connect")}
    while not over.is_set():
        seed += 1
        try:
            with poolrt.connect(path, progress=False) as pool:
                traffic = ArrayTraffic(pool, kinds, seed, pause_s=0.002)
                with traffic:
                    _await_end(traffic, over)
                    found["connect"].bad += [f"hangs: {kind}" for kind in traffic.end()]
                found["connect"].right += 1
                for kind, tally in traffic.tallies.items():
                    found[kind].add(tally)
        except (PoolError, OSError) as error:
            found["connect"].refused[f"{type(error).__name__}: {str(error)[:120]}"] += 1
            over.wait(_AGAIN_S)
    return found


def _await_end(traffic: Traffic, over: threading.Event) -> None:
    """Return once the client was asked to end, has lost its pool, or has stayed for long."""
    left_s = _STAYS_S
    while left_s > 0 and not traffic.lost and not over.wait(_AGAIN_S):
        left_s -= _AGAIN_S


def main() -> None:
    """Work until the end of standard input, then print what happened."""
    over = threading.Event()
    threading.Thread(target=_wait_for_end, args=(over,), daemon=True).start()
    found: dict[str, Any] = {kind: tally.report() for kind, tally in work(sys.argv[1], int(sys.argv[2]), over).items()}
    print(json.dumps(found))


def _wait_for_end(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


if __name__ == "__main__":
    main()
