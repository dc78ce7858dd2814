"""`poolrt warm`: create what a deployment needs before its processes start."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from poolrt.cli.command_line import add_common
from poolrt.cli.model_option import add_open, model_path, open_arguments, require_file
from poolrt.cli.numbers import positive
from poolrt.cli.process_store import use_store_of
from poolrt.cli.reach import reach
from poolrt.cli.report import JobFailed, Report, seconds_text
from poolrt.settings import Settings

if TYPE_CHECKING:
    from types import TracebackType

    from poolrt.graph.builder import Graph
    from poolrt.pool import Pool

_DESCRIPTION: Final = """\
Create the kernels that a deployment needs, so that its processes start warm. The command fails if the cache keeps nothing.

MODEL.onnx         all kernels of the model, for a pool with the same engine and number of threads
MODULE             the module is imported: its kernels (poolrt.kernel), its graphs, the Numba functions with signatures
                   (poolrt.njit, vectorize, guvectorize) and the OpenCL programs that the import builds are created;
                   of a package, those of its imported modules, too
MODULE:FUNCTION    the function is called without arguments: whatever it compiles through poolrt is created, such as Numba
                   functions without signatures, and graphs and kernels that it returns
MODULE:NAME        one kernel, graph or Numba function of the module

A function is found again under its module's name. Functions of a script that Python runs directly belong to __main__: name the
script as a module, with --main. The part below `if __name__ == "__main__":` does not run then.
"""
_EPILOG: Final = """\
examples:
  poolrt warm resnet50.onnx --threads 2
  poolrt warm open.onnx --batch 8 --shape mask=8,128          sizes that the model leaves open
  poolrt warm myservice.kernels myservice.kernels:warm_up model.onnx
  poolrt warm --main train:warm_up                            for: python train.py
  poolrt warm model.onnx && poolrt cache export kernels.bundle      for an image: poolrt cache import kernels.bundle

--json prints models: [{model, engine, primitives: {total, created, ...}, load_s}] and modules: [{target, seconds, functions,
kernels, programs, graphs: [{graph, primitives, load_s}], open}]. functions (of Numba) and kernels count created, hits,
waited and failed, programs those of poolrt.opencl by their source; open names the functions without a signature
"""
_SCRIPT: Final = " (and --main, if Python runs the file directly)"
_NAMES: Final = {"functions": "Numba functions", "kernels": "kernels", "programs": "programs"}
_MODULE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*(\.[^\W\d]\w*)*)?")


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command's options."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument(
        "targets", type=_target, nargs="+", metavar="MODEL.onnx|MODULE[:FUNCTION]", help="what is needed"
    )
    add_open(parser)
    parser.add_argument("--workers", type=positive, metavar="N", help="worker processes (default: one for each core)")
    parser.add_argument(
        "--threads", type=positive, metavar="N", help="threads of one worker (default: cores / workers)"
    )
    parser.add_argument("--engine", metavar="ENGINE", help="cpu, opencl or opencl:INDEX (default: cpu)")
    parser.add_argument("--main", action="store_true", help="the modules are scripts that Python runs directly")
    add_common(parser, _execute, overrides=("workers", "threads", "engine"))


def _target(word: str) -> Path | str:
    """Return the path of a model, or the name of a module or function."""
    file, colon, name = word.partition(":")
    if file.endswith(".py"):
        module = file.removeprefix("./").removesuffix(".py").replace("/", ".")
        advice = f"write {module}{colon}{name}"
        if _MODULE.fullmatch(module) is None:
            advice = f"go to the folder that has it, and write {Path(file).stem}{colon}{name}"
        raise argparse.ArgumentTypeError(f"expected a module, got the file {file}: {advice}{_SCRIPT}")
    if word.endswith(".onnx") or "/" in word:
        return model_path(word)
    if _MODULE.fullmatch(word) is None:
        raise argparse.ArgumentTypeError(f"expected MODEL.onnx, MODULE or MODULE:FUNCTION, got {word!r}")
    return word


def _execute(options: argparse.Namespace, settings: Settings, report: Report) -> int:
    for target in options.targets:
        if isinstance(target, Path):
            require_file(target)
    if settings.read_only:
        raise JobFailed("the cache is read-only (the setting read_only): warm keeps nothing in it")
    # A model that cannot be read needs no server
    graphs = {target: _read_model(target, options, settings) for target in options.targets if isinstance(target, Path)}
    _require_cache(settings)
    found: dict[str, list[dict[str, Any]]] = {"models": [], "modules": []}
    with _Pool(options) as pool:
        for target in options.targets:
            if isinstance(target, Path):
                found["models"].append(_warm_model(target, graphs[target], pool, settings, report))
            else:
                found["modules"].append(_warm_module(target, options.main, pool, settings, report))
    report.result(found)
    return 0


class _Pool:
    """A pool that starts with the first graph."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._pool: Pool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.__exit__(kind, error, _)

    def load(self, graph: Graph) -> Mapping[str, Any]:
        """Create the primitives of a graph and return the report of its load."""
        if self._pool is None:
            from poolrt.pool import Pool

            options = self._options
            self._pool = Pool(options.workers, options.threads, options.engine, config=options.config, socket="")
        return self._pool.load(graph).report


def _require_cache(settings: Settings) -> None:
    """Raise JobFailed if what is created now would not be there later."""
    from poolrt.cachestore import CacheStore

    with CacheStore.connect(**settings.store_arguments()) as store:
        if settings.redis_url:
            reach(store)
        if store.keeps_nothing():
            raise JobFailed(
                f"the cache in {store.options.home} has no signing key and none can be made: nothing is kept"
            )
        if store.capacity == 0:
            raise JobFailed("the cache is turned off by a capacity of 0: see poolrt cache capacity --help")


def _read_model(path: Path, options: argparse.Namespace, settings: Settings) -> Graph:
    from poolrt.graph.errors import GraphError
    from poolrt.graph.onnx.importer import load_onnx

    given = open_arguments(options)
    try:
        return load_onnx(path, **given, engine=settings.engine, constant_bytes=settings.constant_bytes)
    except GraphError as error:
        # Some errors of a file begin with its name.
        reason = str(error).removeprefix(f"{path.name}: ")
        raise JobFailed(f"{path}: {reason}") from error


def _warm_model(path: Path, graph: Graph, pool: _Pool, settings: Settings, report: Report) -> dict[str, Any]:
    made = pool.load(graph)
    primitives = made["primitives"]
    report.say(f"{path}: {_primitives_text(primitives)}, {seconds_text(made['load_s'])}")
    return {"model": str(path), "engine": settings.engine, "primitives": primitives, "load_s": made["load_s"]}


def _warm_module(target: str, as_main: bool, pool: _Pool, settings: Settings, report: Report) -> dict[str, Any]:
    from poolrt.cli import warm_module

    begin = time.monotonic()
    before = warm_module.counts()
    with _in_this_cache(settings), contextlib.redirect_stdout(sys.stderr if report.as_json else sys.stdout):
        needs = warm_module.needs_of(target, as_main)
        for kernel in needs.kernels:
            try:
                kernel.binary()
            except Exception as error:
                raise JobFailed(f"{target}: {warm_module.error_text(error)}") from error
        graphs = [_warm_graph(target, graph, pool) for graph in needs.graphs]
        if "poolrt.opencl.binaries" in sys.modules:
            import poolrt.opencl

            poolrt.opencl.publish_launches()
    seconds = time.monotonic() - begin
    counted = warm_module.since(before)
    parts = [f"{_NAMES[name]}: {warm_module.counts_text(counts)}" for name, counts in counted.items() if counts]
    parts += [f"graph {graph['graph']}: {_primitives_text(graph['primitives'])}" for graph in graphs]
    report.say(f"{target}: {seconds_text(seconds)}, {'; '.join(parts) or 'nothing to create'}")
    if needs.open:
        report.remark(
            f"{target}: without a signature, so only a call compiles: {', '.join(sorted(needs.open))}; name a function that "
            "calls them"
        )
    if counted["functions"].get("unshared") or counted["functions"].get("fallbacks"):
        import poolrt.numba

        for name, reason in sorted(poolrt.numba.not_shared().items()):
            report.remark(f"{target}: {name} is not in the cache: {reason}")
    return {"target": target, "seconds": seconds, **counted, "graphs": graphs, "open": sorted(needs.open)}


def _warm_graph(target: str, graph: Graph, pool: _Pool) -> dict[str, Any]:
    from poolrt.graph.errors import GraphError

    try:
        made = pool.load(graph)
    except GraphError as error:
        raise JobFailed(f"{target}: {error}") from error
    return {"graph": graph.name, "primitives": made["primitives"], "load_s": made["load_s"]}


def _primitives_text(primitives: Mapping[str, int]) -> str:
    return f"{primitives['total']} primitives, {primitives['created']} created"


@contextlib.contextmanager
def _in_this_cache(settings: Settings) -> Iterator[None]:
    """Have modules find those of the current folder, and this command's cache through the environment."""
    use_store_of(settings)
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    yield
