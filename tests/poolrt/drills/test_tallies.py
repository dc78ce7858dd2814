"""Tallies of answers, which clients of the soak report as JSON."""

from __future__ import annotations

import json

from ...drills.traffic import Tally


def test_a_report_keeps_all_answers_those_that_were_refused_too() -> None:
    tally = Tally(right=3, struck=1, bad=["one"], longest_s=0.5)
    tally.refused["WorkerLost: lost"] += 2
    again = Tally.of_report(json.loads(json.dumps(tally.report())))
    assert again == tally
    again.add(tally)
    assert (again.asked, again.refused.total()) == (14, 4)
