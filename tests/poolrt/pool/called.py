"""Functions that tests have workers call, in a module that imports little.

Each worker imports the module of a function that it calls: pytest and NumPy, which a test's module imports, take it a fifth of a
second.
"""

from __future__ import annotations

import os
import struct
import time

#: Seconds that a call waits for a file.
_BOUND_S = 20.0
_NUMBER = struct.Struct("@i")


def note(path: str, number: int) -> int:
    """Append a number to a file in one call of the system, which a kill does not divide."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, _NUMBER.pack(number))
    os.close(fd)
    return number


def numbers_in(path: str | os.PathLike[str]) -> list[int]:
    """Return the numbers that were appended to a file."""
    try:
        with open(path, "rb") as file:
            return [number for (number,) in _NUMBER.iter_unpack(file.read())]
    except FileNotFoundError:
        return []


def note_slowly(path: str, number: int) -> int:
    time.sleep(0.01)
    return note(path, number)


def note_or_return(path: str | int, number: int = 0) -> int:
    """Append a number, and wait, if there is a path."""
    if isinstance(path, str):
        note(path, number)
        time.sleep(0.02)
    return number


def wait_for(path: str, begun: str) -> None:
    """Create a file, and wait for another one."""
    os.close(os.open(begun, os.O_WRONLY | os.O_CREAT))
    until = time.monotonic() + _BOUND_S
    while not os.path.exists(path):
        if time.monotonic() > until:
            raise TimeoutError(path)
        time.sleep(0.002)


def wait_or(path: str, number: int) -> int:
    """Wait while a file exists, if ``number`` is 1."""
    while number == 1 and os.path.exists(path):
        time.sleep(0.001)
    return number


def speak(number: int) -> int:
    print("line", number)
    print("end", number, end="")
    return number


def raise_unless_zero(number: int) -> int:
    if number:
        raise KeyError(number)
    return 0


def large(number: int) -> bytes:
    return bytes(number)


def length(data: bytes, number: int) -> tuple[int, int]:
    return len(data), number


class _Unloadable:
    def __reduce__(self) -> tuple[object, ...]:
        return _refuse, ()


def _refuse() -> None:
    raise OSError("not here")


def unloadable(number: int) -> object:
    return _Unloadable() if number else 0


def end_by(number: int) -> int:
    if number > 0:
        os.kill(os.getpid(), number)
    return number


class Ending:
    """Has a method that ends its process."""

    def end(self, number: int) -> int:
        return end_by(number)
