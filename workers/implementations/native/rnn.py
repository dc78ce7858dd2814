"""Networks of vanilla recurrent cells: implementations, best first."""

from __future__ import annotations

from ...desc import Rnn
from ..nested.recurrent import NestedRecurrent

IMPLEMENTATIONS = (NestedRecurrent[Rnn]("cpu"),)
