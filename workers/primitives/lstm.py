"""Networks of LSTM cells: implementations, best first."""

from __future__ import annotations

from ..desc import Lstm
from .reference.recurrent import ReferenceRecurrent

IMPLEMENTATIONS = (ReferenceRecurrent[Lstm]("lstm"),)
