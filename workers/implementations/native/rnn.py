"""Networks of vanilla recurrent cells: implementations, best first."""

from __future__ import annotations

from ...desc import Rnn
from ..nested.float32 import NestedFloat32
from ..nested.recurrent import NestedRecurrent

IMPLEMENTATIONS = (NestedRecurrent[Rnn]("cpu"), NestedFloat32("cpu"))
