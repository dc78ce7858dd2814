"""Networks of vanilla cells on OpenCL: implementations, best first."""

from __future__ import annotations

from ...desc import Rnn
from ..reference.recurrent import ReferenceRecurrent
from .reference import OpenClReference

IMPLEMENTATIONS = (OpenClReference(ReferenceRecurrent[Rnn]("rnn")),)
