"""Networks of GRU cells: implementations, best first."""

from __future__ import annotations

from ...desc import Gru
from ..nested.float32 import NestedFloat32
from ..nested.recurrent import NestedRecurrent

IMPLEMENTATIONS = (NestedRecurrent[Gru]("cpu"), NestedFloat32("cpu"))
