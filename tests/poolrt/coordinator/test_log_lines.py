"""Lines about clients: a few of each reason in a window, then their number; a standard error that fails stops nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from poolrt.coordinator.log_lines import LINES_LIMIT, SAME_LIMIT, WINDOW_S, LogLines

#: The clock of these tests, in seconds, when a window begins.
BEGIN = 1000.0


@pytest.fixture
def file(tmp_path: Path) -> Iterator[TextIO]:
    """A file for lines."""
    with (tmp_path / "lines").open("w", encoding="utf-8") as file:
        yield file


def _lines(file: TextIO) -> list[str]:
    return Path(file.name).read_text("utf-8").splitlines()


def test_the_first_lines_of_each_reason_are_printed_and_the_rest_is_counted(file: TextIO) -> None:
    lines = LogLines(file)
    for number in range(10_000):
        lines.print(f"disconnecting client {number}", "no HELLO", BEGIN + number / 10_000)
    lines.print("disconnecting client 7", "another reason", BEGIN + 2)
    found = _lines(file)
    assert found == [
        *(f"poolrt: disconnecting client {number}: no HELLO" for number in range(SAME_LIMIT)),
        "poolrt: disconnecting client 7: another reason",
    ]
    # At the end of the window, one line says how many are missing; then lines are printed again
    lines.tick(BEGIN + WINDOW_S - 0.1)
    lines.tick(BEGIN + WINDOW_S)
    lines.tick(BEGIN + 2 * WINDOW_S)
    lines.print("disconnecting client 8", "no HELLO", BEGIN + 3 * WINDOW_S)
    assert _lines(file)[len(found) :] == [
        f"poolrt: {10_000 - SAME_LIMIT} more lines about clients in 10 s, the last one: no HELLO",
        "poolrt: disconnecting client 8: no HELLO",
    ]


def test_reasons_that_all_differ_are_bounded_together(file: TextIO) -> None:
    lines = LogLines(file)
    for number in range(100_000):
        lines.print("disconnecting client 1", f"field {number}", BEGIN + number / 1000)
    found = _lines(file)
    assert len(found) == 10 * LINES_LIMIT + 9  # 100 seconds, one window after the other
    assert (
        found[LINES_LIMIT]
        == f"poolrt: {10_000 - LINES_LIMIT} more lines about clients in 10 s, the last one: field 9999"
    )


def test_a_line_is_one_line_of_printable_characters(file: TextIO) -> None:
    LogLines(file).print("disconnecting client 1", "a\nb\x1b[2J" + "c" * 1000, BEGIN)
    (line,) = _lines(file)
    assert line.startswith("poolrt: disconnecting client 1: a\\nb\\x1b[2Jccc")
    assert len(line) < 350


@pytest.mark.parametrize("end", ["full", "closed", "none"])
def test_a_standard_error_that_takes_nothing_delays_and_breaks_nothing(end: str) -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as read, os.fdopen(writer, "w", encoding="utf-8") as write:
        if end == "full":
            os.set_blocking(writer, False)
            with pytest.raises(BlockingIOError):
                while True:
                    os.write(writer, b"x" * 4096)
            os.set_blocking(writer, True)
        elif end == "closed":
            read.close()
        lines = LogLines(None if end == "none" else write)
        for number in range(3):
            lines.print(f"disconnecting client {number}", "no HELLO", BEGIN)
        lines.tick(BEGIN + WINDOW_S)
        if end == "full":
            # What was left out is counted once there is room
            while len(read.read(1 << 20)) == 1 << 20:
                pass
            lines.tick(BEGIN + 2 * WINDOW_S)
            assert read.read(1 << 20) == b"poolrt: 3 more lines about clients in 10 s, the last one: no HELLO\n"
