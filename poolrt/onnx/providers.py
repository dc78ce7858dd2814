"""Execution providers: poolrt is the one provider, under the name of ONNX Runtime's for processors."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .errors import InvalidArgument

PROVIDER: Final = "CPUExecutionProvider"


def get_available_providers() -> list[str]:
    """Return the names of the providers that sessions may name."""
    return [PROVIDER]


def get_all_providers() -> list[str]:
    """Return the same as `get_available_providers`."""
    return get_available_providers()


def get_device() -> str:
    """Return ``CPU``. A session computes elsewhere with ``engine="opencl"`` or on a pool."""
    return "CPU"


def check_providers(providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None, options: object) -> None:
    """Warn about providers that poolrt does not have, which are ignored as ONNX Runtime ignores what it was built without.

    Raises InvalidArgument for entries that are no names, and for options beside no providers.
    """
    if options and not providers:
        raise InvalidArgument("provider_options: give the providers that they belong to, too")
    for entry in providers or ():
        name = entry[0] if isinstance(entry, tuple) and entry else entry
        if not isinstance(name, str):
            raise InvalidArgument(f"providers: expect names, or pairs of a name and options, got {entry!r}")
        if name != PROVIDER:
            text = f"Specified provider {name!r} is not in available provider names. Available providers: {PROVIDER!r}"
            warnings.warn(text, stacklevel=3)
