"""Rows for drills that are programs of their own, with numbers of the catalogue's scale."""

from __future__ import annotations

from typing import Final

from . import model_files
from .stage import Stage

#: Mutations have numbers; a drill draws its first one from so many.
_NUMBERS: Final = 1 << 30


def mutated_model_files(stage: Stage) -> None:
    """Import damaged ONNX files: imported or refused with a documented error, in little memory and time."""
    first, count = stage.random.randrange(_NUMBERS), stage.scale.mutations
    found = model_files.drill(count, first)
    outcome = stage.outcome
    outcome.faults = outcome.calls = count
    outcome.answered = sum(found.outcomes.values())
    outcome.bad, outcome.longest_s = len(found.foreign) + len(found.unforeseen), found.slowest_s
    outcome.broken += found.broken
    stage.expect(found.mutations == count, f"{found.mutations} of {count} files were looked at")
    stage.note(", ".join(f"{number} {name}" for name, number in found.outcomes.items()))
    stage.note(f"at most {found.peak_bytes >> 20} MiB resident, files from number {first} on")
