"""What the logs of OpenCL compilers say about the text of a user's kernel: the first error, in one line."""

from __future__ import annotations

import re
from typing import Final

#: Forms of an error's line: PoCL's, with the place where a macro was written, and Clang's, as of Intel's driver.
_ERRORS: Final = (
    re.compile(r"^error: .*?:(\d+):(\d+)(?: <.*>)?: (.+)$", re.MULTILINE),
    re.compile(r"^.*?(\d+):(\d+): (?:fatal )?error: (.+)$", re.MULTILINE),
)
#: What the call of a kernel says if its parameters are others, and if the text has no kernel of the name.
_MISFITS: Final = re.compile(r"too (?:few|many) arguments|passing |no matching function")
_MISSING: Final = re.compile(r"implicit declaration|undeclared")
#: PoCL's prefix of names of built-in functions.
_PREFIX: Final = re.compile(r"\b_cl_(?=\w)")


def first_error(log: str, source: str) -> str:
    """Return the first error of a log with its place in a text, and the number of others; empty if the log has none.

    Behind the text is its call.
    """
    found = next((each for form in _ERRORS if (each := form.findall(log))), [])
    if not found:
        return ""
    line, column, said = found[0]
    where = f"line {line}, column {column}"
    if int(line) > source.count("\n") + 1:
        where = "the end of the text"
        if _MISFITS.match(said):
            where = "its parameters do not fit the arrays and numbers of the call"
        elif _MISSING.search(said):
            where = "the text has no kernel of this name"
    others = len(found) - 1
    more = f", and {others} more {'error' if others == 1 else 'errors'}" if others else ""
    return f"{where}: {_PREFIX.sub('', said)}{more}"
