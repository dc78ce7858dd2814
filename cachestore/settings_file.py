"""The settings' file that `POOLRT_CONFIG` names, for processes that have no `poolrt.settings`.

That reads the same file, and this floor cannot import it. Most processes have no such file and do not import this module.
"""

from __future__ import annotations

import os
import tomllib
from typing import Any, Final

#: The table of the file with the settings of stores; the settings there that are texts, and those that are true or false.
_CACHE: Final = "cache"
_TEXTS: Final = frozenset({"redis_url", "redis_server", "namespace", "home", "key_file", "prebuilt"})
_FLAGS: Final = frozenset({"read_only", "set_store_capacity"})


def read_store_settings() -> dict[str, tuple[str, str]]:
    """Return the file's settings of stores: of each its source, for errors, and its text.

    Raises what `read_table` raises, and ValueError for a value of the wrong type.
    """
    path, table = read_table(_CACHE)
    found = {}
    for name, value in table.items():
        source = f"{path}: [{_CACHE}] {name}"
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
        found[name] = source, str(value)
    return found


def read_table(name: str) -> tuple[str, dict[str, Any]]:
    """Return the path of the file that `POOLRT_CONFIG` names and a table of it, which is empty if it has none of that name.

    Raises ValueError, with the path, for a file that cannot be read, is not TOML, or has something else by that name.
    """
    path = os.path.expanduser(os.environ["POOLRT_CONFIG"])
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
