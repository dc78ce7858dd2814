"""`poolrt warm`: create what a deployment needs before its processes start."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from poolrt.cli.command_line import add_common
from poolrt.cli.model_option import add_shapes, model_path, require_file
from poolrt.cli.numbers import positive
from poolrt.cli.reach import reach
from poolrt.cli.report import JobFailed, Report, seconds_text
from poolrt.settings import Settings, env_name
from poolrt.spelling import hint

if TYPE_CHECKING:
    from poolrt.pool import Pool

_DESCRIPTION: Final = """\
Create the kernels that a deployment needs, so that its processes start warm.

MODEL.onnx: all kernels of the model, for a pool with the same engine and number of threads. MODULE:FUNCTION: the module is
imported and the function is called without arguments; what it compiles through poolrt is in the cache afterwards, such as
poolrt.opencl.Program. MODULE alone is imported. The command fails if the cache keeps nothing.
"""
_EPILOG: Final = """\
examples:
  poolrt warm resnet50.onnx --threads 2
  poolrt warm myservice.kernels:warm_up model.onnx
  poolrt warm model.onnx && poolrt cache export kernels.bundle      for an image: poolrt cache import kernels.bundle

--json prints models: [{model, engine, primitives: {total, created, ...}, load_s}] and modules: [{target, seconds, programs}],
where programs counts those of poolrt.opencl by their source
"""
_MODULE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*(\.[^\W\d]\w*)*)?")
#: Settings of the store that other stores of this process read from the environment.
_SHARED: Final = ("redis_url", "namespace", "key_file", "redis_server")


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the command's options."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument(
        "targets", type=_target, nargs="+", metavar="MODEL.onnx|MODULE[:FUNCTION]", help="what is needed"
    )
    add_shapes(parser)
    parser.add_argument("--workers", type=positive, metavar="N", help="worker processes (default: one for each core)")
    parser.add_argument(
        "--threads", type=positive, metavar="N", help="threads of one worker (default: cores / workers)"
    )
    parser.add_argument("--engine", metavar="ENGINE", help="cpu, opencl or opencl:INDEX (default: cpu)")
    add_common(parser, _execute, overrides=("workers", "threads", "engine"))


def _target(word: str) -> Path | str:
    """Return the path of a model, or the name of a module or function."""
    if word.endswith(".onnx") or "/" in word:
        return model_path(word)
    if _MODULE.fullmatch(word) is None:
        raise argparse.ArgumentTypeError(f"expected MODEL.onnx, MODULE or MODULE:FUNCTION, got {word!r}")
    if word.endswith(".py"):
        raise argparse.ArgumentTypeError(f"expected a module, got the file {word}: write {word.removesuffix('.py')}")
    return word


def _execute(options: argparse.Namespace, settings: Settings, report: Report) -> int:
    models = [target for target in options.targets if isinstance(target, Path)]
    for model in models:
        require_file(model)
    _require_cache(settings)
    found: dict[str, list[dict[str, Any]]] = {"models": [], "modules": []}
    with contextlib.ExitStack() as pools:
        pool: Pool | None = None
        for target in options.targets:
            if isinstance(target, Path):
                if pool is None:
                    from poolrt.pool import Pool

                    given = {"config": options.config, "socket": ""}
                    pool = pools.enter_context(Pool(options.workers, options.threads, options.engine, **given))
                found["models"].append(_warm_model(target, pool, options, settings, report))
            else:
                found["modules"].append(_warm_module(target, settings, report))
    report.result(found)
    return 0


def _require_cache(settings: Settings) -> None:
    """Raise JobFailed if what is created now would not be there later."""
    from poolrt.cachestore import CacheStore

    if settings.read_only:
        raise JobFailed("the cache is read-only (the setting read_only): warm keeps nothing in it")
    with CacheStore.connect(**settings.store_arguments()) as store:
        if settings.redis_url:
            reach(store)
        if store.keeps_nothing():
            raise JobFailed(
                f"the cache in {store.options.home} has no signing key and none can be made: nothing is kept"
            )
        if store.capacity == 0:
            raise JobFailed("the cache is turned off by a capacity of 0: see poolrt cache capacity --help")


def _warm_model(
    path: Path, pool: Pool, options: argparse.Namespace, settings: Settings, report: Report
) -> dict[str, Any]:
    from poolrt.graph.errors import GraphError
    from poolrt.graph.onnx.importer import load_onnx

    shapes, limit = dict(options.shape), settings.constant_bytes
    try:
        graph = load_onnx(path, batch=options.batch, shapes=shapes, engine=settings.engine, constant_bytes=limit)
    except GraphError as error:
        raise JobFailed(f"{path}: {error}") from error
    made = pool.load(graph).report
    primitives = made["primitives"]
    line = f"{path}: {primitives['total']} primitives, {primitives['created']} created"
    report.say(f"{line}, {seconds_text(made['load_s'])}")
    return {"model": str(path), "engine": settings.engine, "primitives": primitives, "load_s": made["load_s"]}


def _warm_module(target: str, settings: Settings, report: Report) -> dict[str, Any]:
    begin = time.monotonic()
    before = _programs()
    with _in_this_cache(settings), contextlib.redirect_stdout(sys.stderr if report.as_json else sys.stdout):
        _call(target)
        if "poolrt.opencl.binaries" in sys.modules:
            import poolrt.opencl

            poolrt.opencl.publish_launches()
    seconds = time.monotonic() - begin
    programs = {
        name: count - before.get(name, 0) for name, count in _programs().items() if count != before.get(name, 0)
    }
    counted = "".join(f", programs {name}: {count}" for name, count in sorted(programs.items()))
    report.say(f"{target}: {seconds_text(seconds)}{counted}")
    return {"target": target, "seconds": seconds, "programs": programs}


def _programs() -> dict[str, int]:
    if "poolrt.opencl.binaries" not in sys.modules:
        return {}
    import poolrt.opencl

    return poolrt.opencl.stats()


def _call(target: str) -> None:
    """Import a module, and call its function if one is named. Raises JobFailed for whatever they raise."""
    from importlib import import_module
    from inspect import iscoroutine

    name, _, function = target.partition(":")
    try:
        found: Any = import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise JobFailed(
                f"there is no module {error.name}: go to the folder that has it, or set PYTHONPATH"
            ) from error
        raise JobFailed(f"{target}: ModuleNotFoundError: {error}") from error
    except (Exception, SystemExit) as error:
        raise JobFailed(f"{target}: its import raised {type(error).__name__}: {error}") from error
    if not function:
        return
    for part in function.split("."):
        if not hasattr(found, part):
            names = [each for each in dir(found) if callable(getattr(found, each, None))]
            raise JobFailed(f"{target}: there is no {part!r}{hint(part, names)}")
        found = getattr(found, part)
    if not callable(found):
        raise JobFailed(f"{target} is no function: its type is {type(found).__name__}")
    try:
        result = found()
    except (Exception, SystemExit) as error:
        raise JobFailed(f"{target} raised {type(error).__name__}: {error}") from error
    if iscoroutine(result):
        result.close()
        raise JobFailed(f"{target} is asynchronous: name a function that calls asyncio.run")


@contextlib.contextmanager
def _in_this_cache(settings: Settings) -> Iterator[None]:
    """Have modules find those of the current folder, and this command's cache through the environment."""
    variables = {env_name(name): str(getattr(settings, name)) for name in _SHARED if getattr(settings, name)}
    os.environ.update(variables | {env_name("home"): str(settings.home_path)})
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    yield
