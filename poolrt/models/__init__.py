"""Nine well-known networks with seeded weights and expected outputs: for examples, tests and benchmarks.

The graphs are those that the onnx package ships without weights; nothing is downloaded.
"""

from .expected_output import Expected, load_expected
from .light import NAMES, build, provide, write

__all__ = ["NAMES", "Expected", "build", "load_expected", "provide", "write"]
