"""A program's includes: every file that a compiler may read is in the key, or the program is left to pyopencl."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from poolrt.opencl import includes
from poolrt.opencl.errors import Unusual
from poolrt.opencl.includes import Sources, read_sources


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    (tmp_path / "second" / "h.h").write_text('#include "deep.h"\n')
    (tmp_path / "second" / "deep.h").write_text("#define H 1\n")
    return [str(tmp_path / "first"), str(tmp_path / "second")]


WAYS = [
    b'#include "h.h"',
    b"#include <h.h>",
    b'  #  include\t"h.h" // why',
    b'/* why */ #include "h.h"',
    b'#include /* over\nlines */ "h.h"',
    b'#inc\\\nlude "h.h"',
    b'#inc\\ \r\nlude "h.h"\r\n',
    b'int x;\r#include "h.h"\rint y;',
    b'%:include "h.h"',
    b'\xef\xbb\xbf#include "h.h"',
    b'#if 0\n#include "h.h"\n#endif',
    b"#error don't /* it's\n#include \"h.h\"\n// */",
    b'constant char *s = "/*";\n#include "h.h"\n// */',
]


@pytest.mark.parametrize("text", WAYS)
def test_each_way_to_include_a_file_has_its_content_and_what_it_includes_in_the_key(
    folders: list[str], text: bytes
) -> None:
    before = read_sources(text, folders)
    assert len(before.includes) == 2
    Path(folders[1], "deep.h").write_text("#define H 2\n")
    assert read_sources(text, folders) != before


@pytest.mark.parametrize(
    "text", [b'// #include "none.h"', b'/*\n#include "none.h"\n*/', b"#define include\n#pragma include"]
)
def test_an_include_in_a_comment_is_none(text: bytes) -> None:
    assert read_sources(text, []).includes == {}


def test_a_file_that_comes_into_an_earlier_folder_changes_the_key(folders: list[str]) -> None:
    before = read_sources(WAYS[0], folders)
    Path(folders[0], "deep.h").write_text("")
    assert read_sources(WAYS[0], folders) != before


def test_equal_files_in_other_folders_have_the_same_key(folders: list[str], tmp_path: Path) -> None:
    before = read_sources(WAYS[0], folders)
    moved = tmp_path / "moved"
    Path(folders[1]).rename(moved)
    assert read_sources(WAYS[0], [folders[0], str(moved)]) == before


def test_folders_are_in_the_key_if_the_text_can_name_them(folders: list[str]) -> None:
    Path(folders[1], "deep.h").write_text("constant char *here = __FILE__;\n")
    assert set(folders) <= set(read_sources(WAYS[0], folders).places)


def test_a_file_that_no_folder_has_is_named_and_its_coming_changes_the_key(folders: list[str]) -> None:
    text = b'#include "h.h"\n#ifdef NEVER\n#include <absent.h>\n#endif\n'
    before = read_sources(text, folders)
    assert before.absent == ("absent.h",)
    Path(folders[1], "absent.h").write_text('#include "deeper.h"\n')
    after = read_sources(text, folders)
    assert after != before
    assert after.absent == ("deeper.h",)


def test_files_that_include_each_other_end(folders: list[str]) -> None:
    Path(folders[1], "deep.h").write_text('#include "h.h"\n')
    assert isinstance(read_sources(WAYS[0], folders), Sources)


@pytest.mark.parametrize(
    "text",
    [
        b"#define N <h.h>\n#include N",
        b'#include_next "h.h"',
        b'#import "h.h"',
        b'#embed "h.h"',
        b'#__include_macros "h.h"',
        b'#if __has_include("h.h")\n#endif',
        b"int t = __TIME__;",
        b'??=include "h.h"',
        b'\0#include "h.h"',
        b"#include <a/*b.h>\n",
        b'#include "\xff.h"',
    ],
)
def test_what_only_the_compiler_can_resolve_is_unusual(folders: list[str], text: bytes) -> None:
    with pytest.raises(Unusual):
        read_sources(text, folders)


def test_files_without_end_or_bound_are_unusual_at_once(folders: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(Path(folders[0], "pipe.h"))
    with pytest.raises(Unusual, match="no regular file"):
        read_sources(b'#include "pipe.h"', folders)
    with pytest.raises(Unusual, match="no regular file"):
        read_sources(b'#include "/dev/zero"', folders)
    monkeypatch.setattr(includes, "MOST_BYTES", 20)
    with pytest.raises(Unusual, match="more than 20 bytes"):
        read_sources(WAYS[0], folders)
    monkeypatch.setattr(includes, "MOST_FILES", 2)
    with pytest.raises(Unusual, match="more than 2 files"):
        read_sources(WAYS[0], folders)
