"""Networks of vanilla recurrent cells: implementations, best first."""

from __future__ import annotations

from ..desc import Rnn
from .reference.recurrent import ReferenceRecurrent

IMPLEMENTATIONS = (ReferenceRecurrent[Rnn]("rnn"),)
