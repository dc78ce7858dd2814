"""Processes that compile the same functions at the same moment, and entries that were changed."""

from __future__ import annotations

import gc
import json
import os
import pickle
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt.cachestore import CacheStore, CreationFailed
from poolrt.cli import main
from poolrt.numba import internals, stats
from poolrt.numba.key import overload_key
from poolrt.numba.process_store import process_store

from .conftest import Importer

#: Compiles functions that call each other at a moment, and prints the counts.
_STORM = """
import json, sys, time
import numba, numpy as np
import poolrt, poolrt.numba
functions = {}
begin, count = float(sys.argv[1]), int(sys.argv[2])
text = '''
@poolrt.njit
def shared(x):
    return x * 2.0 + 1.0
'''
for n in range(count - 1):
    text += f'''
@poolrt.njit
def f{n}(a):
    total = 0.0
    for i in range(a.shape[0]):
        total += shared(a[i]) * {n}
    return total
'''
exec(text, globals())
numba.njit(lambda x: x)(1)
time.sleep(max(0.0, begin - time.time()))
order = list(range(count - 1))
order = order[int(sys.argv[3]) % len(order):] + order[:int(sys.argv[3]) % len(order)]
results = [globals()[f"f{n}"](np.ones(4)) == 12.0 * n for n in order]
print(json.dumps({"right": all(results), **poolrt.numba.stats()}))
"""


def _storm(processes: int, functions: int, environments: list[dict[str, str]]) -> list[dict[str, Any]]:
    begin = str(time.time() + 3.0)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _STORM, begin, str(functions), str(number)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environments[number % len(environments)]},
        )
        for number in range(processes)
    ]
    return [json.loads(process.communicate(timeout=110)[0]) for process in running]


def test_processes_at_one_moment_compile_each_function_once(home: Path) -> None:
    counts = _storm(2, 3, [{}])
    assert all(each["right"] for each in counts)
    assert sum(each["created"] for each in counts) == 3
    assert sum(each["fallbacks"] + each["unshared"] + each["failed"] for each in counts) == 0


@pytest.mark.slow
def test_eight_processes_with_twelve_functions_compile_twelve(home: Path) -> None:
    counts = _storm(8, 12, [{}])
    assert all(each["right"] for each in counts)
    assert sum(each["created"] for each in counts) == 12
    assert sum(each["fallbacks"] + each["unshared"] + each["failed"] for each in counts) == 0


def test_the_waiting_process_gets_the_creators_error_as_numbas(home: Path) -> None:
    import numba

    def f(x: Any) -> Any:
        return x.nothing

    function = poolrt.njit(f)
    main = threading.get_ident()
    begun = threading.Event()

    def create() -> bytes:
        begun.set()
        until = time.monotonic() + 60
        while time.monotonic() < until and not _waits(main):
            time.sleep(0.01)
        raise numba.TypingError("of the creator")

    def lead() -> None:
        with CacheStore.connect(home=str(home)) as other, pytest.raises(CreationFailed):
            other.fetch_or_create(key, create)

    # Given another holder of the lease, which fails once this thread waits for it
    cache, python_function = function._cache, function.py_func
    context = function.targetctx
    context.refresh()
    key, _, _ = overload_key(internals.internals(), function, python_function, (numba.int64,), cache._flags(), context)
    leader = threading.Thread(target=lead)
    leader.start()
    assert begun.wait(60)
    # When this thread calls the function, then it raises the creator's error, as an exception of Numba's
    with pytest.raises(numba.TypingError, match="of the creator"):
        function(1)
    leader.join(60)
    # And the next call of another function with the same key tries again
    with pytest.raises(numba.TypingError, match="nothing"):
        poolrt.njit(f)(1)


def _waits(thread: int) -> bool:
    frame: Any = sys._current_frames()[thread]
    names = set()
    while frame is not None:
        names.add(frame.f_code.co_filename.rpartition("/")[2])
        frame = frame.f_back
    return "file_lease.py" in names


def _files(home: Path) -> list[Path]:
    return [path for path in home.rglob("entries/*/*") if path.is_file()]


TEXT = "import poolrt\n@poolrt.njit\ndef f(x):\n    return x + 11\n"


def _refuse(*_: object, **__: object) -> Any:
    raise AssertionError("an unverified entry is unpickled")


def test_a_changed_entry_is_refused_before_it_is_unpickled(
    home: Path, imported: Importer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given an entry in which one byte of the payload has changed
    assert imported(shared_user=TEXT).f(1) == 12
    (path,) = _files(home)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    monkeypatch.setattr(pickle, "loads", _refuse)
    monkeypatch.setattr(pickle, "Unpickler", _refuse)
    # When another process needs it, then the function is compiled again, and nothing is unpickled
    created, fallbacks = stats()["created"], stats()["fallbacks"]
    assert imported(shared_user=TEXT).f(1) == 12
    assert (stats()["created"], stats()["fallbacks"]) == (created + 1, fallbacks)


def test_an_entry_under_another_signing_key_is_refused_before_it_is_unpickled(
    home: Path, imported: Importer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given the entry of a home with another key
    assert imported(shared_user=TEXT).f(1) == 12
    (home / "signing.key").unlink()
    process_store.cache_clear()
    monkeypatch.setattr(pickle, "loads", _refuse)
    monkeypatch.setattr(pickle, "Unpickler", _refuse)
    # When a process with a key of its own needs it, then the function is compiled again
    created = stats()["created"]
    assert imported(shared_user=TEXT).f(1) == 12
    assert stats()["created"] == created + 1


def test_an_entry_that_cannot_be_loaded_is_compiled_again_with_one_warning(
    home: Path, imported: Importer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert imported(shared_user=TEXT).f(1) == 12
    monkeypatch.setattr(pickle, "loads", _refuse)
    monkeypatch.setattr(pickle, "Unpickler", _refuse)
    from poolrt.numba.counters import counters

    monkeypatch.setattr(counters(), "_warned", False)
    with pytest.warns(poolrt.numba.NotShared, match="cannot be loaded"):
        assert imported(shared_user=TEXT).f(1) == 12
    monkeypatch.undo()


def test_numbas_contract_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    found = internals.internals()
    internals.check_contract(found)
    monkeypatch.delattr(found.compiler.CompileResult, "_reduce")
    with pytest.raises(internals.Unsupported, match=r"compiler\.CompileResult\._reduce"):
        internals.check_contract(found)


def test_install_takes_over_functions_that_ask_for_a_cache(home: Path) -> None:
    import numba

    def f(x: int) -> int:
        return x + 21

    poolrt.numba.install()
    try:
        function = numba.njit(cache=True)(f)
    finally:
        poolrt.numba.uninstall()
    created = stats()["created"]
    assert function(1) == 22
    assert function.stats.cache_path == "poolrt"
    assert stats()["created"] == created + 1


def test_a_function_that_numba_made_can_be_shared(home: Path) -> None:
    import numba

    @numba.njit
    def f(x):  # type: ignore[no-untyped-def]
        return x + 31

    assert poolrt.share(f) is f
    created = stats()["created"]
    assert f(1) == 32
    assert stats()["created"] == created + 1
    with pytest.raises(TypeError, match=r"numba\.njit"):
        poolrt.share(len)


def test_ufuncs_are_found_again(home: Path, imported: Importer) -> None:
    text = (
        "import poolrt\n@poolrt.vectorize(['f8(f8)'])\ndef v(x):\n    return x + 1\n"
        "@poolrt.guvectorize(['void(f8[:],f8[:])'], '(n)->(n)')\ndef g(x, y):\n"
        "    for i in range(x.shape[0]):\n        y[i] = x[i] * 2\n"
    )
    for number in range(2):
        created = stats()["created"]
        module = imported(shared_user=text)
        assert module.v(1.0) == 2.0
        assert module.g(np.ones(3)).tolist() == [2.0, 2.0, 2.0]
        assert stats()["created"] - created == (0 if number else 2)


def test_a_function_ends_with_its_last_reference(home: Path) -> None:
    def f(x: int) -> int:
        return x

    function = poolrt.njit(f)
    reference = weakref.ref(function)
    gc.disable()
    try:
        del function
        assert reference() is None
    finally:
        gc.enable()


def test_entries_show_their_hits_and_a_warmed_module_its_functions(
    home: Path, imported: Importer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "import poolrt\n@poolrt.njit('i8(i8)')\ndef f(x):\n    return x + 41\n"
    assert imported(warmed=text).f(1) == 42
    monkeypatch.delenv("POOLRT_REDIS_URL")
    for _ in range(2):
        monkeypatch.delitem(sys.modules, "warmed", raising=False)
        try:
            assert main(["warm", "warmed", "--json"]) == 0
        finally:
            CacheStore.connect().down()
        assert json.loads(capsys.readouterr().out)["modules"][0]["functions"] == {"hits": 1}
    (entry,) = process_store().entries()
    assert entry.hits == 2
