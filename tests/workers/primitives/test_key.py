"""The key of a primitive: what its compiled form depends on is in it, and nothing else is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from poolrt.cachestore import Key
from poolrt.workers.desc import Eltwise, MemoryDesc, PrimitiveAttr, Reduction
from poolrt.workers.engines.target import Target
from poolrt.workers.implementations.primitive_desc import implementations, primitive_desc
from poolrt.workers.primitives.key import primitive_key

ROOT = Path(__file__).resolve().parents[3]
FLOORS = ("cachestore", "workers", "poolrt")
#: Prints a name and the digest of the key of some primitives on both kinds of engines, and an empty line, for each line of
#: standard input; the arguments are where poolrt is. A child that has computed no key before computes them.
DIGESTS = """
import os, sys
sys.path[:0] = sys.argv[1:]
from poolrt.workers.desc import Eltwise, InnerProduct, Matmul, MemoryDesc, PrimitiveAttr, Softmax
from poolrt.workers.engines.target import Target
from poolrt.workers.primitives.key import primitive_key
from poolrt.workers.implementations.primitive_desc import primitive_desc, primitive_descs
md, attr, described = MemoryDesc((16, 16), "f32"), PrimitiveAttr(), {}
for target in (Target("cpu", "native", (("isa", "x86-64-v3"),)), Target("opencl", "opencl", (("fp64", "True"), ("type", "CPU")))):
    for op in (Eltwise(md, md, "relu"), Softmax(md, md, 1), Matmul(md, md, None, md)):
        described[f"{target.engine_kind}:{op.kind}"] = primitive_desc(op, attr, target)
    for pd in primitive_descs(InnerProduct(md, md, None, md), attr, target):
        if pd.nested():
            described[f"{target.engine_kind}:nested"] = pd
for _ in sys.stdin:
    child = os.fork()
    if child == 0:
        for name, pd in described.items():
            print(name, primitive_key(pd).digest)
        print(flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
ALL = {f"{engine}:{kind}" for engine in ("cpu", "opencl") for kind in ("eltwise", "softmax", "matmul", "nested")}
CPU, OPENCL = ({name for name in ALL if name.startswith(engine)} for engine in ("cpu", "opencl"))
SOFTMAX = {"cpu:softmax", "opencl:softmax"}


def cpu(isa: str, *extensions: str) -> Target:
    return Target("cpu", "native", (("isa", isa), ("extensions", " ".join(extensions)))[: 1 + bool(extensions)])


def opencl(**device: str) -> Target:
    return Target("opencl", "opencl", tuple({"fp64": "True", "name": "a", "type": "CPU", **device}.items()))


def of(target: Target) -> Key:
    """Return the key of one primitive for a target."""
    md = MemoryDesc((3, 17), "f32")
    pd = primitive_desc(Eltwise(md, md, "relu"), PrimitiveAttr(), target)
    return primitive_key(pd)


def test_fields_are_named() -> None:
    names = {path.partition(".")[0] for path in of(cpu("x86-64-v3")).diff(Key({}))}
    assert names == {
        "schema", "primitive", "operation", "attributes", "hint", "implementation", "source", "nested", "target", "toolchain",
    }  # fmt: skip


def test_every_target_has_a_key_of_its_own() -> None:
    targets = [cpu(level) for level in ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")]
    targets += [opencl(), opencl(fp64="False"), opencl(name="b"), opencl(type="GPU"), opencl(driver="2")]
    assert len({of(target).digest for target in targets}) == len(targets)
    assert list(of(cpu("x86-64-v3")).diff(of(cpu("x86-64-v4")))) == ["target.device.isa"]


def test_the_number_of_threads_is_in_the_key_where_it_matters() -> None:
    def keyed(elements: int, threads: int) -> Key:
        op = Reduction(MemoryDesc((elements,), "f32"), MemoryDesc((1,), "f32"), "sum")
        return primitive_key(primitive_desc(op, PrimitiveAttr(), cpu("x86-64-v3").on_threads(threads)))

    assert list(keyed(1 << 20, 2).diff(keyed(1 << 20, 3))) == ["target.threads"]
    assert keyed(1 << 10, 2).digest == keyed(1 << 10, 3).digest
    assert of(cpu("x86-64-v3").on_threads(2)).digest == of(cpu("x86-64-v3")).digest


def test_every_implementation_has_a_key_of_its_own() -> None:
    md, target = MemoryDesc((3, 17), "f32"), cpu("x86-64-v3")
    op = Eltwise(md, md, "relu")
    first, last = implementations("eltwise", "cpu")[0], implementations("eltwise", "cpu")[-1]
    pd = primitive_desc(op, PrimitiveAttr(), target)
    keys = [primitive_key(type(pd)(op, PrimitiveAttr(), target, each)) for each in (first, last)]
    assert set(keys[0].diff(keys[1])) == {"implementation", "source"}


def digests(*paths: Path, cwd: Path, **environment: str) -> dict[str, str]:
    """Return the digests of primitives by name that a process computes, poolrt being found in paths."""
    done = subprocess.run(
        [sys.executable, "-c", DIGESTS, *map(str, paths)],
        cwd=cwd,
        env={**os.environ, **environment},
        input="\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split() for line in done.stdout.splitlines() if line)


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    """Return the names of the primitives whose keys differ."""
    assert before.keys() == after.keys() == ALL
    return {name for name in ALL if before[name] != after[name]}


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a copy of the sources, linked as they are in the repository."""
    place = tmp_path_factory.mktemp("copied")
    for floor in FLOORS:
        shutil.copytree(ROOT / floor, place / floor, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return place


@pytest.fixture(scope="module")
def again(copied: Path) -> Iterator[Callable[[], dict[str, str]]]:
    """Return what computes the digests of the copy as it is by then."""
    command = [sys.executable, "-c", DIGESTS, str(copied)]
    with subprocess.Popen(command, cwd=copied, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def ask() -> dict[str, str]:
            print(file=asked, flush=True)
            found: dict[str, str] = {}
            while (line := answers.readline()) != "\n":
                name, digest = line.split()  # of a line: the process that has ended gives none
                found[name] = digest
            return found

        yield ask


@pytest.fixture(scope="module")
def unchanged(again: Callable[[], dict[str, str]]) -> dict[str, str]:
    """Return the digests that the copy computes as it is."""
    return again()


@pytest.fixture(scope="module")
def here() -> dict[str, str]:
    """Return the digests that the repository computes."""
    return digests(ROOT, cwd=ROOT)


def test_neither_place_nor_user_nor_process_is_in_a_key(copied: Path, here: dict[str, str], tmp_path: Path) -> None:
    assert len(set(here.values())) == len(ALL)
    assert digests(copied, cwd=tmp_path, HOME=str(tmp_path), USER="another", PYTHONHASHSEED="3", LANG="C") == here


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("workers/kernels/native/softmax.py", {"cpu:softmax"}),
        ("workers/kernels/opencl/softmax.cl", {"opencl:softmax"}),
        ("workers/implementations/native/softmax.py", {"cpu:softmax"}),
        ("workers/desc/operations/softmax.py", SOFTMAX),
        # What is shared by kernels, or by those of one family
        ("workers/kernels/native/vec.py", CPU),
        ("workers/kernels/native/compiler/codegen.py", CPU),
        ("workers/kernels/native/gemm.py", {"cpu:matmul", "cpu:nested"}),
        ("workers/kernels/opencl/build.py", OPENCL),
        ("workers/kernels/opencl/prelude.cl", OPENCL),
        ("workers/implementations/opencl/grid.py", OPENCL | {"cpu:nested"}),
        # What describes programs
        ("workers/implementations/program.py", ALL),
        ("workers/implementations/cost_model.py", ALL),
        ("workers/desc/memory_desc.py", ALL),
        ("workers/engines/isa.py", ALL),
        ("workers/engines/target.py", ALL),
        ("workers/implementations/primitive_desc.py", {"cpu:nested", "opencl:nested"}),
        # The framework
        ("workers/primitives/cache.py", set()),
        ("workers/primitives/key.py", set()),
        ("workers/execution/native_binding.py", set()),
        ("workers/engines/object_loader.py", set()),
        ("workers/ipc/channel.py", set()),
        ("workers/kernels/native/warm_up.py", set()),
        ("workers/engines/opencl_program.py", set()),
    ],
)
def test_a_source_makes_other_keys_for_what_is_made_from_it(
    copied: Path,
    unchanged: dict[str, str],
    again: Callable[[], dict[str, str]],
    source: str,
    expected: set[str],
) -> None:
    file = copied / source
    content = file.read_bytes()
    try:
        file.write_bytes(content + b"\n")
        after = again()
    finally:
        file.write_bytes(content)
    assert changed(unchanged, after) == expected


@pytest.mark.parametrize("package", ["numba", "llvmlite", "numpy"])
@pytest.mark.one_in(3)
def test_another_version_of_a_compiler_makes_other_keys_for_the_processor(
    here: dict[str, str], tmp_path: Path, package: str
) -> None:
    # Given an installation that is found first
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").touch()
    (tmp_path / f"{package}-0.1.dist-info").mkdir()
    assert changed(here, digests(tmp_path, ROOT, cwd=ROOT)) == CPU
