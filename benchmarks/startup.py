"""From the start of `python` to the first result of a small cached kernel, beside `import numpy` alone."""

from __future__ import annotations

import subprocess
import sys
import tempfile
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


def main(rounds: int = 15) -> None:
    """Print both medians and their ratio."""
    with tempfile.TemporaryDirectory() as home:
        environment = installed_environment(POOLRT_HOME=home)

        def python(code: str) -> str:
            done = subprocess.run(
                [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
            )
            return done.stdout.strip()

        try:
            python(_FIRST_RESULT)  # creates the kernel
            source = python(_FIRST_RESULT)
            if source != "files":
                raise SystemExit(f"expected a hit in the node's files, got {source}")
            found = alternate(
                {
                    "numpy": lambda: seconds(lambda: python("import numpy")),
                    "poolrt": lambda: seconds(lambda: python(_FIRST_RESULT)),
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


if __name__ == "__main__":
    arguments(__doc__)
    main()
