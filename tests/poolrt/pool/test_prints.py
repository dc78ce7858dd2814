"""What functions print in workers, as the program that calls them sees it."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import poolrt
from poolrt.coordinator.peers import TEXT_QUEUED, Peer
from poolrt.workers.ipc.channel import Channel, pair
from poolrt.workers.ipc.protocol import Kind
from poolrt.workers.processes.prints import HELD, Prints
from tests.interrupting import is_interrupted

from .processes import BOUND_S, until_there, wait_until


def printed(call: Callable[[], Any]) -> str:
    """Return what a call writes to both streams, in its order."""
    text = io.StringIO()
    with redirect_stdout(text), redirect_stderr(text):
        call()
    return text.getvalue()


def test_prints_of_a_function_arrive_in_order_and_before_its_result(pool: poolrt.Pool) -> None:
    def speak() -> None:
        print("one", "\u00e9\u20ac\U0001f600")
        print("two", file=sys.stderr)
        sys.stdout.buffer.write(b"three \xff\n")
        thread = threading.Thread(target=print, args=("four",))
        thread.start()
        thread.join()
        print("five", end="")

    expected = "one \u00e9\u20ac\U0001f600\ntwo\nthree \ufffd\nfour\nfive"
    assert printed(lambda: pool.submit(speak).result(BOUND_S)) == expected
    assert printed(lambda: list(pool.map(print, "abc", chunksize=3))) == "a\nb\nc\n"


def test_each_stream_arrives_as_itself_also_if_the_function_fails(
    pool: poolrt.Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        print("before")
        print("why", file=sys.stderr)
        raise KeyError("x")

    with pytest.raises(KeyError):
        pool.submit(fail).result(BOUND_S)
    assert capsys.readouterr() == ("before\n", "why\n")


def test_a_print_arrives_while_the_function_goes_on(pool: poolrt.Pool, tmp_path: Path) -> None:
    text = io.StringIO()
    with redirect_stdout(text):
        future = pool.submit(exec, "print('begun')\n" + until_there(tmp_path / "end"))
        wait_until(lambda: text.getvalue() == "begun\n", "the print has arrived")
        assert not future.done()
        (tmp_path / "end").touch()
        future.result(BOUND_S)


def test_a_flood_is_bounded_delays_no_function_and_says_how_much_is_left_out(pool: poolrt.Pool) -> None:
    def flood() -> int:
        line = "x" * 98
        for _ in range(100_000):
            print(line)
        print("y" * 5_000_000)
        return 100_000 * 99 + 5_000_001

    text = io.StringIO()
    with redirect_stdout(text):
        total = pool.submit(flood).result(BOUND_S)
    notes = re.findall(
        r"\n\[poolrt: (\d+) characters that functions printed are left out here: .*\]\n", text.getvalue()
    )
    kept = re.sub(r"\n\[poolrt: .*\]\n", "", text.getvalue())
    assert 1 <= len(notes) < 100
    assert len(kept) + sum(map(int, notes)) == total
    assert HELD / 2 < len(kept) < total
    assert kept.startswith("x" * 98 + "\n" + "x" * 98)


@pytest.mark.parametrize(
    "spoil",
    [
        "sys.stdout.close(); sys.stderr.close()",
        "sys.stdout.detach(); sys.stderr.detach()",
        "sys.stdout.reconfigure(encoding='utf-16', line_buffering=False)",
        "sys.stdout = sys.stderr = None",
        "sys.stdout = sys.stderr = open(os.devnull, 'w')",
    ],
)
def test_a_function_that_spoils_its_streams_spoils_them_for_no_other(pool: poolrt.Pool, spoil: str) -> None:
    list(pool.map(exec, [f"import os, sys; {spoil}"] * 2, timeout=BOUND_S))
    assert printed(lambda: list(pool.map(print, "ab"))) in ("a\nb\n", "b\na\n")


def test_a_stream_that_a_function_keeps_is_that_of_later_functions(pool: poolrt.Pool) -> None:
    code = """
import logging, sys
logger = logging.getLogger("kept")
if not logger.handlers:
    logger.addHandler(logging.StreamHandler(sys.stdout))
logger.error("x")
"""
    for _ in range(4):
        assert printed(lambda: pool.submit(exec, code).result(BOUND_S)) == "x\n"


def test_a_stream_of_the_program_that_fails_costs_its_text_only(
    pool: poolrt.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(io.StringIO):
        def write(self, text: str, /) -> int:
            raise ZeroDivisionError

    lost = pool._session.client._printed.lost
    for stream in (Broken(), None, _closed()):
        monkeypatch.setattr(sys, "stdout", stream)
        assert pool.submit(exec, "print('lost')").result(BOUND_S) is None
    ascii_only = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", ascii_only)
    pool.submit(print, "\u20ac").result(BOUND_S)
    monkeypatch.undo()
    assert pool._session.client._printed.lost == lost + 2
    ascii_only.seek(0)
    assert ascii_only.read() == "\\u20ac\n"


def _closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


#: A program whose standard output is slow, and which exits while texts are written, with its pool open.
_EXIT = """
import json, os, sys, time
import poolrt

class Slow:
    begun = 0

    def write(self, text):
        Slow.begun += 1
        os.write(2, b"(")
        time.sleep(0.3)
        os.write(2, b")")

    def isatty(self):
        return False

    def flush(self):
        pass

sys.stdout = Slow()
pool = poolrt.Pool(workers=1, threads=1, **json.loads(sys.argv[1]))
future = pool.submit(exec, "import time\\nfor n in range(5): print(n); time.sleep(0.1)")
while not Slow.begun:
    time.sleep(0.005)
"""


def test_no_thread_is_stopped_in_the_middle_of_a_text_when_a_program_exits(settings: dict[str, Any]) -> None:
    command = [sys.executable, "-c", _EXIT, json.dumps(settings)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=3 * BOUND_S, check=True)
    assert re.fullmatch(r"(\(\))+", done.stderr)


def test_a_client_that_does_not_read_gets_the_number_of_what_is_left_out() -> None:
    ours, theirs = pair()
    channel, client = Channel(ours), Channel(theirs)
    peer = Peer(1, channel, channel.fileno(), client=True, known=True)
    text = "x" * 15_000
    sent = 0
    # Given a client that reads nothing, then functions that print are left out at a bound
    while (message := peer.bound_text([Kind.TEXT, 7, 1, 5, text])) is not None:
        channel.send(message)
        sent += 1
    assert TEXT_QUEUED < channel.queued < TEXT_QUEUED + 16_000
    assert peer.bound_text([Kind.TEXT, 7, 1, 0, text]) is None
    # And once it reads again, it gets their number
    for _ in range(sent):
        while client.receive() is None:
            channel.flush()
    assert channel.flush()
    assert peer.bound_text([Kind.TEXT, 7, 1, 3, "y"]) == [Kind.TEXT, 7, 1, 2 * 15_000 + 5 + 3, "y"]
    assert peer.left_out == 0
    channel.close()
    client.close()


def test_a_lock_that_a_signal_handler_has_left_locked_loses_nothing() -> None:
    ours, theirs = pair()
    channel, coordinator = Channel(ours), Channel(theirs)
    prints = Prints(channel)
    before = sys.stdout
    prints.begin([Kind.PRINTED, 7])
    try:
        print("one")
        prints._sending.acquire()
        print("two")
    finally:
        prints.end()
    prints.send([Kind.FINISHED, 7, False])
    assert sys.stdout is before
    received = [coordinator.receive(block=True) or [] for _ in range(3)]
    assert received == [
        [Kind.PRINTED, 7, 1, 0, "one\n"],
        [Kind.PRINTED, 7, 1, 0, "two\n"],
        [Kind.FINISHED, 7, False],
    ]
    channel.close()
    coordinator.close()


def test_an_exception_of_a_signal_handler_at_any_moment_of_a_print_breaks_no_later_one() -> None:
    moment = 0
    interrupted = True
    while interrupted:
        moment += 1
        ours, theirs = pair()
        channel, coordinator = Channel(ours), Channel(theirs)
        prints = Prints(channel)
        prints.begin([Kind.PRINTED, 7])
        try:
            # Given a print that cannot be sent at once
            prints._credit, prints._counted = 0.0, time.monotonic()
            interrupted = is_interrupted(lambda prints=prints: prints.add(1, b"one\n"), moment, "")  # type: ignore[misc]
            # Then the next one is sent, without the end of the function unless the lock was left locked
            prints.add(1, b"two\n")
            wait_until(lambda prints=prints: not prints._held or prints._sending.locked(), "it is sent")  # type: ignore[misc]
        finally:
            prints.end()
        texts = []
        while coordinator.wait(0):
            texts.append((coordinator.receive() or [""])[-1])
        assert "".join(texts).endswith("two\n")
        channel.close()
        coordinator.close()
    assert moment > 8
