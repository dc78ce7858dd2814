"""The key of a primitive: what its compiled form depends on is in it, and nothing else is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from poolrt import workers
from poolrt.cachestore import Key
from poolrt.workers.desc import Eltwise, MemoryDesc, PrimitiveAttr, Reduction
from poolrt.workers.engines.target import Target
from poolrt.workers.implementations.primitive_desc import implementations, primitive_desc
from poolrt.workers.primitives import key
from poolrt.workers.primitives.key import primitive_key

ROOT = Path(__file__).resolve().parents[3]
FLOORS = ("cachestore", "workers", "poolrt")
#: Prints the digests of the keys of one primitive on both kinds of engines; the first argument is where poolrt lies.
DIGESTS = """
import sys
sys.path[:0] = sys.argv[1:]
from poolrt.workers.desc import Eltwise, MemoryDesc, PrimitiveAttr
from poolrt.workers.engines.target import Target
from poolrt.workers.primitives.key import primitive_key
from poolrt.workers.implementations.primitive_desc import primitive_desc
md = MemoryDesc((3, 17), "f32")
for target in (Target("cpu", "native", (("isa", "x86-64-v3"),)), Target("opencl", "opencl", (("fp64", "True"), ("type", "CPU")))):
    print(primitive_key(primitive_desc(Eltwise(md, md, "relu"), PrimitiveAttr(), target)).digest)
"""


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
        "schema", "primitive", "operation", "attributes", "hint", "implementation", "source", "target", "toolchain",
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
    assert list(keys[0].diff(keys[1])) == ["implementation"]


@pytest.mark.parametrize(
    ("kind", "rooms", "others"),
    [
        ("cpu", ("kernels/native", "implementations", "desc"), "implementations/opencl"),
        ("opencl", ("kernels/opencl", "implementations", "desc"), "kernels/native"),
    ],
)
def test_every_folder_of_kernels_and_implementations_counts(kind: str, rooms: tuple[str, ...], others: str) -> None:
    root = Path(workers.__path__[0])
    files = [file.relative_to(root) for room in rooms for file in (root / room).rglob("*.*")]
    sources = [file for file in files if file.suffix in (".py", ".cl") and not file.is_relative_to(others)]
    assert set(key._SOURCES[kind]) == {(file.parent.as_posix(), file.suffix) for file in sources}


def digests(*paths: Path, cwd: Path, **environment: str) -> list[str]:
    """Return the digests of a primitive for the CPU and for OpenCL that a process computes, poolrt being found in paths."""
    done = subprocess.run(
        [sys.executable, "-c", DIGESTS, *map(str, paths)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a copy of the sources, linked as they are in the repository."""
    place = tmp_path_factory.mktemp("copied")
    for floor in FLOORS:
        shutil.copytree(ROOT / floor, place / floor, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return place


def test_neither_place_nor_user_nor_process_is_in_a_key(copied: Path, tmp_path: Path) -> None:
    here = digests(ROOT, cwd=ROOT)
    assert len(set(here)) == 2
    assert digests(copied, cwd=tmp_path, HOME=str(tmp_path), USER="another", PYTHONHASHSEED="3", LANG="C") == here


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("workers/kernels/native/vec.py", [True, False]),
        ("workers/kernels/native/reference/tensor.py", [True, False]),
        ("workers/kernels/opencl/reference/tensors.cl", [False, True]),
        ("workers/kernels/opencl/build.py", [False, True]),
        ("workers/implementations/program.py", [True, True]),
        ("workers/desc/operations/eltwise.py", [True, True]),
        ("workers/primitives/cache.py", [False, False]),
        ("workers/ipc/channel.py", [False, False]),
    ],
)
def test_a_source_that_kernels_are_made_from_makes_other_keys(copied: Path, source: str, changed: list[bool]) -> None:
    before = digests(copied, cwd=copied)
    file = copied / source
    content = file.read_bytes()
    try:
        file.write_bytes(content + b"\n")
        after = digests(copied, cwd=copied)
    finally:
        file.write_bytes(content)
    assert [a != b for a, b in zip(before, after, strict=True)] == changed


@pytest.mark.parametrize("package", ["numba", "llvmlite", "numpy"])
def test_another_version_of_a_compiler_makes_other_keys_for_the_processor(tmp_path: Path, package: str) -> None:
    # Given an installation that is found first
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").touch()
    (tmp_path / f"{package}-0.1.dist-info").mkdir()
    before, after = digests(ROOT, cwd=ROOT), digests(tmp_path, ROOT, cwd=ROOT)
    assert [a != b for a, b in zip(before, after, strict=True)] == [True, False]
