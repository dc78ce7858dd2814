"""Networks of LSTM cells on OpenCL: implementations, best first."""

from __future__ import annotations

from ...desc import Lstm
from ..reference.recurrent import ReferenceRecurrent
from .reference import OpenClReference

IMPLEMENTATIONS = (OpenClReference(ReferenceRecurrent[Lstm]("lstm")),)
