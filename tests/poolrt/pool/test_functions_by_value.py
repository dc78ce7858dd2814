"""Functions of a program's main module: what they use travels with them, once, and they behave as in ProcessPoolExecutor."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.errors import CallNotLoaded, InitializerFailed, PoolRefused
from poolrt.functions import call_pickles
from poolrt.workers.ipc.protocol import Kind
from poolrt.workers.processes.pickled import pickle_for_worker

from .processes import BOUND_S, connects, wait_until

_PROGRAM = Path(__file__).with_name("main_module.py")


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The globals of a main module, as a program or notebook has them, in the place of pytest's."""
    module = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module.__dict__


@pytest.mark.parametrize(
    ("form", "numba"),
    [
        ("script", ""),
        pytest.param("stdin", "", marks=pytest.mark.slow),
        pytest.param("stdin", "1", marks=pytest.mark.slow),
    ],
)
def test_a_program_gets_the_results_of_a_process_pool_executor(settings: dict[str, Any], form: str, numba: str) -> None:
    environ = os.environ | {f"POOLRT_{name.upper()}": str(value) for name, value in settings.items()}
    environ |= {"WITH_NUMBA": numba}
    found = []
    for executor in ("processes", "pool"):
        words = [sys.executable, "-" if form == "stdin" else str(_PROGRAM), executor]
        source = _PROGRAM.read_text(encoding="utf-8") if form == "stdin" else ""
        run = subprocess.run(words, input=source, env=environ, capture_output=True, text=True, timeout=100, check=False)
        assert run.returncode == 0, run.stderr
        found.append(run.stdout)
    assert found[0] == found[1]
    assert "'set', 'set'" in found[0]


def test_a_function_sees_the_globals_of_its_submission_and_what_its_worker_has_assigned(
    pool: poolrt.Pool, main: dict[str, Any]
) -> None:
    code = """
scale, calls = 2, 0
def helper(x): return x * scale
def scaled(x): return helper(x)
def other(): return scale
def count():
    global calls
    calls += 1
    return calls
"""
    exec(code, main)
    scaled, other = main["scaled"], main["other"]
    for scale in (2, 3, 2):
        main["scale"] = scale
        assert list(pool.map(scaled, [1] * 8)) == [scale] * 8
        assert pool.submit(other).result(BOUND_S) == scale
    exec("def helper(x): return -x", main)
    assert list(pool.map(scaled, [1] * 8)) == [-1] * 8
    # As in a process of ProcessPoolExecutor, a global that a worker has assigned stays assigned there.
    assert max(pool.submit(main["count"]).result(BOUND_S) for _ in range(8)) >= 4


def test_a_function_is_sent_once_and_not_with_each_call(
    pool: poolrt.Pool, main: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    exec("def f(x): return float(table[x])", main)
    main["table"] = np.arange(500_000.0)
    client, sent = pool._session.client, list[tuple[int, int]]()
    send = client._send

    def note(message: list[Any]) -> None:
        sent.append((message[0], _size(message)))
        send(message)

    monkeypatch.setattr(client, "_send", note)
    before = next(client.calls._requests)  # other tests have called functions of this pool
    assert [pool.submit(main["f"], n).result(BOUND_S) for n in range(10)] == [float(n) for n in range(10)]
    assert list(pool.map(main["f"], range(10), chunksize=2)) == [float(n) for n in range(10)]
    large = [kind for kind, size in sent if size > 1_000_000]
    assert large == [Kind.FUNCTION] * 2  # alone, and in chunks
    on_rings = next(client.calls._requests) - before - 1
    assert len([kind for kind, _ in sent if kind == Kind.CALL]) + on_rings == 15


def test_a_function_of_map_is_pickled_again_only_if_it_may_have_changed(
    pool: poolrt.Pool, main: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    exec("scale = 2\ndef f(x): return x * scale\ndef g(x): return table[x]\ntable = [5]", main)
    pickled: list[object] = []

    def note(value: object, *more: Any) -> bytes:
        pickled.append(value)
        return pickle_for_worker(value, *more)

    monkeypatch.setattr(call_pickles, "pickle_for_worker", note)
    f = main["f"]
    for size in (1, 5, 1, 5):
        assert list(pool.map(f, range(10), chunksize=size)) == [*range(0, 20, 2)]
    assert list(pool.map(f, [1, 2, 3], chunksize=2)) == [2, 4, 6]
    assert len(pickled) == 3  # alone, with ranges, with lists
    main["scale"] = 3
    assert list(pool.map(f, range(10), chunksize=5)) == [*range(0, 30, 3)]
    assert len(pickled) == 4
    for value in (5, 6):  # a list may change at any time
        main["table"][0] = value
        assert list(pool.map(main["g"], [0] * 4, chunksize=2)) == [value] * 4
    assert len(pickled) == 6


def _size(message: list[Any]) -> int:
    return len(message[-1]) if isinstance(message[-1], bytes) else 0


def test_more_functions_than_are_kept_are_all_called(pool: poolrt.Pool) -> None:
    functions = [_add(n) for n in range(150)]
    for _ in range(2):
        futures = [pool.submit(function, 1) for function in functions]
        assert [future.result(BOUND_S) for future in futures] == [n + 1 for n in range(150)]
    assert len(pool._functions(pool._session.link)._known) <= 64


def _add(n: int) -> Callable[[int], int]:
    return lambda x: x + n


def test_a_function_beyond_the_limit_is_refused_and_what_cannot_be_loaded_is_the_error_of_its_call(
    pool: poolrt.Pool, main: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from poolrt.functions import call_pickles

    exec("def f(): return len(table)", main)
    main["table"] = b"x" * 1_000_000
    with monkeypatch.context() as patch:
        patch.setattr(call_pickles, "CALL_BYTES", 1_000_000)
        with pytest.raises(PoolRefused, match=r"a function with the globals that it uses has 1\d{6} bytes"):
            pool.submit(main["f"])
    gone = types.ModuleType("gone_module")
    gone.f = type("f", (), {"__module__": "gone_module", "__qualname__": "f"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gone_module", gone)
    with pytest.raises(CallNotLoaded, match="ModuleNotFoundError: No module named 'gone_module'") as caught:
        pool.submit(gone.f).result(BOUND_S)
    assert "Traceback" in str(caught.value.__cause__)
    assert pool.submit(main["f"]).result(BOUND_S) == 1_000_000


def test_a_result_that_cannot_be_loaded_is_the_error_of_its_call(pool: poolrt.Pool) -> None:
    with pytest.raises(CallNotLoaded, match="the result of a function cannot be loaded: SystemExit: 3"):
        pool.submit(_Exits).result(BOUND_S)
    assert pool.submit(len, "abc").result(BOUND_S) == 3


class _Exits:
    def __reduce__(self) -> tuple[Any, ...]:
        return sys.exit, (3,)


def test_an_initializer_that_fails_fails_all_functions_and_no_run(settings: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, threads=1, initializer=divmod, initargs=(1, 0), **settings) as pool:
        first, second = pool.submit(len, "a"), pool.submit(len, "b")
        for future in (first, second):
            with pytest.raises(
                InitializerFailed, match="the initializer failed in a worker process: ZeroDivisionError"
            ):
                future.result(BOUND_S)
        wait_until(lambda: pool._functions(pool._session.link).broken is not None, "it is noted")
        with pytest.raises(InitializerFailed):
            pool.submit(len, "c")
        assert pool.stats()["workers_lost"] == 0


@pytest.mark.slow
def test_clients_of_a_server_have_their_own_globals(
    settings: dict[str, Any], main: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "poolrt.sock"
    words = [sys.executable, "-m", "poolrt", "serve", "--workers", "1", "--socket", str(path)]
    environ = os.environ | {f"POOLRT_{name.upper()}": str(value) for name, value in settings.items()}
    server = subprocess.Popen(words, env=environ | {"POOLRT_THREADS": "1"}, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: connects(path) or server.poll() is not None, "the server listens")
        exec("value = 0\ndef set_value(x):\n    global value\n    value = x\ndef get(): return value", main)
        with (
            poolrt.connect(path, initializer=main["set_value"], initargs=(5,)) as first,
            poolrt.connect(path) as second,
        ):
            assert [pool.submit(main["get"]).result(BOUND_S) for pool in (first, second)] == [5, 0]
            first.close()
            with poolrt.connect(path) as third:
                assert third.submit(main["get"]).result(BOUND_S) == 0
    finally:
        server.terminate()
        server.wait(BOUND_S)


@pytest.mark.slow
def test_a_notebook_gets_the_results_of_a_process_pool_executor(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    notebooks: Any = importlib.import_module("nbformat.v4")
    for name, value in {**settings, "with_numba": ""}.items():
        monkeypatch.setenv("WITH_NUMBA" if name == "with_numba" else f"POOLRT_{name.upper()}", str(value))
    source = _PROGRAM.read_text(encoding="utf-8").partition('if __name__ == "__main__"')[0]
    call = 'import poolrt\nprint(results(poolrt.Pool(2, threads=1, initializer=initialize, initargs=("set",))))'
    notebook = notebooks.new_notebook(cells=[notebooks.new_code_cell(text) for text in (source, call)])
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    words = [sys.executable, str(_PROGRAM), "processes"]
    expected = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "".join(output["text"] for output in notebook.cells[1].outputs) == expected


def test_a_traceback_quotes_the_line_of_a_function_that_travels_by_value(pool: poolrt.Pool) -> None:
    def fail(number: int) -> int:
        return 1 // number  # the line that fails

    with pytest.raises(ZeroDivisionError) as caught:
        pool.submit(fail, 0).result(BOUND_S)
    trace = str(caught.value.__cause__)
    assert f'File "{__file__}", line {fail.__code__.co_firstlineno + 1}, in fail' in trace
    assert "return 1 // number  # the line that fails" in trace
    assert pool.submit(lambda: fail).result(BOUND_S).__code__.co_filename == __file__
