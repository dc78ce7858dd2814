"""Build options: folders apart, all others in the key, and unknown ones left to pyopencl."""

from __future__ import annotations

import pytest

from poolrt.opencl.errors import Unusual
from poolrt.opencl.options import BuildOptions, parse_options


@pytest.mark.parametrize(
    ("line", "folders", "others"),
    [
        ("", (), ()),
        ("-I /a -I/b", ("/a", "/b"), ()),
        ('-I "/with space"', ("/with space",), ()),
        ("-D N=3 -DM -w -cl-fast-relaxed-math", (), ("-DN=3", "-DM", "-w", "-cl-fast-relaxed-math")),
        ("-cl-std=CL1.2 -g -O2 -Werror", (), ("-cl-std=CL1.2", "-g", "-O2", "-Werror")),
    ],
)
def test_folders_are_kept_apart(line: str, folders: tuple[str, ...], others: tuple[str, ...]) -> None:
    assert parse_options(line) == BuildOptions(folders, others)


@pytest.mark.parametrize(
    "line",
    [
        *(
            "-save-temps",
            "-include h.h",
            "-x spir",
            "-s k.cl",
            "@file",
            "-cl-kernel-arg-info",
            "-cl-std=CLC++",
            "-I",
            "-D",
        ),
        *(
            "-DT=__TIME__",
            "-DF=__FILE__",
            "-DA='b c'",
            "-DA=\\",
            '-I "open',
            "-Wa,x -o out",
            "--sysroot=/x",
            "-fplugin=x.so",
        ),
    ],
)
def test_an_option_with_other_effects_is_unusual(line: str) -> None:
    with pytest.raises(Unusual):
        parse_options(line)
