"""The capacity of primitives is one process's: others, and the store that all share, keep what they have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from poolrt.cachestore import CacheStore

ROOT = Path(__file__).resolve().parents[3]
COUNT = 100
BOUND_S = 60.0

#: Asks for a range of primitives, whose entries it makes without a compiler, and prints what it then holds.
PROCESS = """
import sys
import poolrt
from poolrt.cachestore import CacheStore
from poolrt.workers.desc import MemoryDesc, PrimitiveAttr
from poolrt.workers.desc.operations.eltwise import Eltwise
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import primitive_desc
from poolrt.workers.implementations.program import Program
from poolrt.workers.primitives.entry import pack_entry
from poolrt.workers.primitives.key import primitive_key
from poolrt.workers.primitives.provider import PrimitiveProvider, primitive_provider

def described(number):
    md = MemoryDesc((number + 1,), "f32")
    return primitive_desc(Eltwise(md, md, "relu"), PrimitiveAttr(), cpu_target())

def create(pd):
    return pack_entry(pd.impl_name(), "cpu", Program((), ()), [], [])

provider = primitive_provider()
provider._create = create
begin, end = map(int, sys.argv[1:3])
sources = [provider.fetch(described(number))[1] for number in range(begin, end)]
# Another user of the store, which keeps in memory what it is asked for
for number in range(begin, end):
    assert provider._store.get(primitive_key(described(number)))
print(*sorted(set(sources)), *poolrt.primitive_cache_stats().values(), len(provider._store._memory))
sys.stdin.readline()
if sys.argv[3:]:
    poolrt.set_primitive_cache_capacity(0)
    print(poolrt.get_primitive_cache_size(), len(provider._store._memory), flush=True)
    before = poolrt.primitive_cache_stats()["hits"]
    print(*{provider.fetch(described(number))[1] for number in range(begin, end)} & {"memory", "waited"})
    print(poolrt.primitive_cache_stats()["hits"] - before)
provider._store.close()
"""


@pytest.mark.slow
def test_three_processes_with_three_capacities_share_100_entries(tmp_path: Path) -> None:
    # Given one Redis, and processes on hosts of their own that each create a part and use all
    key_file = tmp_path / "signing.key"
    key_file.write_bytes(os.urandom(32))
    key_file.chmod(0o600)
    with CacheStore.connect(home=str(tmp_path / "server"), key_file=str(key_file)) as store:
        try:
            store.ping()
            url = f"unix://{tmp_path}/server/redis/redis.sock"

            def process(host: int, capacity: int, *words: object) -> list[str]:
                own = {
                    "POOLRT_REDIS_URL": url,
                    "POOLRT_HOME": str(tmp_path / f"host{host}"),
                    "POOLRT_KEY_FILE": str(key_file),
                    "POOLRT_PRIMITIVE_CACHE_CAPACITY": str(capacity),
                }
                done = subprocess.run(
                    [sys.executable, "-c", PROCESS, *map(str, words)],
                    cwd=ROOT,
                    env={**os.environ, **own},
                    input="go\n",
                    capture_output=True,
                    text=True,
                    timeout=BOUND_S,
                    check=False,
                )
                assert done.returncode == 0, done.stderr
                return done.stdout.splitlines()

            #: hits, misses, waits, evictions, size, capacity, derived, and entries in the store's memory
            assert process(1, 1000, 0, 60) == ["created 0 60 0 0 60 1000 0 60"]
            assert process(2, 3, 60, COUNT) == ["created 0 40 0 37 3 3 0 3"]
            assert store.size == COUNT
            assert process(3, 0, 0, COUNT) == ["redis 0 100 0 0 0 0 0 0"]
            assert process(1, 1000, 0, COUNT, "empty") == ["files redis 0 100 0 0 100 1000 0 100", "0 0", "", "0"]
            stats = store.stats()
            assert (stats["entries"], stats["evictions"], stats["creations"]) == (COUNT, 0, COUNT)
            assert store.capacity == 1024
        finally:
            store.down()
