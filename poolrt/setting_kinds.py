"""Kinds of settings: each parses a value, or its text from the environment, or refuses it.

`parse` raises ValueError; `expected` describes the accepted values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from poolrt.cachestore.deferred_dataclass import dataclass

KIB: Final = 1024
_UNITS: Final[Mapping[str, int]] = {"": 1, "KIB": KIB, "MIB": KIB**2, "GIB": KIB**3}


#: Numbers from here on do not fit into a message, nor into a call to the system.
_TOO_LARGE: Final = 2**63


def is_text(value: str) -> bool:
    """Return whether a string is UTF-8 without NUL. Python decodes other bytes of paths to surrogates."""
    return "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)


@dataclass(frozen=True, slots=True)
class Text:
    """A string of UTF-8 text without NUL, which no path may have; a pattern, if there is one, must match in full."""

    expected: str
    pattern: str = ""

    def parse(self, value: object) -> str:
        if not isinstance(value, str) or not is_text(value) or (self.pattern and not re.fullmatch(self.pattern, value)):
            raise ValueError
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words; a number stands for its digits."""

    known: tuple[str, ...]

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.known)}"

    def parse(self, value: object) -> str:
        if isinstance(value, bool) or str(value) not in self.known:
            raise ValueError
        return str(value)


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer from ``low`` to ``high``, which may be None for no bound."""

    low: int
    high: int | None = None

    @property
    def expected(self) -> str:
        return f"integer >= {self.low}" if self.high is None else f"integer from {self.low} to {self.high}"

    def parse(self, value: object) -> int:
        number = int(value) if isinstance(value, str) else value
        if isinstance(number, bool) or not isinstance(number, int) or number < self.low:
            raise ValueError
        if number > (_TOO_LARGE - 1 if self.high is None else self.high):
            raise ValueError
        return number


@dataclass(frozen=True, slots=True)
class Size:
    """A number of bytes from ``low`` to ``high`` (None: no bound): an integer, or text with the unit KiB, MiB or GiB."""

    low: int
    high: int | None = None

    @property
    def expected(self) -> str:
        most = "" if self.high is None else f" and <= {self.high}"
        return f"number of bytes >= {self.low}{most}, as an integer or as text like '512 MiB'"

    def parse(self, value: object) -> int:
        if isinstance(value, str):
            match = re.fullmatch(r"\s*(\d+)\s*([A-Za-z]*)\s*", value)
            if match is None or match[2].upper() not in _UNITS:
                raise ValueError
            value = int(match[1]) * _UNITS[match[2].upper()]
        return Integer(self.low, self.high).parse(value)


@dataclass(frozen=True, slots=True)
class Seconds:
    """A time in seconds from ``low`` to ``high``."""

    low: float
    high: float

    @property
    def expected(self) -> str:
        return f"seconds from {self.low:g} to {self.high:g}"

    def parse(self, value: object) -> float:
        number = float(value) if isinstance(value, str) else value
        if isinstance(number, bool) or not isinstance(number, int | float) or not self.low <= number <= self.high:
            raise ValueError
        return float(number)


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false; in the environment 1 or 0, true or false, yes or no."""

    expected: str = "true or false"

    def parse(self, value: object) -> bool:
        if isinstance(value, str):
            words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
            if value.lower() not in words:
                raise ValueError
            return words[value.lower()]
        if not isinstance(value, bool):
            raise ValueError
        return value


@dataclass(frozen=True, slots=True)
class Instructions:
    """An ISA level of this host and, each after a ``+``, extensions, in any order; or the empty string for all of them."""

    @property
    def expected(self) -> str:
        from poolrt.workers.engines.isa import describe_offered

        return describe_offered()

    def parse(self, value: object) -> str:
        if not isinstance(value, str):
            raise ValueError
        if not value:
            return ""
        from poolrt.workers.engines.isa import parse_instructions

        level, extensions = parse_instructions(value)
        return "+".join((level, *extensions))


Kind = Text | Choice | Integer | Size | Seconds | Flag | Instructions
