"""A warm hit on a worker's way: no pickle is ever needed, and nothing is imported that a hit can do without."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from poolrt.cachestore import CacheStore
from poolrt.workers import Eltwise, Engine, MemoryDesc
from tests.workers import compiled
from tests.workers.primitives.warm_hit import BLOCKED

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 60.0
HEAVY = {
    "numba", "llvmlite", "numpy", "scipy", "redis", "hiredis", "asyncio", "pyopencl", "rich", "onnx", *BLOCKED,
}  # fmt: skip
#: What only misses, Redis, other operations and other engines need.
UNNEEDED = {
    "importlib.metadata", "poolrt.cachestore.redis", "poolrt.cachestore.single_creator", "poolrt.cachestore.inspection",
    "poolrt.cachestore.bundle", "poolrt.cachestore.transfer", "poolrt.workers.desc.operations.convolution",
    "poolrt.workers.operations.convolution", "poolrt.workers.operations.reorder",
    "poolrt.workers.implementations.opencl", "poolrt.workers.primitives.creation",
    "poolrt.workers.kernels.native.compiler.codegen",
}  # fmt: skip


def run(home: Path, *arguments: str) -> tuple[str, str]:
    """Return where the kernel came from, and what the process wrote to its standard error."""
    command = [sys.executable, "-m", "tests.workers.primitives.warm_hit", str(home), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a home whose store has the kernel, in files and in the embedded server."""
    folder = tmp_path_factory.mktemp("home")
    engine, md = Engine("cpu"), MemoryDesc((64,), "f32")
    with CacheStore.connect(home=str(folder)) as store:
        primitive = Eltwise.PrimitiveDesc(engine, md, md, "relu").create(compiled.cache(1, store))
        assert primitive.source == "created"
    yield folder
    CacheStore.connect(home=str(folder)).down()


def test_no_pickle_is_imported_on_the_way_from_a_file_to_a_kernel(home: Path) -> None:
    # The import would be an error there
    assert run(home, "block")[0] == "files"


def test_no_pickle_is_imported_on_the_way_from_redis_to_a_kernel(home: Path) -> None:
    # Given a node that has the key and the server, but not the files
    shutil.rmtree(home / "default" / "entries")
    # When its import would be an error, then the kernel runs all the same
    assert run(home, "block")[0] == "redis"
    # And the next process finds it in files again
    assert run(home)[0] == "files"


def test_a_hit_in_files_imports_only_what_it_needs(home: Path) -> None:
    source, errors = run(home, "list")
    assert source == "files"
    imported = set(errors.splitlines())
    assert "poolrt.cachestore.store" in imported
    assert not (HEAVY | UNNEEDED) & imported
