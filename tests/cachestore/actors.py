"""Start actor processes, release them at once, and collect their results."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ACTOR = Path(__file__).with_name("actor.py")

#: Bound, in seconds, on everything an actor does.
LIMIT_S = 60.0


class Actors:
    """Actor processes; all have ended at the end of the block."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._actors: list[subprocess.Popen[str]] = []

    def add(self, options: dict[str, Any], keys: list[dict[str, Any]], **job: Any) -> subprocess.Popen[str]:
        """Start one actor; it waits for `go`."""
        arguments = json.dumps({"options": options, "keys": keys, "log": str(self.log), **job})
        actor = subprocess.Popen(
            [sys.executable, str(ACTOR), arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._actors.append(actor)
        return actor

    def go(self, *actors: subprocess.Popen[str]) -> None:
        """Release these, or all, together."""
        chosen = actors or tuple(self._actors)
        for actor in chosen:
            assert expect(actor) == "ready"
        for actor in chosen:
            assert actor.stdin is not None
            actor.stdin.write("\n")
            actor.stdin.flush()

    def let_on(self) -> None:
        """Release creations that are held."""
        for actor in self._actors:
            assert actor.stdin is not None
            actor.stdin.write("\n")
            actor.stdin.flush()

    def results(self, *actors: subprocess.Popen[str]) -> list[dict[str, Any]]:
        """Return the results of these, or all; each in the order of the actor's keys."""
        said = []
        for actor in actors or tuple(self._actors):
            text, _ = actor.communicate(timeout=LIMIT_S)
            assert actor.returncode == 0
            said.append(json.loads(text.splitlines()[-1]))
        return said

    def creations(self) -> Counter[str]:
        """Return how often each key was created, by its fields as JSON."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return Counter(line.partition(" ")[2] for line in lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for actor in self._actors:
            actor.kill()
            actor.wait()
            for pipe in (actor.stdin, actor.stdout):
                if pipe is not None:
                    pipe.close()


def expect(actor: subprocess.Popen[str]) -> str:
    """Return the next line that an actor prints."""
    assert actor.stdout is not None
    return actor.stdout.readline().strip()
