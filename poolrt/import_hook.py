"""Acts when a program imports a module of another package, so that poolrt itself need not import it. Imports nothing."""

from __future__ import annotations

import sys

# `typing` and `importlib` would take most of the time of importing this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def when_imported(name: str, act: Callable[[ModuleType], None]) -> None:
    """Call ``act(module)`` now if a module is imported, else once it is, before the importing program goes on.

    A function that already waits for the module is called once.
    """
    module = sys.modules.get(name)
    if module is not None:
        act(module)
    elif not any(isinstance(each, _Finder) and each.waits_for == (name, act) for each in sys.meta_path):
        sys.meta_path.insert(0, _Finder(name, act))


class _Finder:
    """Finds one module as Python does, once, and lets its loader call a function."""

    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self.waits_for = name, act

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        awaited, act = self.waits_for
        if name != awaited:
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                act(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
