"""One process of a storm: `python -m tests.poolrt.numba.storm JOB`, a JSON object, calls functions that others call, too.

All begin at the wall-clock time ``begin`` and call ``functions`` functions in the same order; these call one more. Each
compilation appends a line to the file ``log``: ``start`` or ``done``, the function, the process, the steady clock in seconds.
The first process that compiles the function ``f1`` does ``fault``: it kills itself ("creator") or the process of a number.
Prints a JSON object.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

_FUNCTION = """
@poolrt.njit
def f{n}(a):
    total = 0.0
    for i in range(a.shape[0]):
        total += shared(a[i]) * {n}
    return total
"""


def main(job: dict[str, Any]) -> None:
    """Call all functions and print whether the results are right, how long that took, and the counts."""
    import numba
    import numpy as np

    import poolrt.numba

    names: dict[str, Any] = {"poolrt": poolrt}
    text = "@poolrt.njit\ndef shared(x):\n    return x * 2.0 + 1.0\n"
    exec(text + "".join(_FUNCTION.format(n=n) for n in range(job["functions"])), names)
    numba.njit(lambda x: x)(1)
    compiler: Any = importlib.import_module("numba.core.compiler")
    compiler.compile_extra = _logging(compiler.compile_extra, job)
    time.sleep(max(0.0, job["begin"] - time.time()))
    begin = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        right = [names[f"f{n}"](np.ones(4)) == 12.0 * n for n in range(job["functions"])]
    print(json.dumps({"right": all(right), "seconds": time.monotonic() - begin, **poolrt.numba.stats()}))


def _logging(plain: Callable[..., Any], job: dict[str, Any]) -> Callable[..., Any]:
    log = os.open(job["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def compile_extra(typing_context: Any, target_context: Any, function: Any, *rest: Any, **options: Any) -> Any:
        name = function.__name__
        known = name == "shared" or (name[0] == "f" and name[1:].isdigit())
        if known:
            os.write(log, f"start {name} {os.getpid()} {time.monotonic()}\n".encode())
        if name == "f1" and job["fault"]:
            _harm_once(job)
        compiled = plain(typing_context, target_context, function, *rest, **options)
        if known:
            os.write(log, f"done {name} {os.getpid()} {time.monotonic()}\n".encode())
        return compiled

    return compile_extra


def _harm_once(job: dict[str, Any]) -> None:
    try:
        os.close(os.open(f"{job['log']}.fault", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid() if job["fault"] == "creator" else job["fault"], signal.SIGKILL)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
