"""From the start of `python` to the first result of a small cached kernel, alone and on a pool, beside `import numpy` alone."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from measure import alternate, arguments, installed_environment, record, seconds

_FIRST_RESULT = """
import numpy
from poolrt import Arg, Eltwise, Engine, Memory, MemoryDesc, Stream

engine = Engine("cpu")
md = MemoryDesc((64, 100), "f32")
primitive = Eltwise.PrimitiveDesc(engine, md, md, "relu").create()
src, dst = Memory(md, engine), Memory(md, engine)
src.numpy()[:] = numpy.arange(-3200, 3200).reshape(64, 100)
primitive.execute(Stream(engine), {Arg.SRC: src, Arg.DST: dst})
if (dst.numpy() != numpy.maximum(src.numpy(), 0)).any():
    raise SystemExit("wrong result")
print(primitive.source)
"""


_FIRST_RUN = """
import poolrt

with poolrt.Pool(workers=2) as pool:
    import numpy  # while the pool starts

    graph = poolrt.Graph("relu")
    graph.output("y", graph.eltwise(graph.input("x", (64, 100)), "relu"))
    model = pool.load(graph, progress=False)
    x = numpy.arange(-3200, 3200, dtype="float32").reshape(64, 100)
    y = model.run(x=x)["y"]
    import time

    print(time.monotonic(), flush=True)
    if (y != numpy.maximum(x, 0)).any():
        raise SystemExit("wrong result")
"""


def main(rounds: int = 15) -> None:
    """Print both medians and their ratio."""
    with tempfile.TemporaryDirectory() as home:
        environment = installed_environment(POOLRT_HOME=home)

        def python(code: str) -> str:
            done = subprocess.run(
                [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
            )
            return done.stdout.strip()

        def first_run(code: str) -> float:
            begin = time.monotonic()
            return float(python(code)) - begin

        def processor(code: str) -> float:
            """Return the processor time of all processes that a program starts, to its end."""
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            python(code)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        try:
            python(_FIRST_RESULT)  # creates the kernel
            python(_FIRST_RUN)
            source = python(_FIRST_RESULT)
            if source != "files":
                raise SystemExit(f"expected a hit in the node's files, got {source}")
            found = alternate(
                {
                    "numpy": lambda: seconds(lambda: python("import numpy")),
                    "poolrt": lambda: seconds(lambda: python(_FIRST_RESULT)),
                    "pool": lambda: first_run(_FIRST_RUN),
                    "pool later": lambda: first_run(f"import numpy\n{_FIRST_RUN}"),
                    "numpy, processor": lambda: processor("import numpy"),
                    "pool, processor": lambda: processor(_FIRST_RUN),
                },
                rounds,
            )
        finally:
            subprocess.run(
                [sys.executable, "-m", "poolrt", "cache", "down"], env=environment, check=True, capture_output=True
            )
    ratio = found["poolrt"] / found["numpy"]
    record(
        "Start of python to the first result of a small cached kernel",
        [
            f"python, import numpy: {found['numpy'] * 1e3:.0f} ms",
            f"python, import poolrt, first result: {found['poolrt'] * 1e3:.0f} ms",
            f"ratio {ratio:.2f} (goal: at most 2)",
        ],
    )
    record(
        "Start of python to the first result of a small cached kernel on a pool of two workers",
        [
            f"python, import numpy: {found['numpy'] * 1e3:.0f} ms",
            f"python, a pool, first result: {found['pool'] * 1e3:.0f} ms",
            f"ratio {found['pool'] / found['numpy']:.2f} (goal: at most 1.6)",
            f"with NumPy imported before the pool is made: {found['pool later'] * 1e3:.0f} ms, "
            f"ratio {found['pool later'] / found['numpy']:.2f}",
            f"processor time of all processes, with their end: {found['pool, processor'] * 1e3:.0f} ms; "
            f"import numpy {found['numpy, processor'] * 1e3:.0f} ms",
        ],
    )


if __name__ == "__main__":
    arguments(__doc__)
    main()
