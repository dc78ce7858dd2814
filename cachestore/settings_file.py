"""The settings of processes that have no `poolrt.settings`: of a variable, else of the file that `POOLRT_CONFIG` names.

`poolrt.settings` reads the same variables and the same file, and this floor cannot import that. No parser is imported unless
there is a file.
"""

from __future__ import annotations

import os
from typing import Any, Final

#: The table of the file with the settings of stores; the settings there that are texts, and those that are true or false.
_CACHE: Final = "cache"
_TEXTS: Final = frozenset({"redis_url", "redis_server", "namespace", "home", "key_file", "prebuilt"})
_FLAGS: Final = frozenset({"read_only", "set_store_capacity"})


class StoreSettings:
    """The settings of stores, as text. Raises what `read_table` raises."""

    def __init__(self) -> None:
        self._path, self._table = read_table(_CACHE)

    def find(self, name: str, variable: str) -> tuple[str, str]:
        """Return the source of a setting, for errors, and its text; the text is empty if nothing sets it.

        An empty variable unsets the file's value. Raises ValueError for a value in the file that has the wrong type.
        """
        if (given := os.environ.get(variable)) is not None or name not in self._table:
            return variable, given or ""
        value = self._table[name]
        source = f"{self._path}: [{_CACHE}] {name}"
        if name in _FLAGS:
            expected, fits = "true or false", isinstance(value, bool)
        elif name in _TEXTS:
            expected, fits = "text", isinstance(value, str)
        else:
            is_size = name.endswith("_bytes")
            expected = "a number of bytes" if is_size else "a number"
            fits = not isinstance(value, bool) and isinstance(value, int | float | str if is_size else int | float)
        if not fits:
            raise ValueError(f"{source}: expected {expected}, got {value!r}")
        return source, str(value)


def read_table(name: str) -> tuple[str, dict[str, Any]]:
    """Return the path of the settings' file and a table of it; empty if there is no file, or no such table.

    Raises ValueError, with the path, for a file that cannot be read, is not TOML, or has something else by that name.
    """
    named = os.environ.get("POOLRT_CONFIG")
    if not named:
        return "", {}
    import tomllib

    path = os.path.expanduser(named)
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file).get(name, {})
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is not TOML: {error}") from error
    if not isinstance(table, dict):
        raise ValueError(f"{path}: {name}: expected a table [{name}], got {table!r}")
    return path, table
