"""One process that builds OpenCL programs by `poolrt.opencl.Program` or by pyopencl's, launches each, and checks the results.

The clock begins when the parent says so, with a context that is ready.
"""

from __future__ import annotations

import json
import sys
import time

import door_programs
import numpy as np
import pyopencl as cl
from pocl_device import pocl_device

#: How often a process of pyopencl tries to build a program.
ATTEMPTS = 5


def main(door: str, count: int) -> None:
    """Do it, and print how long it took, and how many programs were built here if that is known."""
    try:
        device, _ = pocl_device()
    except LookupError as error:
        print(error, flush=True)
        return
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    source = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=door_programs.values())
    target = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4 * door_programs.SIZE)
    result = np.empty(door_programs.SIZE, np.float32)
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.perf_counter()
    if door == "poolrt":
        import poolrt.opencl as opencl

        make = opencl.Program
    else:
        make = cl.Program
    failed = 0
    for number in range(count):
        for attempt in range(ATTEMPTS):
            try:
                program = make(context, door_programs.program(number)).build()
                break
            except cl.RuntimeError:
                # PoCL fails now and then where several processes build one program without a single creator.
                failed += 1
                if door == "poolrt" or attempt == ATTEMPTS - 1:
                    raise
        program.f(queue, (door_programs.SIZE,), (door_programs.LOCAL,), source, target)
        cl.enqueue_copy(queue, result, target)
        door_programs.check(number, result)
    seconds = time.perf_counter() - begin
    counts = opencl.stats() if door == "poolrt" else {}
    print(json.dumps({"seconds": seconds, "counts": counts, "failed": failed}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
