"""Functions in a worker, without the worker."""

from __future__ import annotations

import tracemalloc

import cloudpickle
import msgpack

from poolrt.workers.ipc.protocol import Kind
from poolrt.workers.processes.functions import Functions
from poolrt.workers.processes.pickled import load_result


def test_a_long_argument_is_copied_once_when_it_is_loaded() -> None:
    size = 8_000_000
    payload = msgpack.packb([["/"], cloudpickle.dumps((len, (b"x" * size,), {}))])
    functions = Functions()
    functions.apply([Kind.APPLY, 1, 1, 0, msgpack.packb([[], cloudpickle.dumps((len, ("",), {}))])])  # imports modules
    tracemalloc.start()
    try:
        answer = functions.apply([Kind.APPLY, 1, 1, 0, payload])
        assert tracemalloc.get_traced_memory()[1] < 1.25 * size
    finally:
        tracemalloc.stop()
    assert answer[0] == Kind.ANSWER
    assert load_result(answer[3]) == size
