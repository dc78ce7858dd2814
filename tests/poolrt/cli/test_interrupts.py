"""Interrupts of the program: each ends it with status 130 and one line, also one that is swallowed or comes late."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from poolrt.cachestore.deferred_interrupts import deferred_interrupts
from tests.drills.interrupts import Place, drill

#: A command that does what a test says.
_PROGRAM = """
    import atexit, signal, sys, time
    from poolrt.cli import main, status

    def interrupt():
        signal.raise_signal(signal.SIGINT)

    class Finalized:
        def __del__(self):
            interrupt()

    def work(options, settings, report):
    {body}
        time.sleep(10)
        print("went on")
        return 0

    status._execute = work
    sys.argv = ["poolrt", "status"]
    sys.exit(main())
"""


def _call(body: str, folder: Path) -> subprocess.CompletedProcess[str]:
    code = textwrap.dedent(_PROGRAM).format(body=textwrap.indent(textwrap.dedent(body), "    "))
    env = os.environ | {"POOLRT_HOME": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("body", "printed"),
    [
        pytest.param("Finalized()", "", id="in a finalizer"),
        pytest.param(
            """
            try:
                interrupt()
            except BaseException:
                pass
            """,
            "",
            id="swallowed by code that drops every exception",
        ),
        pytest.param(
            """
            try:
                interrupt()
            except BaseException as error:
                raise ImportError("half a module") from error
            """,
            "",
            id="turned into another error",
        ),
        pytest.param(
            """
            try:
                interrupt()
            finally:
                interrupt()
                time.sleep(0.1)
                print("cleaned up", file=sys.stderr)
            """,
            "cleaned up\n",
            id="and another one while a block cleans up",
        ),
        pytest.param("import interrupted_module", "imported in whole\n", id="while a module is imported"),
        pytest.param(
            """
            atexit.register(interrupt)
            return 0
            """,
            "",
            id="after the command, before the end of the process",
        ),
    ],
)
def test_an_interrupt_ends_the_program_with_status_130_and_one_line(tmp_path: Path, body: str, printed: str) -> None:
    (tmp_path / "interrupted_module.py").write_text(
        "import signal, sys\nsignal.raise_signal(signal.SIGINT)\nprint('imported in whole', file=sys.stderr)\n"
    )
    done = _call(body, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", f"{printed}poolrt: interrupted\n")


def test_a_program_that_ignores_interrupts_goes_on(tmp_path: Path) -> None:
    # As `nohup` and a shell's background jobs have it
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_PROGRAM).format(body="    interrupt(); return 0")],
        env=os.environ | {"POOLRT_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_deferred_interrupts_come_at_the_end_of_the_block() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), deferred_interrupts():
        signal.raise_signal(signal.SIGINT)
        done.append("the whole block")
    assert done == ["the whole block"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.slow
@pytest.mark.parametrize("program", ["run", "script"])
def test_interrupts_at_random_moments_leave_nothing(program: str) -> None:
    place = Place()
    try:
        report = drill(place, program, count=40, seed=os.getpid())
    finally:
        place.close()
    assert not report.broken, report.as_dict()
    assert report.verdicts["interrupted"] >= 10, report.as_dict()
