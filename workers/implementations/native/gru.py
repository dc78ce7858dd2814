"""Networks of GRU cells: implementations, best first."""

from __future__ import annotations

from ...desc import Gru
from ..nested.recurrent import NestedRecurrent
from ..reference.recurrent import ReferenceRecurrent

IMPLEMENTATIONS = (NestedRecurrent[Gru]("cpu"), ReferenceRecurrent[Gru]("gru"))
