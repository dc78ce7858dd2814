"""The setting max_cpu_isa: code is made for the instructions that it names, whichever way a program computes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from poolrt.cachestore import CacheStore
from poolrt.settings import Settings, SettingsError
from poolrt.workers.engines.isa import (
    EXTENSIONS,
    ISA_LEVELS,
    LIMIT,
    cpu_flags,
    extensions_of,
    host_extensions,
    host_isa,
)
from poolrt.workers.engines.target import cpu_target

LEVELS: Final = list(ISA_LEVELS)
#: A level below that of each host which runs tests.
WEAK: Final = "x86-64-v2"
#: Part of each program: a graph, an input, and a check of the result.
START: Final = """
import sys
import numpy as np
import poolrt
graph = poolrt.Graph("relu")
graph.output("y", graph.eltwise(graph.input("x", (3, 40)), "relu"))
x = np.random.default_rng(1).standard_normal((3, 40)).astype(np.float32)
def check(y):
    assert np.array_equal(y, np.maximum(x, 0))
"""
#: The graph as an ONNX model.
MODEL: Final = """
from onnx import TensorProto, helper
def info(name):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, (3, 40))
node = helper.make_node("Relu", ["x"], ["y"])
model = helper.make_model(helper.make_graph([node], "relu", [info("x")], [info("y")])).SerializeToString()
"""
#: Ways to compute -> the program.
DOORS: Final = {
    "a plain engine": """
engine = poolrt.Engine("cpu")
assert engine.target.instructions == "x86-64-v2", engine.target
desc = poolrt.MemoryDesc((3, 40), "f32", "ab")
pd = poolrt.Eltwise.PrimitiveDesc(engine, desc, desc, "relu")
src, dst = poolrt.Memory(desc, engine, x.copy()), poolrt.Memory(desc, engine)
stream = poolrt.Stream(engine)
pd.create().execute(stream, {poolrt.Arg.SRC: src, poolrt.Arg.DST: dst})
stream.wait()
check(dst.numpy())
""",
    "an executor": 'check(poolrt.Executor(graph).run(x=x)["y"])',
    "a session": MODEL + 'check(poolrt.onnx.InferenceSession(model).run(None, {"x": x})[0])',
    "a pool": """
with poolrt.Pool(workers=1, threads=2) as pool:
    check(pool.load(graph).run(x=x)["y"])
    assert pool.submit(lambda: __import__("poolrt").Engine("cpu").target.instructions).result() == "x86-64-v2"
""",
    "a kernel": """
from kernels_of_test import double
y = np.empty(5)
double(np.arange(5.0), y)
assert y.tolist() == [0, 2, 4, 6, 8]
""",
    "a command": MODEL
    + """
import os, subprocess
with open("model.onnx", "wb") as file:
    file.write(model)
command = ["-m", "poolrt", "run", "model.onnx", "--random-inputs", "1", "--workers", "1", "--profile", *sys.argv[1:]]
# It refuses a Redis that is away.
subprocess.run([sys.executable, *command], env={**os.environ, "POOLRT_REDIS_URL": ""}, check=True)
""",
}
KERNEL: Final = """
import poolrt
@poolrt.kernel("void(f8[::1], f8[::1])")
def double(x, y):
    for i in range(x.shape[0]):
        y[i] = 2 * x[i]
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Return a function that runs a program with a home, and no Redis; a command's embedded server is stopped."""
    (tmp_path / "kernels_of_test.py").write_text(KERNEL, encoding="utf-8")

    def run(program: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("POOLRT_")}
        env |= {
            "POOLRT_HOME": str(tmp_path / "home"),
            "POOLRT_REDIS_URL": _no_redis(tmp_path),
            "POOLRT_PREBUILT": "none",
        }
        return subprocess.run(
            [sys.executable, "-c", program, *words],
            cwd=tmp_path, env=env | variables, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip

    yield run
    if (tmp_path / "home" / "redis").exists():
        with CacheStore.connect(home=str(tmp_path / "home")) as store:
            store.down()


def _no_redis(folder: Path) -> str:
    return f"unix://{folder}/none.sock"


def _devices(folder: Path) -> list[Any]:
    """Return the devices for which the entries of a folder's home were made, each once."""
    with CacheStore.connect(_no_redis(folder), home=str(folder / "home")) as store:
        keys = [store.key_of(entry.digest) for entry in store.entries()]
    return list({json.dumps(key.fields["target"]["device"]): 0 for key in keys if key and "target" in key.fields})


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.one_in(6)
def test_the_variable_holds_for_every_way_to_compute(door: str, run: Run, tmp_path: Path) -> None:
    done = run(START + DOORS[door], **{LIMIT: WEAK})
    assert done.returncode == 0, done.stderr
    assert _devices(tmp_path) == [json.dumps({"isa": WEAK})]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.one_in(6)
def test_so_does_the_settings_file(door: str, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "poolrt.toml"
    file.write_text(f'[pool]\nmax_cpu_isa = "{WEAK}"\n', encoding="utf-8")
    if door == "a command":
        # A command also takes the file as an argument
        done = run(START + DOORS[door], "--config", str(file))
    else:
        done = run(START + DOORS[door], POOLRT_CONFIG=str(file))
    assert done.returncode == 0, done.stderr
    assert _devices(tmp_path) == [json.dumps({"isa": WEAK})]


@pytest.mark.parametrize("limit", ["x86-64-v9", "x86-64-v3+avx512_vnni"])
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.one_in(4)
def test_instructions_that_the_host_lacks_are_one_error_that_names_the_variable(
    door: str, limit: str, run: Run
) -> None:
    done = run(START + DOORS[door], **{LIMIT: limit})
    assert done.returncode != 0
    line = f"{LIMIT}: expected instructions of this host ("
    (said,) = (each for each in done.stderr.splitlines() if line in each)
    assert said.endswith(f"or '', got '{limit}'")


def test_a_pools_argument_comes_before_the_variable_and_holds_in_its_workers(run: Run) -> None:
    program = """
import poolrt
def instructions():
    import poolrt
    return poolrt.Engine("cpu").target.instructions
for limit in ("x86-64-v2", ""):
    with poolrt.Pool(workers=1, max_cpu_isa=limit) as pool:
        print(pool.submit(instructions).result())
print(instructions())
"""
    done = run(program, **{LIMIT: "x86-64"})
    assert done.stdout.split() == [WEAK, cpu_target("").instructions, "x86-64"], done.stderr


def _offered() -> list[str]:
    """Return each limit that this host can have."""
    found = LEVELS[: LEVELS.index(host_isa()) + 1]
    for level in [*found]:
        extensions = host_extensions(cpu_flags(), level)
        for number in range(1, 2 ** len(extensions)):
            chosen = [each for bit, each in enumerate(extensions) if number >> bit & 1]
            found.append("+".join([level, *chosen]))
    return found


def test_each_limit_that_the_host_can_have_is_its_target() -> None:
    for limit in _offered():
        assert Settings.load(environ={}, max_cpu_isa=limit).max_cpu_isa == limit
        assert cpu_target(limit).instructions == limit
        # Extensions of weaker levels are none of a stronger one.
        assert cpu_target("").serves(cpu_target(limit)) == ("+" not in limit or limit.startswith(host_isa()))
    # Extensions may be in any order
    last = _offered()[-1]
    level, *extensions = last.split("+")
    assert Settings.load(environ={}, max_cpu_isa="+".join([level, *reversed(extensions)])).max_cpu_isa == last


def test_settings_refuse_what_the_host_lacks() -> None:
    lacking = [level for level in LEVELS if LEVELS.index(level) > LEVELS.index(host_isa())]
    lacking += [f"{LEVELS[-1]}+{each}" for each in extensions_of(LEVELS[-1]) if each not in cpu_flags()]
    lacking += [f"{level}+{each}" for level in LEVELS for each in EXTENSIONS if each not in extensions_of(level)]
    for limit in [*lacking, "x86-64-v9", "x86-64-v2+", "+", "x86-64 "]:
        with pytest.raises(SettingsError, match="max_cpu_isa: expected instructions of this host"):
            Settings.load(environ={}, max_cpu_isa=limit)
        with pytest.raises(ValueError, match="max_cpu_isa: expected instructions of this host"):
            cpu_target(limit)


@pytest.mark.parametrize("variable", [None, "", "x86-64", "x86-64-v9"])
@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        "[pool]\n",
        '[pool]\nmax_cpu_isa = "x86-64-v2"\n',
        '[pool]\nmax_cpu_isa = ""\n',
        '[pool]\nmax_cpu_isa = "x86-64-v9"\n',
        "[pool]\nmax_cpu_isa = 3\n",
        "[pool\n",
    ],
)
def test_engines_without_a_pool_read_what_settings_read(
    content: str | None, variable: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "poolrt.toml"
    monkeypatch.setenv("POOLRT_CONFIG", "" if content is None else str(path))
    if content is not None:
        path.write_text(content, encoding="utf-8")
    if variable is None:
        monkeypatch.delenv(LIMIT, raising=False)
    else:
        monkeypatch.setenv(LIMIT, variable)
    try:
        wanted = Settings.load().max_cpu_isa
    except SettingsError as error:
        # A variable is enough for an engine, even if the file is wrong
        if variable is None or error.source == LIMIT:
            with pytest.raises(ValueError) as caught:
                cpu_target()
            assert str(caught.value) == str(error)
    else:
        assert cpu_target() == cpu_target(wanted)


def test_a_file_that_does_not_exist_is_refused_by_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOLRT_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.delenv(LIMIT, raising=False)
    for read in (cpu_target, Settings.load):
        with pytest.raises(ValueError, match=r"none.toml: cannot be read: No such file"):
            read()
