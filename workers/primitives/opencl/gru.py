"""Networks of GRU cells on OpenCL: implementations, best first."""

from __future__ import annotations

from ...desc import Gru
from ..reference.recurrent import ReferenceRecurrent
from .reference import OpenClReference

IMPLEMENTATIONS = (OpenClReference(ReferenceRecurrent[Gru]("gru")),)
