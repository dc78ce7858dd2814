"""Servers of tests: an answer that comes too late is none to the next request."""

from __future__ import annotations

from contextlib import closing

import pytest

from . import own_process


def test_a_late_answer_is_not_taken_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(own_process.Server("tests.workers.late_answers")) as server:
        assert server.ask(0) == 0
        # Given requests that are not answered in time
        with monkeypatch.context() as patch:
            patch.setattr(own_process, "ANSWER_S", 0.01)
            for seconds in (0.5, 0.25):
                with pytest.raises(AssertionError, match="no answer to"):
                    server.ask(seconds)
        # Then the next ones get their own answers
        assert [server.ask(seconds) for seconds in (0.125, 0)] == [0.125, 0]
