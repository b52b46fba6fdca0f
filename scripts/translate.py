"""Make Cython faster by a third, for `setup.py`. The compiled modules are the same.

This replaces two of Cython's functions. A later Cython that does not call them is only slower.
"""

import functools
import io
import os
import re
from pathlib import Path

import Cython.Compiler.Main
import Cython.Utils

#: Cython's own function, which also finds files for one version of Cython, as numpy has them.
find_versioned_file = Cython.Utils.find_versioned_file


@functools.cache
def stems(folder: str) -> frozenset[str]:
    """Return the stems of the file names in a folder."""
    try:
        return frozenset(path.name.partition(".")[0] for path in Path(folder).iterdir())
    except OSError:
        return frozenset()


def find_file(folder: str, stem: str, suffix: str) -> str | None:
    """Return the path of an existing file, for Cython.

    Cython asks for each cimported name whether it is a module in each folder of `sys.path`, and
    lists the folder each time, which takes half of the time to find out what changed.
    """
    return find_versioned_file(folder, stem, suffix) if stem in stems(folder) else None


# A module calls only a quarter of the inline functions in the headers that it reads. Cython would
# analyse all of them and write them into the module's C.

FOLDERS = ("udpfast", "bench", "lab")
#: All that a function without its body calls. It is defined nowhere: a module that called such a
#: function by mistake could not be imported.
NOT_READ = """
cdef extern from *:
    \"\"\"
    void udpfast_function_not_read(void);
    \"\"\"
    void udpfast_function_not_read() noexcept nogil
"""
#: An inline function of a header, but not of a class.
FUNCTION = re.compile(
    r"^(?P<head>cdef inline [^(]*?(?P<name>\w+)\((?:[^\n]|\n[ )])*?:\n)"
    r"(?P<body>(?:[ ][^\n]*\n|\n)+)",
    re.MULTILINE,
)
CIMPORT = re.compile(r"^(?:from [\w.]+ )?cimport (?:\([^)]*\)|[^\n]*)", re.MULTILINE)
ALIAS = re.compile(r"\b(\w+) as (\w+)\b")
COMMENT = re.compile(r'"""(?:.|\n)*?"""|#[^\n]*')
NAME = re.compile(r"[A-Za-z_]\w*")


def names(text: str) -> set[str]:
    """Return the names in a text, without those in comments and docstrings."""
    return set(NAME.findall(COMMENT.sub("", text)))


@functools.cache
def headers() -> tuple[dict[str, set[str]], set[str]]:
    """Return the names in each function of all headers, and the names outside functions."""
    within: dict[str, set[str]] = {}
    beside: set[str] = set()
    for folder in FOLDERS:
        for path in Path(folder).rglob("*.pxd"):
            text = path.read_text()
            for function in FUNCTION.finditer(text):
                within.setdefault(function["name"], set()).update(names(function[0]))
            beside |= names(CIMPORT.sub("", FUNCTION.sub("", text)))
            for statement in CIMPORT.findall(text):
                for name, alias in ALIAS.findall(statement):
                    within.setdefault(alias, set()).add(name)
    return within, beside


@functools.cache
def reached(module: Path) -> set[str]:
    """Return the names that a module uses, directly or through functions that it calls."""
    within, beside = headers()
    own = module.with_suffix(".pxd")
    todo = beside | names(module.read_text()) | (names(own.read_text()) if own.exists() else set())
    found: set[str] = set()
    while todo:
        found |= todo
        todo = {name for known in todo & within.keys() for name in within[known]} - found
    return found


def narrowed(text: str, wanted: set[str]) -> str:
    """Return a header without the bodies of unwanted functions; all lines keep their number."""

    def kept(function: re.Match[str]) -> str:
        if function["name"] in wanted:
            return function[0]
        body = "    udpfast_function_not_read()\n"
        return function["head"] + body + "\n" * (function["body"].count("\n") - 1)

    return FUNCTION.sub(kept, text) + NOT_READ


class Context(Cython.Compiler.Main.Context):
    """The translation of a module, which reads only the functions that the module calls."""

    def process_pxd(self, source_desc, scope, module_name):
        """Read a header; the module's own header is read whole."""
        module = Path(self.options.output_file).relative_to("build/cython").with_suffix(".pyx")
        path = Path(os.path.relpath(source_desc.filename))
        if path.parts[0] in FOLDERS and path != module.with_suffix(".pxd") and module.exists():
            text = narrowed(path.read_text(), reached(module)).encode()
            source_desc.get_file_object = lambda **_: io.TextIOWrapper(
                io.BytesIO(text), encoding="UTF-8"
            )
        return super().process_pxd(source_desc, scope, module_name)


def hasten() -> None:
    """Replace Cython's functions by those above."""
    Cython.Utils.find_versioned_file = find_file
    Cython.Compiler.Main.Context = Context
