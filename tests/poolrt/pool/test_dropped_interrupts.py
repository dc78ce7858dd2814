"""An interrupt in a finalizer of a program with a pool is raised after it, and the finalizer has done its work."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import Any

#: Interrupts a finalizer of the user's, then one of an array before its first line.
_CLIENT = """
    import json, signal, sys, time
    import poolrt

    class Finalized:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    def interrupt_finalizer(frame, event, argument):
        if event == "call" and frame.f_code.co_name == "__call__" and frame.f_code.co_filename.endswith("weakref.py"):
            sys.setprofile(None)
            raise KeyboardInterrupt

    def expect_interrupt(work):
        try:
            work()
            time.sleep(10)
            print("dropped")
        except KeyboardInterrupt:
            print("raised")

    with poolrt.Pool(**json.loads(sys.argv[1])) as pool:
        arrays = [pool.empty(1000)]
        memory = pool._session.memory
        expect_interrupt(Finalized)
        sys.setprofile(interrupt_finalizer)
        expect_interrupt(arrays.clear)
        print(len(memory._in_use))
"""


def test_an_interrupt_in_a_finalizer_is_raised_after_it(settings: dict[str, Any]) -> None:
    pool = json.dumps({**settings, "workers": 1, "threads": 1})
    client = [sys.executable, "-c", textwrap.dedent(_CLIENT), pool]
    done = subprocess.run(client, capture_output=True, text=True, timeout=110, check=False)
    assert (done.stdout.split(), done.stderr) == (["raised", "raised", "0"], "")
