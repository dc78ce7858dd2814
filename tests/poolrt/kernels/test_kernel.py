"""Kernels of users: right results, checked arguments, one compilation, and a warm start without a compiler."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import cloudpickle
import numpy as np
import pytest

import poolrt
from poolrt.cachestore import CreationFailed
from poolrt.cli.cache.described import described
from poolrt.kernels.kernel import Kernel
from poolrt.numba.process_store import process_store
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.workers.own_process import python

FACTOR = 2


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the home of the process's store, which has no Redis."""
    folder = tmp_path_factory.mktemp("home")
    folder.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POOLRT_HOME", str(folder))
        patch.setenv("POOLRT_REDIS_URL", f"unix://{folder}/none.sock")
        process_store.cache_clear()
        yield folder
        process_store().close()
        process_store.cache_clear()


def _twice(x: Any) -> Any:
    return x * FACTOR


def _scale(x: Any, y: Any, factor: Any) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = _twice(x[i, j]) * factor


def _spin(flags: Any) -> None:
    # Two threads meet in here: each waits for the other's mark.
    own = flags[2]
    flags[2] = own + 1
    flags[own] = 1
    for _ in range(2_000_000_000):
        if flags[0] == 1 and flags[1] == 1:
            break


@pytest.fixture(scope="module")
def scale(home: Path) -> Kernel:
    """Return a kernel that is called with plain functions of its module."""
    made: Kernel = poolrt.kernel("void(f4[:,::1], f4[:,::1], f8)")(_scale)
    made(np.ones((1, 1), "f4"), np.ones((1, 1), "f4"), 1.0)
    return made


def test_a_kernel_computes_with_the_functions_and_constants_that_it_names(scale: Kernel) -> None:
    x = np.arange(6, dtype="f4").reshape(2, 3)
    y = np.zeros_like(x)
    scale(x, y, 1.5)
    assert y.tolist() == (x * 3).tolist()
    assert scale.signature == "void(float32[:,::1], float32[:,::1], float64)"


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda x, y, f: (x, y), TypeError, "takes 3 arguments, got 2"),
        (lambda x, y, f: (x.astype("f8"), y, f), TypeError, r"argument 1 \(x\) must be float32\[:,::1\], got float64"),
        (lambda x, y, f: (x[0], y, f), TypeError, "of 1 dimensions"),
        (lambda x, y, f: (x, y[:, ::2], f), ValueError, r"argument 2 \(y\) must be C-contiguous"),
        (lambda x, y, f: (x.tolist(), y, f), TypeError, "must be a NumPy array"),
        (lambda x, y, f: (x, y, "1"), TypeError, r"argument 3 \(factor\) must be a number float64, got str"),
        (lambda x, y, f: (x, np.broadcast_to(np.float32(0), (1, 1)), f), ValueError, "is read-only"),
    ],
)
def test_wrong_arguments_are_refused_by_name(
    scale: Kernel, change: Callable[..., Any], error: type[Exception], text: str
) -> None:
    x = np.zeros((2, 4), "f4")
    with pytest.raises(error, match=text):
        scale(*change(x, np.zeros_like(x), 1.0))


def test_whole_numbers_have_a_range(home: Path) -> None:
    def unused(x: Any, n: Any) -> None:
        pass

    made = poolrt.kernel("void(f4[::1], u1)")(unused)
    made._native = made._load()
    for number in (-1, 256):
        with pytest.raises(ValueError, match="from 0 to 255"):
            made(np.zeros(1, "f4"), number)
    made(np.zeros(1, "f4"), 255)

    def halved(x: Any) -> None:
        pass

    with pytest.raises(ValueError, match=r"argument 1 \(x\) must be float32, got an integer that is no float64"):
        poolrt.kernel("void(f4)")(halved)(10**400)


@pytest.mark.parametrize("text", ["f4(f4)", "void(f4[:])", "void(q[::1])", "void(f4[::1],)", "f4", "void(f4[::1]"])
def test_an_ill_formed_signature_is_refused_when_it_is_written(text: str) -> None:
    with pytest.raises(ValueError, match="signature"):
        poolrt.kernel(text)


def test_what_a_kernel_cannot_be_is_refused(home: Path) -> None:
    with pytest.raises(TypeError, match="takes 2 arguments, its signature has 1"):
        poolrt.kernel("void(f4)")(lambda x, y: None)
    with pytest.raises(TypeError, match=r"has \*arguments; expect a plain function of 1 arguments"):
        poolrt.kernel("void(f4)")(lambda x, *others: None)
    with pytest.raises(TypeError, match="has arguments by name only; expect a plain function of 1 arguments"):
        poolrt.kernel("void(f4)")(lambda x, *, other=1: None)

    async def later(x: Any) -> None:
        pass

    with pytest.raises(TypeError, match="has async or await"):
        poolrt.kernel("void(f4)")(later)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no option 'parallel'"):
        poolrt.kernel("void(f4)", parallel=True)

    with pytest.raises(TypeError, match="a kernel is no method: write it without self"):
        poolrt.kernel("void(f4)")(lambda self, x: None)
    with pytest.raises(TypeError, match="write the signature first"):
        poolrt.kernel(lambda x: None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="got CPUDispatcher; remove the other decorator"):
        poolrt.kernel("void(f4)")(poolrt.njit(lambda x: None))


def _allocates(x: Any) -> None:
    x[0] = np.zeros(x.shape[0])[0] + x.sum()


def _unknown(x: Any) -> None:
    x.nothing()


def _calls_unknown(x: Any) -> None:
    _unknown(x)


def _returns(x: Any) -> Any:
    return x[0]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (_allocates, "it makes an array, list, dictionary or text: give it its memory as arguments"),
        (_calls_unknown, "Numba rejects it: Unknown attribute 'nothing' of type array(float64, 1d, C) (File "),
        (_returns, "it returns a value of type float64: a kernel writes its results into arrays"),
    ],
)
def test_a_function_that_cannot_be_compiled_is_one_line_with_its_place(
    home: Path, function: Callable[..., Any], reason: str
) -> None:
    with pytest.raises(CreationFailed) as raised:
        poolrt.kernel("void(f8[::1])")(function)(np.zeros(2))
    place = f"kernel {function.__name__} ({__file__}:{function.__code__.co_firstlineno}): "
    assert str(raised.value).startswith(f"creation failed with CompileError: {place}{reason}")


def test_arguments_may_be_named_and_have_defaults(scale: Kernel) -> None:
    x, y = np.ones((1, 2), "f4"), np.zeros((1, 2), "f4")
    scale(x, factor=3, y=y)
    assert y.tolist() == [[6.0, 6.0]]
    wrong: list[tuple[Callable[[], None], str]] = [
        (lambda: scale(x, y, fact=3), "has no argument 'fact'; it has x, y, factor"),
        (lambda: scale(x, y, x=x), "got two values for argument 'x'"),
        (lambda: scale(x, y), "takes 3 arguments, got 2; missing: factor"),
        (lambda: scale(x, y, 1, 2), "takes 3 arguments, got 4"),
    ]
    for call, text in wrong:
        with pytest.raises(TypeError, match=text):
            call()
    with_default = poolrt.kernel("void(f4[:,::1], f8)")(lambda x, a=2.5: None)
    assert with_default._complete((x,), {}) == (x, 2.5)


@poolrt.kernel("void(f4[::1])")
def _of_this_module(x: Any) -> None:
    x[0] = 1


def _kernels_that_name_each_other() -> Kernel:
    @poolrt.kernel("void(f4[::1])")
    def first(x: Any) -> None:
        if x[0] < 0:
            second(x)

    @poolrt.kernel("void(f4[::1])")
    def second(x: Any) -> None:
        first(x)

    return first


def _travelled(kernel: Kernel, dumps: Callable[[Any], bytes] = pickle.dumps) -> Kernel:
    found: Kernel = pickle.loads(dumps(kernel))  # noqa: S301 - of this process
    return found


def test_a_kernel_travels_by_name_or_by_value(scale: Kernel) -> None:
    assert _travelled(_of_this_module) is _of_this_module
    copy = _travelled(scale)  # the module's name is that of the plain function
    assert copy is not scale
    assert copy.key() == scale.key()
    x = np.ones((1, 1), "f4")
    copy(x, x, 2.0)
    assert x.tolist() == [[4.0]]
    first = _kernels_that_name_each_other()
    assert _travelled(first).key() == _travelled(first, cloudpickle.dumps).key() == first.key()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_forked_while_another_thread_compiles_has_the_lock_free(scale: Kernel) -> None:
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with scale._lock:
            held.set()
            over.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        os._exit(0 if scale._load() is not None else 1)
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        over.set()
        thread.join(60)


def test_fetched_kernels_are_counted(home: Path) -> None:
    before = poolrt.kernels.stats()

    def own(x: Any) -> None:
        x[0] = 41

    for _ in range(2):
        poolrt.kernel("void(f4[::1])")(own)(np.zeros(1, "f4"))
    with pytest.raises(CreationFailed):
        poolrt.kernel("void(f8[::1])")(_unknown)(np.zeros(1))
    after = poolrt.kernels.stats()
    assert {name: after[name] - before[name] for name in after} == {
        "created": 1, "hits": 1, "failed": 1, "waited": 0, "fallbacks": 0,
    }  # fmt: skip


def test_a_call_releases_the_interpreter_lock(home: Path) -> None:
    spin = poolrt.kernel("void(i8[::1])")(_spin)
    spin(np.ones(3, "i8") * [1, 1, 0])
    # Given one thread in the kernel, which ends when another one's mark is there, when that writes it, then both end
    flags = np.zeros(3, "i8")
    threads = [threading.Thread(target=spin, args=(flags,)) for _ in range(2)]
    for thread in threads:
        thread.start()
        until = time.monotonic() + 60
        while flags[2] == 0 and time.monotonic() < until:
            time.sleep(0.001)
    for thread in threads:
        thread.join(60)
    assert flags.tolist() == [1, 1, 2]


class TooFew(Exception):
    """An exception of a user."""


def _refuse(n: Any) -> None:
    if n < 0:
        raise TooFew("below", 0)


def test_an_exception_of_a_kernel_has_its_class_and_arguments_and_names_the_kernel(home: Path) -> None:
    def raises(n: Any) -> None:
        _refuse(n)
        if n > 2:
            raise ValueError
        if n > 1:
            raise ValueError("too many")

    made = poolrt.kernel("void(i8)")(raises)
    made(1)
    for n, kind, arguments in ((2, ValueError, ("too many",)), (3, ValueError, ()), (-1, TooFew, ("below", 0))):
        with pytest.raises(kind) as caught:
            made(n)
        assert type(caught.value) is kind
        assert caught.value.args == arguments
        assert caught.value.__notes__ == [f"raised in kernel {made.name}"]
    made(0)


def test_a_changed_callee_or_constant_is_another_key(scale: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    before = scale.key()
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 3)
    assert list(scale.key().diff(before)) == [f"callees.{__name__}._twice.constants.FACTOR"]
    monkeypatch.undo()
    monkeypatch.setattr(sys.modules[__name__], "_twice", FunctionType((lambda x: x - 1).__code__, globals(), "_twice"))
    assert scale.key() != before


def test_an_object_for_another_isa_level_is_never_found(scale: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    from poolrt.kernels import kernel as module

    monkeypatch.setattr(module, "_isa", lambda: "x86-64")
    created = process_store().stats()["creations"]
    other: Kernel = poolrt.kernel("void(f4[:,::1], f4[:,::1], f8)")(_scale)
    x = np.ones((1, 2), "f4")
    other(x, x, 1.0)
    assert x.tolist() == [[2.0, 2.0]]
    assert process_store().stats()["creations"] == created + 1


def test_a_graph_calls_a_kernel(scale: Kernel) -> None:
    from poolrt.graph.user_kernels import kernel_of

    created = process_store().stats()["creations"]
    first, second = kernel_of(scale), kernel_of(scale)
    assert first == second
    assert (first.name, getattr(first, "parameters", ())) == ("_scale", ("f32:2", "f32:2", "float"))
    assert process_store().stats()["creations"] == created + 1
    x = np.arange(6, dtype="f4").reshape(2, 3)
    graph = poolrt.Graph()
    source = graph.input("x", (2, 3))
    graph.output("y", graph.call(scale, [source], [((2, 3), "float32")], scalars=[1.5]))
    executor = poolrt.Executor(graph, cache=PrimitiveProvider(store=process_store()))
    assert executor.run(x=x)["y"].tolist() == (x * 3).tolist()


def test_the_list_of_one_kind_has_function_signature_and_place(scale: Kernel) -> None:
    entries = {entry.digest: entry for entry in process_store().entries()}
    entry = entries[scale.key().digest]
    facts = described(entry)
    assert (entry.kind, facts["function"], facts["signature"]) == ("kernel", f"{__name__}._scale", scale.signature)
    assert str(entry.asked_by).startswith(f"{__file__}:")


_WARM = """
import sys, time
import numpy as np
def waited():
    # Seconds that this thread has been ready and another one had the processor
    with open("/proc/thread-self/schedstat", "rb") as file:
        return int(file.read().split()[1]) / 1e9
before = set(sys.modules)
begin = time.perf_counter() - waited()
import poolrt
@poolrt.kernel("void(f8[::1], f8)")
def add(x, n):
    for i in range(x.shape[0]):
        x[i] += n
x = np.zeros(3)
add(x, 2.0)
took = time.perf_counter() - waited() - begin
assert x.tolist() == [2.0, 2.0, 2.0]
loaded = sorted(set(sys.modules) - before)
from poolrt.numba.process_store import process_store
import json
stats = process_store().stats()
print(json.dumps({"took": took, "loaded": loaded, "creations": stats["creations"], "hits": stats["hits"]["files"]}))
"""
#: What a warm call loads neither of others' nor of ours: each would take a millisecond or more, some a hundred.
_NOT_WHEN_WARM = {
    *(
        "numba",
        "llvmlite",
        "scipy",
        "redis",
        "hiredis",
        "msgpack",
        "pyopencl",
        "onnx",
        "rich",
        "cloudpickle",
    ),
    *(
        "hashlib",
        "_hashlib",
        "hmac",
        "ssl",
        "socket",
        "asyncio",
        "logging",
        "json",
        "threading",
        "dataclasses",
        "signal",
    ),
    *("subprocess", "importlib.metadata", "email", "tempfile", "random", "copy", "zlib"),
    *("poolrt.settings", "poolrt.pool", "poolrt.errors", "poolrt.numba.door", "poolrt.numba.internals"),
    *(
        "poolrt.cachestore.store",
        "poolrt.cachestore.components",
        "poolrt.cachestore.options",
        "poolrt.cachestore.stats",
    ),
    *("poolrt.cachestore.redis", "poolrt.workers.engines.target", "poolrt.workers.desc", "poolrt.kernels.compilation"),
}
#: Modules of ours on the way to a warm call, of which one counts hits. Each takes a quarter of a millisecond: add one only
#: with a reason.
_MOST_OF_OURS = 39


def test_a_warm_process_loads_no_compiler_and_no_store_and_creates_nothing(home: Path) -> None:
    first, second = (json.loads(python(_WARM)) for _ in range(2))
    assert "numba" in first["loaded"]
    assert sorted(_NOT_WHEN_WARM & set(second["loaded"])) == []
    ours = [name for name in second["loaded"] if name.startswith("poolrt")]
    assert len(ours) <= _MOST_OF_OURS, ours
    assert second["creations"] == first["creations"]
    assert second["hits"] == first["hits"] + 1


_NUMBA = """
import sys, time
import numpy as np
def waited():
    with open("/proc/thread-self/schedstat", "rb") as file:
        return int(file.read().split()[1]) / 1e9
begin = time.perf_counter() - waited()
sys.path.insert(0, sys.argv[1])
import cached_by_numba
x = np.zeros(3)
cached_by_numba.add(x, 2.0)
print(time.perf_counter() - waited() - begin)
"""


@pytest.mark.slow
def test_a_warm_kernel_is_sooner_than_numbas_cache(home: Path, tmp_path: Path) -> None:
    (tmp_path / "cached_by_numba.py").write_text(
        "import numba\n@numba.njit('void(f8[::1], f8)', cache=True)\ndef add(x, n):\n    for i in range(x.shape[0]):\n"
        "        x[i] += n\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def run(*arguments: str) -> str:
        done = subprocess.run([sys.executable, "-c", *arguments], stdout=subprocess.PIPE, text=True, env=environment)
        assert done.returncode == 0
        return done.stdout

    ours = [json.loads(run(_WARM))["took"] for _ in range(16)][1:]
    numbas = [float(run(_NUMBA, str(tmp_path))) for _ in range(6)][1:]
    print(f"\nfirst result after numpy: {1e3 * min(ours):.1f} ms, Numba's cache {1e3 * min(numbas):.1f} ms")
    assert 20 * min(ours) <= min(numbas)
