"""The cache of a command for what this process creates itself: stores and engines that it opens later read the environment."""

from __future__ import annotations

import os
from typing import Final

from poolrt.settings import Settings, env_name

#: Settings of the store that other stores of this process read from the environment.
_SHARED: Final = ("redis_url", "namespace", "key_file", "redis_server", "read_only")


def use_store_of(settings: Settings) -> None:
    """Let this process find and keep primitives in the cache of the settings, made for the instructions of these."""
    variables = {env_name(name): str(getattr(settings, name)) for name in _SHARED if getattr(settings, name)}
    variables |= {env_name("home"): str(settings.home_path), env_name("max_cpu_isa"): settings.max_cpu_isa}
    os.environ.update(variables)
