"""Networks of GRU cells on OpenCL: implementations, best first."""

from __future__ import annotations

from ...desc import Gru
from ..nested.recurrent import NestedRecurrent
from ..reference.recurrent import ReferenceRecurrent
from .reference import OpenClReference

IMPLEMENTATIONS = (
    NestedRecurrent[Gru]("opencl"),
    OpenClReference(ReferenceRecurrent[Gru]("gru")),
)
