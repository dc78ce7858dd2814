"""The files beside a model that hold data of its tensors: each is mapped once."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ..mapped_file import MappedFile

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ExternalData:
    """The files of one model, all of them in its ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        #: Files by the names that tensors give.
        self._files: dict[str, MappedFile] = {}

    def read(self, name: str, offset: int, nbytes: int) -> NDArray[Any]:
        """Return bytes of a file, which is mapped.

        Raises ValueError if the file is outside of the folder, has not these bytes or is no regular file, and OSError.
        """
        mapped = self._files.get(name)
        if mapped is None:
            path = self._resolve(name)
            with open_regular(path, os.O_NOFOLLOW) as file:
                if os.fstat(file.fileno()).st_size:
                    mapped = self._files[name] = MappedFile(file, path)
        size = 0 if mapped is None else mapped.nbytes
        if offset + nbytes > size:
            raise ValueError(f"its data end at byte {offset + nbytes} of {name}, which has {size}")
        return np.empty(0, np.uint8) if mapped is None else mapped.part(offset, nbytes)

    def _resolve(self, name: str) -> Path:
        location, root = Path(name), self._folder.resolve()
        try:
            path = (root / location).resolve()
        except RuntimeError as error:  # links in a circle
            raise ValueError(str(error)) from error
        if location.is_absolute() or ".." in location.parts or not path.is_relative_to(root):
            raise ValueError(f"its data is outside of the model's folder ({name})")
        return path


def open_regular(path: Path, follow: int = 0) -> BinaryIO:
    """Open a regular file; a pipe or device, which may never end, is refused without waiting for it.

    Raises ValueError for what is no regular file, and OSError.
    """
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | follow)
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise ValueError("Is a directory" if path.is_dir() else "not a regular file")
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise
