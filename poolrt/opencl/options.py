"""The build options of a program: the folders of its includes, and all others, which are in its key.

An option that is not listed here may read or write files, or change what a binary has, so pyopencl alone builds with it.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

from poolrt.cachestore.deferred_dataclass import dataclass

from .errors import Unusual

#: Options whose whole effect is in the binary. Standard ones begin with -cl-.
_KNOWN: Final = re.compile(
    r"-D.+|-U.+|-cl-[a-z0-9.=+-]+|-cl-std=\S+|-w|-Werror|-W(no-)?[a-z0-9=-]+|-O[0-3s]|-g", re.I | re.S
)
#: Options that ask for what drivers keep beside a binary only, or that make another kind of binary.
_BESIDE: Final = frozenset({"-cl-kernel-arg-info"})


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """The options of one build: folders of includes in the order of their search, and all others as given."""

    folders: tuple[str, ...]
    others: tuple[str, ...]


def parse_options(options: str) -> BuildOptions:
    """Return the options in a driver's command line. Raises Unusual for one that is not known."""
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise Unusual(f"the options {options!r} cannot be split: {error}") from None
    if any(mark in options for mark in ("\\", "'", "__DATE", "__TIME", "__FILE", "__BASE")):
        # Drivers split such options each in its own way, and their values differ from build to build.
        raise Unusual(f"the options {options!r} have a quote, a backslash, a time or a file's name")
    folders: list[str] = []
    others: list[str] = []
    words.reverse()
    while words:
        word = words.pop()
        if word in ("-I", "-D", "-U"):
            if not words:
                raise Unusual(f"the option {word} has no value")
            word += words.pop()
        if word.startswith("-I"):
            folders.append(word[2:])
        elif word in _BESIDE or "c++" in word.lower() or _KNOWN.fullmatch(word) is None:
            raise Unusual(f"the option {word} is not known to leave nothing but a binary")
        else:
            others.append(word)
    return BuildOptions(tuple(folders), tuple(others))
