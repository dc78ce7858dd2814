"""Networks of GRU cells: implementations, best first."""

from __future__ import annotations

from ...desc import Gru
from ..nested.recurrent import NestedRecurrent

IMPLEMENTATIONS = (NestedRecurrent[Gru]("cpu"),)
