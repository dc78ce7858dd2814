"""Networks of LSTM cells on OpenCL: implementations, best first."""

from __future__ import annotations

from ...desc import Lstm
from ..nested.recurrent import NestedRecurrent
from ..reference.recurrent import ReferenceRecurrent
from .reference import OpenClReference

IMPLEMENTATIONS = (
    NestedRecurrent[Lstm]("opencl"),
    OpenClReference(ReferenceRecurrent[Lstm]("lstm")),
)
