"""Networks of LSTM cells: implementations, best first."""

from __future__ import annotations

from ...desc import Lstm
from ..nested.float32 import NestedFloat32
from ..nested.recurrent import NestedRecurrent

IMPLEMENTATIONS = (NestedRecurrent[Lstm]("cpu"), NestedFloat32("cpu"))
