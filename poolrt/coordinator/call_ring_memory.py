"""The memory and bells of rings of calls, and the gates of workers: made here, and sent to both sides by descriptor."""

from __future__ import annotations

import os

from poolrt.memory.arena import make_sealed_memory
from poolrt.workers.ipc.call_ring import NBYTES
from poolrt.workers.ipc.call_ring import CallRing as RingWords
from poolrt.workers.ipc.gate import NBYTES as GATE_BYTES
from poolrt.workers.ipc.gate import Gate
from poolrt.workers.ipc.protocol import Kind
from poolrt.workers.memory.arena_view import ArenaView

from .call_ring import CallRing
from .ring_memory import RingMemory


class CallRingMemory(RingMemory):
    """Makes rings of calls and gates."""

    def attach_calls(self, ring: CallRing) -> None:
        """Make a ring's memory and bells and send them to both sides. Raises OSError, and has sent nothing then."""
        view, worker, client = self._make("poolrt-calls", NBYTES)
        ring.view = RingWords(ring.number, view)
        self._pass(ring.worker, [Kind.ATTACH_CALLS, ring.number, ring.client], worker)
        self._pass(ring.client, [Kind.CALL_RING, ring.number], client)

    def make_gate(self, worker: int) -> Gate:
        """Make the gate of a worker, send it, and return this side of it. Raises OSError, and has sent nothing then."""
        memory = make_sealed_memory("poolrt-gate", GATE_BYTES)
        try:
            view = ArenaView(memory)
        except OSError:
            os.close(memory)
            raise
        self._pass(worker, [Kind.GATE], (memory,))
        return Gate(view.buffer(0, view.nbytes))
