"""Interruptions at every moment of a run: an error at once, and a pool that works or says that it is closed, never a hang.

A profile function that sends SIGINT at the beginning of each Python function, and after each call of one in C, stands for
an interruption: there the interpreter looks for signals (and in loops, which do nothing else in between).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.errors import PoolRefused

from .processes import BOUND_S, connects, relu_graph, wait_until

#: In a process of its own, whose main thread is interrupted at any moment.
_CLIENT = """
    import faulthandler, json, signal, sys, time
    import numpy as np
    import poolrt
    from poolrt.errors import PoolClosed
    from poolrt.runs import mapped_runs, run_pace

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started the tests with it ignored
    settings, what, stride = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    graph = poolrt.Graph("relu")
    graph.output("y", graph.eltwise(graph.input("x", (4, 8), "float32"), "relu"))
    x = np.ones((4, 8), np.float32)

    def work(model):
        if what == "run":
            return model.run(x=x)["y"].sum()
        if what == "submit":
            return model.submit(x=x).result()["y"].sum()
        if what == "map":
            return sum(result["y"].sum() for result in model.map({"x": x} for _ in range(3))) / 3
        if what == "batches":
            found = [result["y"] for result in model.map(({"x": each} for each in many), in_flight=32)]
            assert len(found) == len(many) and all((y == each).all() for y, each in zip(found, many))
            return 32
        return pool.stats()["workers"] and 32.0

    many = np.random.default_rng().random((80, 4, 8), np.float32)
    interrupted, in_batches = [], set()

    def interrupt_after(events):
        left = [events]
        interrupted.clear()
        def look(frame, event, argument):
            # Futures of the standard library can be left locked by an interruption; that is not ours to mend.
            theirs = "/concurrent/futures/" in frame.f_code.co_filename + str(frame.f_back and frame.f_back.f_code.co_filename)
            left[0] -= event in ("call", "c_return") and not theirs
            if left[0] == 0:
                sys.setprofile(None)
                interrupted.append(True)
                if frame.f_code.co_name == "map_runs":
                    in_batches.add(frame.f_lineno)
                signal.raise_signal(signal.SIGINT)  # not an error at once: some steps defer interrupts
        return look

    pool = poolrt.Pool(**settings)
    model = pool.load(graph)
    assert work(model) == work(model) == 32
    if what == "batches":
        # However slow this process is: runs follow one another quickly, and are short.
        mapped_runs.GAP_NS = run_pace.GAP_NS = run_pace._LONG_NS = 10**12
        while not model._loaded.prepared._places:
            model.run(x=x)
    moments = closed = 0
    while True:
        faulthandler.dump_traceback_later(10, exit=True)  # a hang shows where
        sys.setprofile(interrupt_after(1 + moments * stride))
        try:
            work(model)
            sys.setprofile(None)
            if not interrupted:
                break  # there was no such moment: all others have had their turn
            time.sleep(5)  # a finalizer has dropped it, so it comes again
            raise AssertionError("an interrupt was swallowed")
        except (KeyboardInterrupt, PoolClosed):
            sys.setprofile(None)
        moments += 1
        try:
            assert work(model) == 32
            assert model.run(x=x)["y"].sum() == 32
        except PoolClosed as error:
            # An answer may have been lost half-way: then every wait ends with an error.
            assert "interrupted" in str(error), error
            closed += 1
            pool.close()
            pool = poolrt.Pool(**settings)
            model = pool.load(graph)
            assert work(model) == 32
    started = time.monotonic()
    pool.close()
    print(json.dumps([moments, closed, time.monotonic() - started, len(in_batches)]))
"""


@pytest.mark.parametrize(
    ("what", "stride"),
    [
        ("run", 1),
        ("batches", 29),
        *(pytest.param(what, 1, marks=pytest.mark.slow) for what in ("submit", "map", "stats")),
        pytest.param("batches", 5, marks=pytest.mark.slow),
    ],
)
def test_an_interruption_at_any_moment_neither_hangs_nor_spoils_a_pool(
    settings: dict[str, Any], what: str, stride: int
) -> None:
    """Tries every moment, or one of so many."""
    pool = json.dumps({**settings, "workers": 1, "threads": 1})
    client = [sys.executable, "-c", textwrap.dedent(_CLIENT), pool, what, str(stride)]
    done = subprocess.run(client, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    moments, closed, closing_s, lines = json.loads(done.stdout)
    assert moments > (10 if what == "run" else 20)  # a run has few calls
    assert lines >= 3 or what != "batches"  # interrupts between the steps of a run
    assert closed < moments // 2
    assert closing_s < 3


#: Interrupts the first future of a new pool in the calls that start its thread, one after the other; then cloudpickle's import.
_FIRST = """
    import faulthandler, sys
    import numpy as np
    import poolrt
    from tests.interrupting import is_interrupted

    faulthandler.dump_traceback_later(60, exit=True)  # a hang shows where
    graph = poolrt.Graph("relu")
    graph.output("y", graph.eltwise(graph.input("x", (4, 8), "float32"), "relu"))
    x = np.ones((4, 8), np.float32)

    moments = 0
    while True:
        with poolrt.connect(sys.argv[1]) as pool:
            model = pool.load(graph)
            if not is_interrupted(lambda: model.submit(x=x), 1 + moments, "/threading.py"):
                break  # there was no such moment: all others have had their turn
            moments += 1
            assert model.submit(x=x).result(10)["y"].sum() == 32
            assert not pool._session.client._requests
    with poolrt.connect(sys.argv[1]) as pool:
        assert is_interrupted(lambda: pool.submit(len, [1]), 1, "/cloudpickle/__init__.py")
        assert pool.submit(len, [1]).result(10) == 1
    print(moments)
"""


@pytest.fixture(scope="module")
def server(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The path of a server with one worker."""
    path = tmp_path_factory.mktemp("interruptions") / "poolrt.sock"
    command = [sys.executable, "-m", "poolrt", "serve", "--workers", "1", "--socket", str(path)]
    environ = os.environ | {f"POOLRT_{name.upper()}": str(value) for name, value in settings.items()}
    process = subprocess.Popen(command, env=environ | {"POOLRT_THREADS": "1"}, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: connects(path) or process.poll() is not None, "the server listens")
        yield str(path)
        process.terminate()
        assert process.wait(BOUND_S) == 0
    finally:
        process.kill()
        process.wait()


def test_an_interrupt_of_the_first_future_or_function_leaves_a_pool_that_works(server: str) -> None:
    client = [sys.executable, "-c", textwrap.dedent(_FIRST), server]
    done = subprocess.run(client, capture_output=True, text=True, timeout=110, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 10


#: Interrupts the wait for futures of runs at one moment after the other, and waits for each again.
_RESULTS = """
    import faulthandler, sys
    import numpy as np
    import poolrt
    from tests.interrupting import is_interrupted

    faulthandler.dump_traceback_later(100, exit=True)  # a hang shows where
    graph = poolrt.Graph("relu")
    graph.output("y", graph.eltwise(graph.input("x", (4, 8), "float32"), "relu"))
    moments, again = 0, True
    with poolrt.connect(sys.argv[1]) as pool:
        model = pool.load(graph)
        for number in range(200):
            assert (model.submit(x=np.full((4, 8), number, np.float32)).result()["y"] == number).all()
        while again:
            x = np.full((4, 8), moments, np.float32)
            futures = [model.submit(x=x) for _ in range(2)]
            again = is_interrupted(futures[0].result, 1 + moments, "/poolrt/runs/submitted_run.py")
            for future in futures:
                assert (future.result(20)["y"] == moments).all()
            moments += again
        assert not pool._session.client.open_futures.all()
    print(moments)
"""


def test_an_interrupt_while_the_result_of_a_run_is_taken_leaves_a_future_that_has_it(server: str) -> None:
    client = [sys.executable, "-c", textwrap.dedent(_RESULTS), server]
    done = subprocess.run(client, capture_output=True, text=True, timeout=110, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) >= 4


#: Interrupts a run that makes its places at one moment after the other, and runs again each time.
_PLACES = """
    import faulthandler, sys
    import numpy as np
    import poolrt
    from poolrt.runs.ring_runs import GLANCE
    from poolrt.workers.ipc.ring import SUBMITTED
    from tests.interrupting import is_interrupted

    faulthandler.dump_traceback_later(100, exit=True)  # a hang shows where
    graph = poolrt.Graph("relu")
    graph.output("y", graph.eltwise(graph.input("x", (4, 8), "float32"), "relu"))
    x = np.ones((4, 8), np.float32)
    moments, again = 0, True
    with poolrt.connect(sys.argv[1]) as pool:
        model = pool.load(graph)
        prepared = model._loaded.prepared
        while not prepared._places:  # until its ring is there
            model.run(x=x)
        while again:
            prepared.shed()
            again = is_interrupted(lambda: model.run(x=x), 1 + moments, "/poolrt/runs/prepared_")
            moments += again
            assert model.run(x=x)["y"].sum() == 32
            pool.stats()  # an answer of the coordinator, which has not refused what was released
        # And the run that looks at the coordinator's messages too, after its end.
        (places,), looks, again = prepared._places.values(), 0, True
        while again:
            while (places.ring.words[SUBMITTED] + 1) % GLANCE:
                model.run(x=x)
            again = is_interrupted(lambda: model.run(x=x), 1 + looks, "/poolrt/")
            looks += again
            assert places._held == [None] * places.count
            assert prepared._places == {places.ring: places}
    print(moments, looks)
"""


def test_an_interrupt_while_places_are_made_or_used_leaves_none_taken_and_releases_their_slot_once(server: str) -> None:
    client = [sys.executable, "-c", textwrap.dedent(_PLACES), server]
    done = subprocess.run(client, capture_output=True, text=True, timeout=110, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    moments, looks = map(int, done.stdout.split())
    assert moments > 60
    assert looks > 20


def test_a_future_whose_thread_cannot_be_started_is_refused_and_the_next_one_works(server: str) -> None:
    with poolrt.connect(server) as pool:
        model, x = pool.load(relu_graph()), np.ones((4, 8), np.float32)
        usual = threading.stack_size(1 << 46)  # bytes: more than any machine has
        try:
            with pytest.raises(PoolRefused, match="no thread for futures can be started"):
                model.submit(x=x)
        finally:
            threading.stack_size(usual)
        assert model.submit(x=x).result(BOUND_S)["y"].sum() == 32


#: Interrupts the submission of functions at one moment after the other, with and without others that wait.
_FUNCTIONS = """
    import faulthandler, sys, time
    import poolrt
    from tests.interrupting import is_interrupted

    faulthandler.dump_traceback_later(100, exit=True)  # a hang shows where
    stride = int(sys.argv[2])

    def interrupt_all(act):
        moments, pool = 0, poolrt.connect(sys.argv[1])
        assert pool.submit(abs, -1).result(10) == 1
        while is_interrupted(lambda: act(pool), 1 + moments * stride, "/poolrt/"):
            moments += 1
            try:
                assert pool.submit(abs, -1).result(10) == 1
            except poolrt.errors.PoolClosed as error:
                assert "interrupted" in str(error), error  # while it read an answer
                pool.close()
                pool = poolrt.connect(sys.argv[1])
        started = time.monotonic()
        pool.shutdown()
        assert time.monotonic() - started < 5
        return moments

    moments = interrupt_all(lambda pool: pool.submit(abs, -1).result(10))
    found = interrupt_all(lambda pool: pool.submit(abs, -1).cancel())
    found += interrupt_all(lambda pool: list(pool.map(abs, range(40))))
    found += interrupt_all(lambda pool: list(pool.map(abs, range(40), chunksize=3)))
    print(moments + found)
"""


@pytest.mark.slow
@pytest.mark.parametrize("stride", [1, 5])
def test_an_interrupt_while_a_function_is_submitted_leaves_no_future_that_never_ends(server: str, stride: int) -> None:
    client = [sys.executable, "-c", textwrap.dedent(_FUNCTIONS), server, str(stride)]
    done = subprocess.run(client, capture_output=True, text=True, timeout=110, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 10
