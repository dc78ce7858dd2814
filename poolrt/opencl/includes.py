"""All that a program's text includes, as hashes: the part of its key that files hold.

Drivers differ in the folders that they search. So each include stands for the files of its name in *every* folder that may
be searched, and a program's key changes if one of them comes, goes or changes. An include whose name is a macro makes the
program unusual: only the driver knows the file. Nothing here evaluates conditions.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Sequence
from typing import Final

from poolrt.cachestore.deferred_dataclass import dataclass

from .errors import Unusual

#: Most files and bytes of one program's includes.
MOST_FILES: Final = 1000
MOST_BYTES: Final = 64 << 20
#: Texts whose value is no function of the files' content.
_UNSTEADY: Final = re.compile(rb"__(DATE|TIME|TIMESTAMP)__|__has_(include|embed)")
_PLACE: Final = re.compile(rb"__(BASE_)?FILE(_NAME)?__")
_DIRECTIVE: Final = re.compile(
    rb"^[ \t\f\v]*(?:#|%:)[ \t\f\v]*((?:__)?(?:include|import|embed)\w*)[ \t\f\v]*(.*?)[ \t\f\v]*$", re.M
)
_NAME: Final = re.compile(rb'"([^"\n]+)"|<([^>\n]+)>')
_SPLICE: Final = re.compile(rb"\\[ \t\f\v]*\n")
_COMMENT_IN_NAME: Final = re.compile(rb"include[^<\n]*<[^>\n]*/[/*]")
#: Strings and characters, in which nothing is a comment, and comments.
_TOKENS: Final = re.compile(rb'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.S)


@dataclass(frozen=True, slots=True)
class Sources:
    """What a program is built from: the hash of its text, and for each include the hashes of its files.

    ``includes`` maps a name, with the hash of the including file, to a hash for each searched folder, empty if the folder has
    no such file. ``places`` are the folders that the text may name through ``__FILE__``, else empty. ``absent`` are the
    names that are in no folder.
    """

    text: str
    includes: dict[str, tuple[tuple[str, ...], ...]]
    places: tuple[str, ...]
    absent: tuple[str, ...] = ()


def read_sources(text: bytes, folders: Sequence[str]) -> Sources:
    """Return the hashes of a program's text and of all that it includes, at any depth.

    ``folders`` are those of the option -I, in order. Raises Unusual if an include is not certain.
    """
    return _Reader(folders).read(text)


class _Reader:
    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = folders
        #: Path -> the content's hash, empty if there is no such file.
        self._files: dict[str, str] = {}
        self._includes: dict[str, set[tuple[str, ...]]] = {}
        self._bytes = 0
        self._places = False
        self._absent: set[str] = set()
        #: Texts to read, each with the folder and the hash of its file.
        self._texts: list[tuple[bytes, str, str]] = []

    def read(self, text: bytes) -> Sources:
        self._texts.append((text, ".", ""))
        while self._texts:
            content, folder, including = self._texts.pop()
            for name in _included(content):
                hashes = self._find(name, folder)
                if not any(hashes):
                    self._absent.add(name)
                self._includes.setdefault(f"{name} in {including}" if including else name, set()).add(hashes)
            self._places |= _PLACE.search(content) is not None
        return Sources(
            hashlib.sha256(text).hexdigest(),
            {label: tuple(sorted(hashes)) for label, hashes in self._includes.items()},
            (os.getcwd(), *self._folders) if self._places else (),
            tuple(sorted(self._absent)),
        )

    def _find(self, name: str, folder: str) -> tuple[str, ...]:
        """Return the hash of the file of this name in each folder that may be searched, empty where there is none."""
        return tuple(self._hash(os.path.join(place, name)) for place in dict.fromkeys((folder, ".", *self._folders)))

    def _hash(self, path: str) -> str:
        if path not in self._files:
            content = self._content(path)
            self._files[path] = digest = "" if content is None else hashlib.sha256(content).hexdigest()
            if content is not None:
                self._texts.append((content, os.path.dirname(path), digest))
        return self._files[path]

    def _content(self, path: str) -> bytes | None:
        if len(self._files) >= MOST_FILES:
            raise Unusual(f"more than {MOST_FILES} files may be included")
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise Unusual(f"the include {path!r} cannot be read: {error}") from None
        with open(file, "rb") as opened:
            status = os.fstat(file)
            if stat.S_ISDIR(status.st_mode):
                return None
            if not stat.S_ISREG(status.st_mode):
                raise Unusual(f"the include {path!r} is no regular file")
            content = opened.read(MOST_BYTES - self._bytes + 1)
        self._bytes += len(content)
        if self._bytes > MOST_BYTES:
            raise Unusual(f"the included files have more than {MOST_BYTES} bytes")
        return content


def _included(text: bytes) -> list[str]:
    """Return the names that a text includes, in any branch of its conditions. Raises Unusual for a macro or the like."""
    unsteady = _UNSTEADY.search(text)
    if unsteady is not None:
        raise Unusual(f"the text has {unsteady[0].decode()}")
    if any(mark in text for mark in (b"??=", b"??/", b"\0")):
        raise Unusual("the text has trigraphs or zero bytes, which compilers read in different ways")
    # The first phases of a compiler: ends of lines, spliced lines, comments.
    plain = text.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    plain = _SPLICE.sub(b"", plain)
    if _COMMENT_IN_NAME.search(plain) is not None:
        raise Unusual("the name of an include has the beginning of a comment")
    plain = _TOKENS.sub(lambda token: b" " if token[0].startswith(b"/") else token[0], plain)
    names = []
    for directive, rest in _DIRECTIVE.findall(plain):
        name = _NAME.fullmatch(rest)
        if directive != b"include" or name is None:
            raise Unusual(f"the line '#{(directive + b' ' + rest).decode(errors='replace'):.80}' names no file")
        try:
            names.append((name[1] or name[2]).decode())
        except UnicodeDecodeError:
            raise Unusual(f"the name of the include {name[0]!r} is no UTF-8") from None
    return names
