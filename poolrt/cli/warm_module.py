"""What modules and functions that `poolrt warm` names have to create: found by importing and calling them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from poolrt.cachestore import CreationFailed
from poolrt.cachestore.deferred_dataclass import dataclass, field
from poolrt.cli.report import JobFailed
from poolrt.spelling import hint

if TYPE_CHECKING:
    from poolrt.graph.builder import Graph
    from poolrt.kernels.kernel import Kernel

#: Deepest nesting of lists that a function returns.
_DEEPEST: Final = 4
#: Name in the report -> the module that has its counts once it is imported, and the function that returns them.
_COUNTS: Final = {
    "functions": ("poolrt.numba.counters", "poolrt.numba", "stats"),
    "kernels": ("poolrt.kernels.counts", "poolrt.kernels", "stats"),
    "programs": ("poolrt.opencl.binaries", "poolrt.opencl", "stats"),
}
#: The name that children of multiprocessing give the main module.
_MAIN: Final = "__mp_main__"
#: Counts of everything above that say that nothing was compiled.
_FOUND: Final = ("hits", "memory", "files", "redis")


@dataclass(slots=True)
class Needs:
    """What a target needs: kernels and graphs to create, and remarks about what cannot be created."""

    kernels: list[Kernel] = field(default_factory=list)
    graphs: list[Graph] = field(default_factory=list)
    #: Functions, by name, that have no signature, so that only a call compiles them.
    open: list[str] = field(default_factory=list)

    def take(self, value: Any, name: str) -> bool:
        """Add a value if it is something to create; return whether it is."""
        if _is_instance(value, "poolrt.kernels.kernel", "Kernel"):
            self.kernels.append(value)
        elif _is_instance(value, "poolrt.graph.builder", "Graph"):
            self.graphs.append(value)
        elif _is_shared(value):
            if not _signatures(value):
                self.open.append(name)
        else:
            return False
        return True


def needs_of(target: str, as_main: bool = False) -> Needs:
    """Import a module, call its function if one is named, and return what is left to create.

    A kernel, graph or compiled function may be named, too. With ``as_main``, the module is a script. Raises JobFailed with
    one line for whatever they raise.
    """
    name, _, path = target.partition(":")
    found: Any = _import(target, name, _import_main if as_main else import_module)
    needs = Needs()
    if not path:
        for module in _modules(name, found):
            for each, value in list(vars(module).items()):
                needs.take(value, each)
        return needs
    for part in path.split("."):
        if not hasattr(found, part):
            names = [each for each in dir(found) if callable(getattr(found, each, None))]
            raise JobFailed(f"{target}: there is no {part!r}{hint(part, names)}")
        found = getattr(found, part)
    if needs.take(found, path):
        if needs.open:
            raise JobFailed(
                f"{target} has no signature, so only a call compiles it: name a function that calls it, or give it one, such "
                "as @poolrt.njit('f8(f8[::1])')"
            )
        return needs
    _refuse_others(target, found)
    for value in _flat(_call(target, found)):
        needs.take(value, path)
    return needs


def counts() -> dict[str, dict[str, int]]:
    """Return this process's counts of Numba functions, kernels and OpenCL programs."""
    return {
        name: dict(getattr(import_module(place), function)()) if loaded in sys.modules else {}
        for name, (loaded, place, function) in _COUNTS.items()
    }


def since(before: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Return the counts since others were taken, without zeros."""
    return {
        name: {
            event: count - before[name].get(event, 0)
            for event, count in found.items()
            if count != before[name].get(event, 0)
        }
        for name, found in counts().items()
    }


def counts_text(found: Mapping[str, int]) -> str:
    """Return counts for people: ``2 created, 1 found``."""
    merged: dict[str, int] = {"created": 0, "found": 0}
    for event, count in found.items():
        name = "found" if event in _FOUND else event
        merged[name] = merged.get(name, 0) + count
    return ", ".join(f"{count} {name}" for name, count in merged.items() if count) or "none"


def error_text(error: BaseException) -> str:
    """Return an error in one line: of a compiler's message what is wrong and the place in the source."""
    if isinstance(error, CreationFailed):
        return error.message.partition("\n")[0]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    places = [line for line in lines if line.startswith('File "')]
    said = [line for line in lines if not line.startswith(("File ", "Failed in", "- ", "During", "<source", "^", "~"))]
    text = " ".join(lines if len(lines) < 3 or not places else [*said[:1], f"({places[0].rstrip(':')})"])
    return f"{type(error).__name__}: {text}"


def _import(target: str, name: str, importer: Callable[[str], ModuleType]) -> ModuleType:
    try:
        return importer(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise JobFailed(
                f"there is no module {error.name}: go to the folder that has it, or set PYTHONPATH"
            ) from error
        raise JobFailed(f"{target}: ModuleNotFoundError: {error}") from error
    except (Exception, SystemExit) as error:
        raise JobFailed(f"{target}: its import raised {error_text(error)}") from error


def _import_main(name: str) -> ModuleType:
    """Import a module as a child of multiprocessing imports the script of its parent: its functions belong to __main__."""
    found = find_spec(name)
    if found is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    if found.origin is None or found.submodule_search_locations is not None:
        raise ImportError(f"{name} is a package, so no script")
    spec = spec_from_file_location(_MAIN, found.origin)
    if spec is None or spec.loader is None:
        raise ImportError(f"{found.origin} is no script")
    module = module_from_spec(spec)
    sys.modules[_MAIN] = module
    spec.loader.exec_module(module)
    return module


def _modules(name: str, module: ModuleType) -> Iterator[ModuleType]:
    """Yield a module, and of a package the modules in it that are imported now."""
    yield module
    if hasattr(module, "__path__"):
        for each, found in sorted(sys.modules.items()):
            if each.startswith(f"{name}.") and isinstance(found, ModuleType):
                yield found


def _call(target: str, function: Any) -> Any:
    """Call a function without arguments. Raises JobFailed."""
    try:
        inspect.signature(function).bind()
    except TypeError:
        raise JobFailed(
            f"{target} takes the arguments {inspect.signature(function)}: name a function without any that calls it"
        ) from None
    except ValueError:
        pass  # a function that does not say which arguments it takes
    try:
        result = function()
    except (Exception, SystemExit) as error:
        raise JobFailed(f"{target} raised {error_text(error)}") from error
    if inspect.iscoroutine(result):
        result.close()
        raise JobFailed(f"{target} is asynchronous: name a function that calls asyncio.run")
    return result


def _flat(value: Any, depth: int = 0) -> Iterator[Any]:
    """Yield a value, or the items of a list of such."""
    items: Iterable[Any] | None = None
    if depth < _DEEPEST:
        if isinstance(value, (list, tuple, set, frozenset)) or inspect.isgenerator(value):
            items = value
        elif isinstance(value, dict):
            items = value.values()
    if items is None:
        yield value
        return
    for item in items:
        yield from _flat(item, depth + 1)


def _refuse_others(target: str, found: Any) -> None:
    """Raise JobFailed for a value that is neither to be created nor to be called."""
    if hasattr(found, "py_func") and hasattr(found, "signatures"):
        raise JobFailed(f"{target} is a function of numba.njit, which the cache does not have: write poolrt.njit")
    if not callable(found):
        kind = type(found).__name__
        if _is_instance(found, "pyopencl", "Program"):
            raise JobFailed(f"{target} is a program: name its module, or a function that builds it")
        raise JobFailed(f"{target} is no function: its type is {kind}")


def _is_shared(value: Any) -> bool:
    """Return whether a value is a function of Numba's that shares the store."""
    module = sys.modules.get("poolrt.numba.shared_cache")
    if module is None or isinstance(value, (type, ModuleType)):
        return False
    inner = getattr(value, "_dispatcher", value)
    cache = getattr(inner, "_cache", None) or getattr(inner, "cache", None)
    return isinstance(cache, module.SharedCache)


def _signatures(value: Any) -> int:
    """Return the number of signatures for which a function of Numba's is compiled."""
    compiled = getattr(value, "types", None) or getattr(value, "signatures", None)
    return len(compiled or ())


def _is_instance(value: Any, module: str, name: str) -> bool:
    """Return whether a value is of a class, which is imported if there is such a value."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(value, kind)
