"""The settings of the cache in the process of a Dask worker: variables, which all that starts there reads."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Final

from poolrt.cachestore import CacheStore
from poolrt.cachestore.options import StoreOptions, options_from_environment
from poolrt.cachestore.redis.address import public_name
from poolrt.cachestore.signing import SigningKey, load_key, make_key_file
from poolrt.settings import env_name

from .errors import KeysDiffer, SettingsClash

#: What all stores of a process have in common.
_COMMON: Final = ("url", "home", "namespace", "key_file", "read_only")


class AdoptedSettings:
    """Settings that were set for this process, and the variables as they were before."""

    def __init__(self, values: Mapping[str, str]) -> None:
        """Set variables for settings, given by name. ``options`` are those that stores of this process now have.

        Raises SettingsClash if a store of this process has other ones, ValueError for unusable values. Nothing is set then.
        """
        whole = {**os.environ}
        self._before = {env_name(name): whole.get(env_name(name)) for name in values}
        os.environ.update({env_name(name): value for name, value in values.items()})
        try:
            self.options: Final = options_from_environment()
            for store in open_stores():
                _check_store(store.options, self.options)
        except BaseException:
            self._restore()
            raise

    def withdraw(self) -> None:
        """Set the variables back, unless a store has been opened meanwhile: its settings are the process's for good."""
        if not any(True for _ in open_stores()):
            self._restore()

    def _restore(self) -> None:
        whole = {**os.environ}
        for variable, value in self._before.items():
            if value is not None:
                os.environ[variable] = value
            elif variable in whole:
                del os.environ[variable]


def _check_store(found: StoreOptions, wanted: StoreOptions) -> None:
    for name in _COMMON:
        has, asked = getattr(found, name), getattr(wanted, name)
        if has != asked:
            raise SettingsClash(
                f"process {os.getpid()} uses the cache with {name} {_shown(has)} already, not with {_shown(asked)}; give the "
                'plugin the same settings, or call client.unregister_worker_plugin("poolrt"), client.restart(), and register '
                "it again"
            )


def install_key(home: str, material: bytes) -> None:
    """Make the home's signing key file with this content, mode 0600, unless it has this content already.

    Raises KeysDiffer if the file has another content, KeyFileRefused, and ValueError for a key that could be guessed.
    """
    path = os.path.join(home, "signing.key")
    make_key_file(path, material)
    if load_key(path, make=False).id != SigningKey(material).id:
        raise KeysDiffer(
            f"{path} has another signing key than the plugin; remove the file, or give the plugin another home"
        )


def open_stores() -> Iterator[CacheStore]:
    """Yield the stores that code of this process shares, if they exist."""
    numba = sys.modules.get("poolrt.numba.process_store")
    if numba is not None and numba.process_store.cache_info().currsize:
        yield numba.process_store()
    primitives = sys.modules.get("poolrt.workers.primitives.provider")
    if primitives is not None and primitives.primitive_provider.cache_info().currsize:
        yield primitives.primitive_provider().store
    opencl = sys.modules.get("poolrt.opencl.binaries")
    if opencl is not None and opencl.default_binaries.cache_info().currsize:
        yield opencl.default_binaries().store


def _shown(value: object) -> str:
    if isinstance(value, str) and "://" in value:
        return public_name(value)
    return "unset" if value is None else repr(value)
