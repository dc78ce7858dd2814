"""Networks of LSTM cells on OpenCL: implementations, best first."""

from __future__ import annotations

from ...desc import Lstm
from ..nested.recurrent import NestedRecurrent

IMPLEMENTATIONS = (NestedRecurrent[Lstm]("opencl"),)
