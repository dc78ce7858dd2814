"""Nine well-known networks with seeded weights and expected outputs: for examples, tests and benchmarks.

The graphs are those that the onnx package ships without weights; nothing is downloaded.
"""

from .expected_output import Expected, expected
from .light import NAMES, build, stored, write

__all__ = ["NAMES", "Expected", "build", "expected", "stored", "write"]
