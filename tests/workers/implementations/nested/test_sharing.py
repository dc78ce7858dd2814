"""Nested primitives come from the cache, are realized once, work in one scratchpad, and are free of races."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from poolrt.cachestore import CacheStore
from tests.workers.own_process import ANSWER_S, ROOT


def run(kind: str, home: Path, name: str) -> dict[str, Any]:
    child = subprocess.run(
        [sys.executable, "-m", "tests.workers.implementations.nested.sharing", kind, str(home), name],
        cwd=ROOT, capture_output=True, text=True, timeout=ANSWER_S, check=False,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr
    found: dict[str, Any] = json.loads(child.stdout)
    return found


@pytest.mark.parametrize("kind", ["cpu", pytest.param("opencl", marks=pytest.mark.slow)])
def test_nested_primitives_are_cached_realized_and_executed_like_others(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if kind == "opencl":
        request.getfixturevalue("device")
    try:
        found = run(kind, tmp_path, "first")
        # A nested primitive whose creation fails is the outer one's error; nothing is kept, and the next request succeeds
        failing = found.pop("failing")
        assert "no_such_kernel" in failing["said"]
        assert (failing["left"], failing["again"], failing["right"]) == ([True, True], ["created", "memory"], True)
        for name, report in found.items():
            assert "matmul" in report["kinds"], name
            # What is nested was there before: the outer one is created alone if it has kernels of its own, else derived from
            # none; and derived for the other mode of scratch memory
            assert 1 <= report["created"][0] <= len(report["kinds"]), name
            assert report["source"] in ("created", "derived"), name
            assert report["created"][1:] == [int(report["source"] == "created"), 0], name
            assert all(report["shared"]), name
            assert report["resources"], name
            assert report["right"], name
            assert report["covers"], name
            assert report["user"] == [True, True, True], name
            assert report["wrong"] == [], name
        # A new process creates nothing
        again = run(kind, tmp_path, "second")
        assert [again[name]["created"] for name in found] == [[0, 0, 0]] * len(found)
        sources = {"created": "files", "derived": "derived"}
        assert all(again[name]["right"] for name in found)
        assert all(again[name]["source"] == sources[report["source"]] for name, report in found.items())
    finally:
        CacheStore.connect(home=str(tmp_path)).down()
