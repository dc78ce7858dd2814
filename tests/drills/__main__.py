"""Run the drills: `python -m tests.drills [--only NAME]... [--rounds N] [--short | --long] [--seed S] [--json] [--list]`.

Progress goes to standard error. The table, the meaning of its columns, and the broken bounds, or one JSON object, go to standard
output. Exit status 0: every bound holds; 1: one is broken; 2: wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import replace
from typing import Final

from .catalogue import DRILLS, describe, play
from .outcome import Outcome
from .scale import LONG, SHORT, USUAL

#: The columns of the table -> what they mean.
_COLUMNS: Final = {
    "drill": "make drills ARGS=--list prints what each one does",
    "faults": "kills, damaged messages, or steps of a clock; not counted where a drill has the few that its line names",
    "calls": "of clients; calls that have to fail are not counted",
    "answered": "the share of these calls that got what they asked for; a function whose own worker is killed does not",
    "bad": "wrong results, errors without a known reason, and calls that hang: each breaks the drill",
    "longest call": "without the caller's own creation",
    "back after": "the longest time from a fault until everything worked again",
    "no core for": "the longest time that a ready process waited for a processor; bounds on calls are longer by that",
    "creations": "entries that were created; the least and the most of several rounds",
    "in Redis": "entries there at the end; the least and the most of several rounds",
    "took": "the time of the whole drill",
    "verdict": "holds, if all bounds of the drill do",
}
#: Verdict -> its word after a number.
_VERDICTS: Final = {"holds": "hold", "BROKEN": "broken", "skipped": "skipped"}


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.drills", description="Fault drills of store and pool.")
    parser.add_argument("--only", action="append", metavar="NAME", choices=list(DRILLS), help="this drill; repeatable")
    parser.add_argument("--rounds", type=_rounds, metavar="N", help="rounds of the drill without a fault")
    parser.add_argument("--kills", type=_rounds, metavar="N", help="processes of a pool that are killed")
    parser.add_argument("--mutations", type=_rounds, metavar="N", help="damaged graphs and model files")
    parser.add_argument("--interrupts", type=_rounds, metavar="N", help="programs that are interrupted")
    parser.add_argument("--minutes", type=_rounds, metavar="N", help="minutes that the soak lasts")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="another one draws other kills and damages")
    parser.add_argument("--repeat", type=_rounds, default=1, metavar="N", help="do each drill N times")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--short", action="store_true", help="the small numbers of the test suite")
    size.add_argument("--long", action="store_true", help="1,000 kills, 100,000 damages, 5,000 interrupts: hours")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--list", action="store_true", help="list the drills")
    chosen = parser.parse_args(arguments)
    if chosen.list:
        for name in DRILLS:
            print(f"{name:26}{describe(name)}")
        return 0
    scale = SHORT if chosen.short else LONG if chosen.long else USUAL
    numbers = {
        name: getattr(chosen, name) for name in ("rounds", "kills", "mutations", "interrupts") if getattr(chosen, name)
    }
    scale = replace(scale, seed=chosen.seed, **numbers)
    if chosen.minutes:
        scale = replace(scale, soak_s=60.0 * chosen.minutes)
    names = [name for name in chosen.only or DRILLS for _ in range(chosen.repeat)]
    outcomes = []
    for number, name in enumerate(names, 1):
        print(f"[{number}/{len(names)}] {name}: {describe(name)}", file=sys.stderr, flush=True)
        outcomes.append(play(name, scale))
        for line in _remarks(outcomes[-1]):
            print(f"    {line}", file=sys.stderr, flush=True)
    if chosen.json:
        print(json.dumps({"drills": [outcome.as_dict() for outcome in outcomes]}))
    else:
        legend = "\n".join(f"{name:14}{meaning}" for name, meaning in _COLUMNS.items())
        print(table(outcomes), legend, summary(outcomes), sep="\n\n")
    return int(any(outcome.verdict == "BROKEN" for outcome in outcomes))


def table(outcomes: list[Outcome]) -> str:
    """Return the outcomes as one table."""
    rows: list[list[str]] = [[*_COLUMNS]]
    for one in outcomes:
        rows.append(
            [
                one.drill,
                str(one.faults or "-"),
                str(one.calls or "-"),
                _percent(one),
                str(one.bad),
                f"{one.longest_s:.2f} s",
                f"{one.back_s:.2f} s" if one.back_s else "-",
                f"{one.noise_s:.2f} s",
                _span(one.creations),
                _span(one.in_redis),
                f"{one.seconds:.1f} s",
                one.verdict,
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def summary(outcomes: list[Outcome]) -> str:
    """Return a line for each bound that was broken and each drill that was skipped, and one with their numbers."""
    lines = [f"{one.drill}: BROKEN: {bound}" for one in outcomes for bound in one.broken]
    lines += [f"{one.drill}: skipped: {one.skipped}" for one in outcomes if one.skipped]
    found = Counter(one.verdict for one in outcomes)
    numbers = [f"{found[verdict]} {word}" for verdict, word in _VERDICTS.items() if found[verdict]]
    return "\n".join([*lines, f"{len(outcomes)} drills: {', '.join(numbers)}"])


def _remarks(outcome: Outcome) -> list[str]:
    skipped = [f"skipped: {outcome.skipped}"] if outcome.skipped else []
    return [*skipped, *outcome.notes, *(f"BROKEN: {bound}" for bound in outcome.broken)]


def _percent(outcome: Outcome) -> str:
    """Return the share of calls that were answered, rounded down: 100 % are all."""
    return f"{1000 * outcome.answered // outcome.calls / 10:g} %" if outcome.calls else "-"


def _span(numbers: list[int]) -> str:
    if not numbers:
        return "-"
    least, most = min(numbers), max(numbers)
    return str(least) if least == most else f"{least} to {most}"


def _rounds(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
