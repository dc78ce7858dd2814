"""A drill reports a broken bound: these have faults that no store could tolerate."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ...drills import catalogue
from ...drills.__main__ import main
from ...drills.actor import key_of
from ...drills.catalogue import play
from ...drills.scale import SHORT
from ...drills.stage import DrillSkipped, Stage

ROOT = Path(__file__).resolve().parents[3]


def test_a_key_that_is_made_twice_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(stage: Stage) -> None:
        options = stage.options(stage.server().url)
        swarm = stage.swarm()
        for _ in range(2):
            actors = stage.crowd(swarm, options, keys=[0], processes=1)
            swarm.go(*actors)
            swarm.join(*actors)
            stage.store(options).clear()
        stage.count_creations(swarm, 1, 1)

    monkeypatch.setitem(catalogue.DRILLS, "forget", forget)
    assert play("forget", SHORT).broken == ["2 creations instead of 1"]


def test_a_wrong_payload_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def tamper(stage: Stage) -> None:
        options = stage.options(stage.server().url)
        stage.store(options).get_or_create(key_of(0), lambda: b"properly signed, and wrong")
        swarm = stage.swarm()
        actors = stage.crowd(swarm, options, keys=[0], processes=1)
        swarm.go()
        swarm.join()
        stage.check_calls(actors, 1.0)

    monkeypatch.setitem(catalogue.DRILLS, "tamper", tamper)
    outcome = play("tamper", SHORT)
    assert (outcome.broken, outcome.bad, outcome.verdict) == (["1 wrong payloads"], 1, "BROKEN")


def test_a_call_that_takes_too_long_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def dawdle(stage: Stage) -> None:
        options = stage.options(stage.server().url)
        swarm = stage.swarm()
        # One that waits for longer than a machine that is busy with other things could explain
        actors = stage.crowd(swarm, options, keys=[0], processes=2, create_s=0.5 + 2 * stage.outcome.noise_s)
        swarm.go(actors[0])
        swarm.await_creator(0)
        swarm.go(actors[1])
        swarm.join()
        stage.check_calls(actors, 0.0)

    monkeypatch.setitem(catalogue.DRILLS, "dawdle", dawdle)
    outcome = play("dawdle", SHORT)
    assert len(outcome.broken) == 1
    assert "instead of at most 0.00 s" in outcome.broken[0]
    assert 0.2 < outcome.longest_s < 5.0


def test_books_that_do_not_fit_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def cook(stage: Stage) -> None:
        server = stage.server()
        store = stage.store(stage.options(server.url))
        store.get_or_create(key_of(0), lambda: b"x")
        with server.client() as client:
            client.hincrby(stage.schema.sizes, "bytes", 1)
        stage.check_books(store, server)

    monkeypatch.setitem(catalogue.DRILLS, "cook", cook)
    (bound,) = play("cook", SHORT).broken
    assert "bytes listed instead of" in bound


@pytest.mark.parametrize("ci", ["", "true"])
def test_what_cannot_be_done_here_is_skipped_at_home_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch, ci: str) -> None:
    def impossible(stage: Stage) -> None:
        raise DrillSkipped("no such machine")

    monkeypatch.setitem(catalogue.DRILLS, "impossible", impossible)
    monkeypatch.setenv("CI", ci)
    outcome = play("impossible", SHORT)
    assert (outcome.skipped, outcome.verdict) == (("", "BROKEN") if ci else ("no such machine", "skipped"))


def test_the_command_prints_one_object_and_its_status_tells_whether_all_holds() -> None:
    command = [sys.executable, "-m", "tests.drills", "--short", "--only", "key file open to others", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    (drill,) = json.loads(done.stdout)["drills"]
    assert (done.returncode, drill["verdict"], drill["creations"]) == (0, "holds", [3])
    assert "key file open to others" in done.stderr


def test_the_command_prints_what_was_broken_and_skipped_below_a_table_that_explains_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(stage: Stage) -> None:
        stage.expect(False, "one is two")

    def impossible(stage: Stage) -> None:
        raise DrillSkipped("no such machine")

    monkeypatch.delenv("CI", raising=False)
    for name, drill in (("fine", lambda stage: None), ("wrong", broken), ("elsewhere", impossible)):
        monkeypatch.setitem(catalogue.DRILLS, name, drill)
    status = main(["--only", "fine", "--only", "wrong", "--only", "elsewhere"])
    printed = capsys.readouterr().out
    heads = re.split(r"  +", printed.partition("\n")[0])
    assert [name for name in heads if not re.search(rf"^{name}  +\S", printed.partition("\n\n")[2], re.MULTILINE)] == []
    assert status == 1
    assert printed.endswith(
        "\nwrong: BROKEN: one is two\nelsewhere: skipped: no such machine\n3 drills: 1 hold, 1 broken, 1 skipped\n"
    )


def test_a_drill_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a folder of the test's own, whose path is short enough for sockets
    with tempfile.TemporaryDirectory(prefix="poolrt-test-") as place:
        monkeypatch.setattr(tempfile, "tempdir", place)
        assert play("kill creators", SHORT).creations
        assert os.listdir(place) == []
