"""Run Numba's own tests with poolrt's caches: `python -m tests.poolrt.numba.upstream [--plain] [--all] NAME ...`.

A name is a module's, such as ``numba.tests.test_recursion``, with or without class and test.

Each test has a store of its own, as Numba's tests of its cache have a folder of their own; with ``--home FOLDER`` all tests
share the one in FOLDER, which stays. ``--all`` gives every dispatcher and ufunc of Numba for the processor a shared cache,
not only those that ask for one; ``--plain`` runs the tests as they are. Programs that the tests start have the same caches.
Numba's counts of its own files become checks that there are none. The last line of the output is a JSON object with the
counts.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import unittest
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from .upstream_excluded import EXCLUDED, EXCLUDED_WITH_ALL, EXCLUDED_WITH_HOME

#: Names the mode to the programs that tests start: `install` or `all`.
_MODE: Final = "POOLRT_TEST_UPSTREAM"
_SITE: Final = """\
import os, sys
sys.path.append({root!r})
from tests.poolrt.numba.upstream import share
share(os.environ[{mode!r}] == "all")
sys.path.remove({root!r})
"""


def main() -> int:
    """Run the tests named on the command line; return 1 if one of them failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--plain", action="store_true", help="without poolrt")
    parser.add_argument("--all", action="store_true", help="every function, not only those with cache=True")
    parser.add_argument("--home", metavar="FOLDER", help="one store for all tests, instead of one for each")
    parser.add_argument("names", nargs="+")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="poolrt-test-") as folder:
        # Numba's tests leave their files in the temporary folder.
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        return _run(options, folder)


def _run(options: argparse.Namespace, folder: str) -> int:
    loaded = list(_tests(unittest.defaultTestLoader.loadTestsFromNames(options.names)))
    excluded = set(EXCLUDED) | set(EXCLUDED_WITH_ALL if options.all else ())
    excluded |= set(EXCLUDED_WITH_HOME if options.home else ())
    if options.plain:
        excluded = set()
    chosen = [test for test in loaded if excluded.isdisjoint(_names(test.id()))]
    counts: dict[str, int] = {}
    reasons: dict[str, str] = {}
    begin = time.monotonic()
    if not options.plain:
        _share_here(folder, options.all, options.home)
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=1).run(unittest.TestSuite(chosen))
    if not options.plain:
        from poolrt.numba import not_shared, stats
        from poolrt.numba.process_store import process_store

        counts, reasons = stats(), not_shared()
        process_store().close()
    failed = sorted(test.id() for test, _ in [*result.failures, *result.errors])
    failed += sorted(test.id() for test in result.unexpectedSuccesses)
    numbers = {"run": result.testsRun, "skipped": len(result.skipped), "excluded": len(loaded) - len(chosen)}
    found = {**numbers, "failed": failed, "counts": counts, "reasons": Counter(reasons.values()).most_common()}
    print(json.dumps({**found, "seconds": round(time.monotonic() - begin, 1)}))
    return 1 if failed else 0


def share(every_function: bool) -> None:
    """Install poolrt's caches; with ``every_function``, also for functions that ask for none."""
    from poolrt.numba import install

    install()
    if not every_function:
        return
    from numba.core import dispatcher
    from numba.core.registry import CPUDispatcher
    from numba.np.ufunc.ufuncbuilder import UFuncDispatcher

    for kind, shared in ((dispatcher.Dispatcher, CPUDispatcher), (UFuncDispatcher, UFuncDispatcher)):
        _share_kind(kind, shared)


def _share_kind(kind: Any, shared: Any) -> None:
    plain = kind.__init__

    def make(self: Any, *arguments: Any, **options: Any) -> None:
        plain(self, *arguments, **options)
        made: Any = self
        if type(self) is shared:
            made.enable_caching()

    kind.__init__ = make


def _tests(suite: Any) -> Iterator[Any]:
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from _tests(item)
        else:
            yield item


def _names(test: str) -> set[str]:
    """Return the names under which a test may be excluded: of its class, or with test, with or without module."""
    module, kind, name = test.rsplit(".", 2)
    module = module.removeprefix("numba.tests.")
    return {f"{module}.{kind}", f"{kind}.{name}", f"{module}.{kind}.{name}"}


def _share_here(folder: str, every_function: bool, home: str | None) -> None:
    """Install poolrt's caches, here and in programs that are started, and give each test a store."""
    from poolrt.numba.process_store import process_store

    root = str(Path(__file__).resolve().parents[3])
    Path(folder, "sitecustomize.py").write_text(_SITE.format(root=root, mode=_MODE))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    os.environ[_MODE] = "all" if every_function else "install"
    numbers = iter(range(1_000_000))
    run = unittest.TestCase.run

    def run_with_store(self: Any, *arguments: Any) -> Any:
        own = home or os.path.join(folder, str(next(numbers)))
        os.environ["POOLRT_HOME"], os.environ["POOLRT_REDIS_URL"] = own, f"unix://{own}/none.sock"
        if not home:
            if process_store.cache_info().currsize:
                process_store().close()
            process_store.cache_clear()
        return run(self, *arguments)

    patched: Any = unittest.TestCase
    patched.run = run_with_store
    share(every_function)
    _expect_no_files()


def _expect_no_files() -> None:
    """Have Numba's tests expect that its own cache has written nothing, instead of numbers of files."""
    from numba.tests.npyufunc import test_caching as ufuncs
    from numba.tests.test_caching import BaseCacheTest

    def check_pycache(self: Any, _number: int) -> None:
        assert self.cache_contents() == []

    def check_log(self: Any, log: str, count: int) -> None:
        assert "[cache]" not in log

    base: Any = BaseCacheTest
    base.check_pycache = check_pycache
    of_ufuncs: Any = ufuncs.UfuncCacheTest
    of_ufuncs.check_cache_saved = of_ufuncs.check_cache_loaded = check_log


if __name__ == "__main__":
    sys.exit(main())
