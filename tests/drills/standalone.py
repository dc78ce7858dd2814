"""Rows for drills that are programs of their own, with numbers of the catalogue's scale."""

from __future__ import annotations

from typing import Final

from . import interrupts, model_files
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


def random_interrupts(stage: Stage) -> None:
    """SIGINT at random moments of a command and of a program with a pool: status 130, one line, nothing left."""
    seed, half = stage.random.randrange(_NUMBERS), stage.scale.interrupts // 2
    place = interrupts.Place()
    stage.later(place.close)
    outcome = stage.outcome
    for program in ("run", "script"):
        report = interrupts.drill(place, program, half, seed)
        good = sum(report.verdicts[verdict] for verdict in interrupts.GOOD)
        outcome.faults, outcome.calls, outcome.answered = (
            outcome.faults + half,
            outcome.calls + half,
            outcome.answered + good,
        )
        outcome.back_s = max(outcome.back_s, report.longest_s)
        outcome.broken += report.examples
        stage.expect(not report.broken, f"{program}, seed {seed}: {dict(report.verdicts)}")
        stage.note(f"{program}, seed {seed}: {', '.join(f'{count} {name}' for name, count in report.verdicts.items())}")
