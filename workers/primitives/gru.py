"""Networks of GRU cells: implementations, best first."""

from __future__ import annotations

from ..desc import Gru
from .reference.recurrent import ReferenceRecurrent

IMPLEMENTATIONS = (ReferenceRecurrent[Gru]("gru"),)
