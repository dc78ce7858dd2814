"""Networks of vanilla cells on OpenCL: implementations, best first."""

from __future__ import annotations

from ...desc import Rnn
from ..nested.recurrent import NestedRecurrent
from ..reference.recurrent import ReferenceRecurrent
from .reference import OpenClReference

IMPLEMENTATIONS = (
    NestedRecurrent[Rnn]("opencl"),
    OpenClReference(ReferenceRecurrent[Rnn]("rnn")),
)
