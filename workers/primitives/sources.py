"""The source files of an implementation: what describes its programs and generates its kernels, and nothing else.

They are found from the text: an implementation's module, the modules that it imports, the kernels that these name, and
what the kernels import. Only `_ROOMS` count, the framework does not. A kernel is named by the first argument of a call,
as in ``KernelSpec.of("softmax")``; in ``implementations/reference`` it is one of ``kernels/*/reference``.

Patterns rather than `ast`, which takes twenty times as long: the first key of a process would wait for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from poolrt.cachestore.deferred_namedtuple import NamedTuple
from poolrt.cachestore.digests import sha256

if TYPE_CHECKING:
    from ..implementations.contract import Implementation

#: What a key depends on, relative to `_ROOT`.
_ROOMS: Final = ("desc/", "implementations/", "kernels/", "engines/isa.py", "engines/target.py")
_ROOT: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PACKAGE: Final = __name__.rsplit(".", 2)[0] + "."
#: Engine kind -> what entries of every implementation depend on: their estimated time and their compiler.
_ALWAYS: Final = {
    "cpu": ("implementations/cost_model.py", "kernels/native/compiler/codegen.py"),
    "opencl": ("implementations/cost_model.py", "kernels/opencl/build.py"),
}
_TYPES_ONLY: Final = re.compile(r"^if TYPE_CHECKING:\n(?:(?:[ \t].*)?\n)+", re.MULTILINE)
#: Begins with a literal: `re` finds that faster than the start of a line.
_IMPORT: Final = re.compile(r"from (\.+)([\w.]*) import (\([^)]*\)|.*)")
#: Begins with a literal too: a word before it is looked for afterwards.
_KERNEL: Final = re.compile(r"\(\s*\"([a-z0-9_]+)\"")


class _Source(NamedTuple):
    """A file: its digest, the files that it imports, and the texts that may name kernels."""

    digest: bytes
    imports: tuple[str, ...]
    names: tuple[str, ...]


def source_digest(engine_kind: str, kind: str, implementation: Implementation[Any]) -> str:
    """Return the SHA-256 over the source files of an implementation of a primitive kind."""
    return _digest(engine_kind, kind, _defining(implementation))


def source_files(engine_kind: str, kind: str, implementation: Implementation[Any]) -> tuple[str, ...]:
    """Return the source files of an implementation of a primitive kind, relative to the folder of ``workers``, in order."""
    return _files(engine_kind, kind, _defining(implementation))


def check_kernel(engine_kind: str, kind: str, implementation: Implementation[Any], generator: str) -> None:
    """Raise LookupError where an implementation's program has a kernel that is not among its source files.

    An implementation from outside this package is not checked: no source of it is in a key.
    """
    if not type(implementation).__module__.startswith(_PACKAGE):
        return
    if not set(generator_files(engine_kind, generator)) <= set(source_files(engine_kind, kind, implementation)):
        raise LookupError(
            f"kernel {generator!r} of implementation {implementation.name!r} is not in its key: "
            "name it by a literal, the first argument of a call, in the implementation's module or in one that it imports"
        )


def generator_files(engine_kind: str, generator: str) -> tuple[str, ...]:
    """Return the files of a generator, whether they exist or not: its module, or the texts of an OpenCL kernel."""
    if engine_kind == "cpu":
        return (f"kernels/native/{generator.replace('.', '/')}.py",)
    from ..kernels.opencl.source import text_names

    return tuple(f"kernels/opencl/{name.replace('.', '/')}.cl" for name in text_names(generator))


def _defining(implementation: Any) -> tuple[str, ...]:
    """Return the modules that define an implementation and the one that it describes its programs with, if any."""
    inner = getattr(implementation, "native", None)
    return (type(implementation).__module__, *(() if inner is None else _defining(inner)))


@lru_cache(maxsize=1024)
def _digest(engine_kind: str, kind: str, modules: tuple[str, ...]) -> str:
    return _hash(_files(engine_kind, kind, modules))


@lru_cache(maxsize=1024)
def generator_digest(engine_kind: str, generator: str) -> str:
    """Return the SHA-256 over the source files that a kernel's binary depends on: its generator's, and the compiler's."""
    own = [path for path in generator_files(engine_kind, generator) if _exists(path)]
    return _hash(sorted(_closure(engine_kind, [*_ALWAYS[engine_kind], *own])))


def _hash(paths: Iterable[str]) -> str:
    digest = sha256()
    for path in paths:
        digest.update(f"{path}\0".encode() + _source(path).digest)
    return digest.hexdigest()


@lru_cache(maxsize=1024)
def _files(engine_kind: str, kind: str, modules: tuple[str, ...]) -> tuple[str, ...]:
    """Follow imports and names. The module that lists an operation's implementations has their constants; it is not followed."""
    own = (f"{name.removeprefix(_PACKAGE).replace('.', '/')}.py" for name in modules)
    found = _closure(engine_kind, [*_ALWAYS[engine_kind], *own])
    listing = f"implementations/{'opencl' if engine_kind == 'opencl' else 'native'}/{kind}.py"
    return tuple(sorted(found | {listing} if _exists(listing) else found))


def _closure(engine_kind: str, left: list[str]) -> set[str]:
    """Return files with all that they import and name."""
    found: set[str] = set()
    while left:
        path = left.pop()
        if path in found or not path.startswith(_ROOMS):
            continue
        found.add(path)
        source = _source(path)
        left += source.imports
        prefix = "reference." if path.startswith("implementations/reference/") else ""
        for name in source.names:
            files = generator_files(engine_kind, prefix + name)
            left += files if _exists(files[-1]) else ()
    return found


@lru_cache(maxsize=1024)
def _source(path: str) -> _Source:
    with open(os.path.join(_ROOT, path), "rb") as file:
        content = file.read()
    digest = sha256(content).digest()
    if not path.endswith(".py"):
        return _Source(digest, (), ())
    text = content.decode()
    if "TYPE_CHECKING:" in text:
        text = _TYPES_ONLY.sub("", text)
    imports = dict.fromkeys(file for match in _IMPORT.finditer(text) for file in _imported(path, *match.groups()))
    named = _KERNEL.finditer(text) if path.startswith("implementations/") else ()
    names = dict.fromkeys(match[1] for match in named if re.match(r"\w", text[match.start() - 1]))
    return _Source(digest, tuple(imports), tuple(names))


def _imported(path: str, dots: str, module: str, names: str) -> Iterator[str]:
    """Yield the files that one statement imports from, each name of a package from where the package has it."""
    parts = [*path.split("/")[: -len(dots)], *module.split(".")] if module else path.split("/")[: -len(dots)]
    base = "/".join(parts)
    if not f"{base}/".startswith(_ROOMS) and f"{base}.py" not in _ROOMS:
        return
    if _exists(f"{base}.py"):
        yield f"{base}.py"
        return
    homes = _re_exported(f"{base}/__init__.py")
    for name in _names(names):
        inner = f"{base}/{name}.py"
        yield inner if _exists(inner) else homes.get(name, f"{base}/__init__.py")


@lru_cache(maxsize=64)
def _re_exported(path: str) -> dict[str, str]:
    """Return where the names are that a package re-exports, those that it imports when they are asked for included."""
    with open(os.path.join(_ROOT, path), encoding="utf-8") as file:
        text = file.read()
    return {
        name: next(_imported(path, dots, module, name))
        for dots, module, names in _IMPORT.findall(text)
        if module
        for name in _names(names)
    }


def _names(names: str) -> list[str]:
    """Return the names that a statement imports, without those that it gives them."""
    names = re.sub(r"#.*", "", names).strip("() \n")
    return [name.split()[0] for name in names.split(",") if name.strip()]


@lru_cache(maxsize=4096)
def _exists(path: str) -> bool:
    return os.path.isfile(os.path.join(_ROOT, path))
