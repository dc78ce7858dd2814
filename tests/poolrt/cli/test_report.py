"""The output of commands: numbers for people, and JSON that every parser accepts."""

from __future__ import annotations

import json
import math

import pytest

from poolrt.cli.report import Report, bytes_text, seconds_text, table


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 * 1024**2, "5.0 MiB"), (3 * 1024**4, "3072.0 GiB")],
)
def test_bytes_have_the_unit_that_fits(count: int, text: str) -> None:
    assert bytes_text(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.00312, "3.1 ms"), (0.9994, "999.4 ms"), (2.4, "2.40 s")])
def test_seconds_have_the_unit_that_fits(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_tables_are_aligned_and_have_no_trailing_blanks() -> None:
    assert table([["a", "1", ""], ["bcd", "22", "x"]], right=frozenset({1})) == ["a     1", "bcd  22  x"]


def test_text_goes_to_standard_output_or_with_json_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    Report(as_json=False).say("hello")
    Report(as_json=False).result({"a": 1})
    assert capsys.readouterr() == ("hello\n", "")
    Report(as_json=True).say("hello")
    Report(as_json=True).result({"a": 1})
    assert capsys.readouterr() == ('{"a": 1}\n', "hello\n")


def test_numbers_that_json_cannot_hold_become_null(capsys: pytest.CaptureFixture[str]) -> None:
    Report(as_json=True).result({"top": [(0, math.nan), (1, math.inf)], "x": 1.5})
    assert json.loads(capsys.readouterr().out) == {"top": [[0, None], [1, None]], "x": 1.5}
