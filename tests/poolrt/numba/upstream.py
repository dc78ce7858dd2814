"""Run Numba's own tests with poolrt's caches: `python -m tests.poolrt.numba.upstream [--plain] [--all] NAME ...`.

A name is a module's, such as ``numba.tests.test_recursion``, with or without class and test.

Each test has a store of its own, as Numba's tests of its cache have a folder of their own. ``--all`` gives every dispatcher of
Numba for the processor a shared cache, not only those that ask for one; ``--plain`` runs the tests as they are. The last line of
the output is a JSON object with the counts.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import unittest
from collections.abc import Iterator
from typing import Any, Final

#: Numba's test -> why it cannot pass with another cache, each read from its source.
EXCLUDED: Final = {
    **dict.fromkeys(
        (
            "TestCFuncCache.test_caching", "TestCache.test_caching", "TestCache.test_caching_nrt_pruned",
            "TestCache.test_closure", "TestCache.test_first_class_function", "TestCache.test_inner_then_outer",
            "TestCache.test_outer_then_inner", "TestSequentialParForsCache.test_caching",
        ),
        "counts the files in __pycache__",
    ),
    "TestCache.test_nbi_reproducible_after_touch": "reads the index file",
    "TestCache.test_cache_reuse": "has a process without poolrt's cache, and compares the files before and after",
    "TestCacheFileCollision.test_file_location": "reads the path of the cache's file",
    "TestCacheFileCollision.test_no_collision": "reads the path of the cache's file",
    "TestCacheWithCpuSetting.test_user_set_cpu_features": "reads the index file",
    "TestCacheWithCpuSetting.test_user_set_cpu_name": "reads the index file",
    "TestCache.test_recompile": "expects the code of another constant's value after a fresh import",
}  # fmt: skip


def main() -> int:
    """Run the tests named on the command line; return 1 if one of them failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--plain", action="store_true", help="without poolrt")
    parser.add_argument("--all", action="store_true", help="every function, not only those with cache=True")
    parser.add_argument("names", nargs="+")
    options = parser.parse_args()
    loaded = list(_tests(unittest.defaultTestLoader.loadTestsFromNames(options.names)))
    chosen = [test for test in loaded if ".".join(test.id().split(".")[-2:]) not in EXCLUDED]
    counts: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="poolrt-test-") as folder:
        if not options.plain:
            _share(folder, options.all)
        result = unittest.TextTestRunner(stream=sys.stderr, verbosity=1).run(unittest.TestSuite(chosen))
        if not options.plain:
            from poolrt.numba import stats
            from poolrt.numba.process_store import process_store

            counts = stats()
            process_store().close()
    failed = sorted(test.id() for test, _ in [*result.failures, *result.errors])
    numbers = {"run": result.testsRun, "skipped": len(result.skipped), "excluded": len(loaded) - len(chosen)}
    print(json.dumps({**numbers, "failed": failed, "counts": counts}))
    return 1 if failed else 0


def _tests(suite: Any) -> Iterator[Any]:
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from _tests(item)
        else:
            yield item


def _share(folder: str, every_function: bool) -> None:
    """Install poolrt's caches, and give each test a store in a folder of its own."""
    from poolrt.numba import install
    from poolrt.numba.process_store import process_store

    numbers = iter(range(1_000_000))
    run = unittest.TestCase.run

    def run_with_store(self: Any, *arguments: Any) -> Any:
        home = os.path.join(folder, str(next(numbers)))
        os.environ["POOLRT_HOME"], os.environ["POOLRT_REDIS_URL"] = home, f"unix://{home}/none.sock"
        process_store.cache_clear()
        return run(self, *arguments)

    patched: Any = unittest.TestCase
    patched.run = run_with_store
    install()
    if every_function:
        from numba.core import dispatcher
        from numba.core.registry import CPUDispatcher

        kind: Any = dispatcher.Dispatcher
        plain = kind.__init__

        def make(self: Any, *arguments: Any, **options: Any) -> None:
            plain(self, *arguments, **options)
            if type(self) is CPUDispatcher:
                self.enable_caching()

        kind.__init__ = make


if __name__ == "__main__":
    sys.exit(main())
