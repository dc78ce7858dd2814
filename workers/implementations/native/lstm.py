"""Networks of LSTM cells: implementations, best first."""

from __future__ import annotations

from ...desc import Lstm
from ..nested.recurrent import NestedRecurrent

IMPLEMENTATIONS = (NestedRecurrent[Lstm]("cpu"),)
