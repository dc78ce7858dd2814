"""The code of a kernel that a user has compiled: checked as the loader checks it, and published unchanged."""

from __future__ import annotations

import base64

from ...engines.elf_object import ObjectError
from ...engines.object_loader import load_object


def given_object(code: tuple[str, ...]) -> bytes:
    """Return the native object of which ``code`` has pieces of the base85. Raises ObjectError."""
    try:
        binary = base64.b85decode("".join(code))
    except ValueError as error:
        raise ObjectError(f"the code of a kernel is no base85: {error}") from error
    load_object(binary)  # maps it and executes nothing
    return binary
