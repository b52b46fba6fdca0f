"""Make Cython faster, and what it writes quicker to compile, for `setup.py`.

This replaces some of Cython's functions. With a later Cython that does not call them a build is
only slower: the compiled modules do the same.
"""

import functools
import gc
import io
import multiprocessing
import os
import re
import signal
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

import Cython.Build.Dependencies
import Cython.Compiler.Code
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


#: Cython's own function, which looks for each header in the package of each module that names it.
find_pxd = Cython.Build.Dependencies.DependencyTree.find_pxd


def find_header(tree, name: str, source: str | None = None) -> str | None:
    """Return the path of a header, for Cython: only names that begin with a dot are relative."""
    return find_pxd(tree, name, source if name.startswith(".") else None)


#: Cython's own function, which translates one module.
cythonize_one = Cython.Build.Dependencies.cythonize_one
#: Translations that were begun, by the path of the C that each writes.
translations: dict[str, Future] = {}


def begin() -> None:
    """Prepare a process for translations."""
    Cython.Build.Dependencies.cythonize_one = cythonize_one
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the build, which gives up
    # A syntax tree lives until its module is done. To keep 64 of them costs 170 MB more than
    # to look for them now and then, which takes a sixth of the time.
    gc.set_threshold(10_000_000, 20, 20)


def translate_later(*arguments) -> None:
    """Begin a translation, for Cython, and return: what is done is compiled meanwhile."""
    helper = Cython.Build.Dependencies.cythonize_one_helper
    translations[arguments[1]] = processes().submit(helper, arguments)


@functools.cache
def processes() -> ProcessPoolExecutor:
    """Return the processes that translate. The first translation starts them."""
    return ProcessPoolExecutor(
        os.cpu_count(), mp_context=multiprocessing.get_context("fork"), initializer=begin
    )


def translated(c_file: Path) -> None:
    """Wait until the C of a module is written, if it has to be.

    Raises:
        SystemExit: The module has errors, which Cython has shown.

    """
    translation = translations.pop(str(c_file), None)
    try:
        if translation:
            translation.result()
    except Exception:
        raise SystemExit(f"udpfast: there is no C for {c_file.stem}") from None


def give_up() -> None:
    """Begin no further translation."""
    processes().shutdown(wait=False, cancel_futures=True)


# A module uses only some definitions of the headers that it reads, and of headers that those read.
# Cython would read and analyse all of them, and write them into the module's C.

FOLDERS = ("udpfast", "bench", "lab")
#: A definition of a header, or a declaration: all but what is C already. It ends before the next
#: line that is not indented; a closing bracket is not one.
DEFINITION = re.compile(r"^(?:cdef(?! extern)|cpdef|ctypedef) .*\n(?:(?:[ )].*)?\n)*", re.MULTILINE)
CIMPORT = re.compile(r"^from ([\w.]+) cimport (\([^)]*\)|[^*\n]*)$", re.MULTILINE)
COMMENT = re.compile(r'"""(?:.|\n)*?"""|#[^\n]*')
NAME = re.compile(r"\b[A-Za-z_]\w*")
#: Words of Cython, which name no definition although they begin each.
WORDS = {"cdef", "class", "const", "cpdef", "enum", "inline", "packed", "struct", "union"}


def names(text: str) -> set[str]:
    """Return the names in a text, without those in comments and docstrings."""
    return set(NAME.findall(COMMENT.sub("", text))) - WORDS


@functools.cache
def defined(definition: str) -> set[str]:
    """Return the name that a definition defines, or those of an enumeration and its members."""
    text = COMMENT.sub("", definition)
    if re.match(r"cp?def enum\b", text):
        return names(text)
    pointer = re.match(r"ctypedef [^(]*\(\*(\w+)\)", text)  # to a function
    head = re.split("[(:\n]", text, maxsplit=1)[0]
    return {pointer[1] if pointer else NAME.findall(head)[-1]}


@functools.cache
def cimported(items: str) -> dict[str, str]:
    """Return what a `cimport` names, by the name that it gets."""
    found = [item.split() for item in COMMENT.sub("", items).strip("()").split(",") if item.strip()]
    return {words[-1]: " ".join(words) for words in found}


@functools.cache
def headers() -> tuple[dict[str, set[str]], set[str]]:
    """Return the names in the definitions of each name of all headers, and those outside."""
    within: dict[str, set[str]] = {}
    beside: set[str] = set()
    for folder in FOLDERS:
        for path in Path(folder).rglob("*.pxd"):
            text = path.read_text()
            for definition in DEFINITION.findall(text):
                held = names(definition)
                for name in defined(definition):
                    within.setdefault(name, set()).update(held)
            for _, items in CIMPORT.findall(text):
                for name, item in cimported(items).items():
                    within.setdefault(name, set()).update(names(item))
            beside |= names(CIMPORT.sub("", DEFINITION.sub("", text)))
    return within, beside


@functools.cache
def reached(module: Path) -> set[str]:
    """Return the names that a module uses, directly or through definitions that it uses."""
    within, beside = headers()
    own = module.with_suffix(".pxd")
    todo = beside | names(module.read_text()) | (names(own.read_text()) if own.exists() else set())
    found: set[str] = set()
    while todo:
        found |= todo
        todo = {name for known in todo & within.keys() for name in within[known]} - found
    return found


def narrowed(text: str, wanted: set[str]) -> str:
    """Return a header without unwanted definitions; all lines keep their number."""

    def kept(definition: re.Match[str]) -> str:
        if defined(definition[0]) & wanted:
            return definition[0]
        return "\n" * definition[0].count("\n")

    def kept_names(cimport: re.Match[str]) -> str:
        items = [item for name, item in cimported(cimport[2]).items() if name in wanted]
        statement = f"from {cimport[1]} cimport {', '.join(items)}" if items else ""
        return statement + "\n" * cimport[0].count("\n")

    return CIMPORT.sub(kept_names, DEFINITION.sub(kept, text))


#: Cython's own part of a module's C, in three: how types begin and end, how the module begins, and
#: what deals with Python's objects. It is half of the C, and no loop over records runs it. With -O2
#: it would take GCC half of the time, so it gets what modules get that run seldom; and what runs
#: once gets less.
OWN_PARTS = {"module_exttypes": "g", "initfunc_declarations": "0", "utility_code_pragmas": "g"}
LEVEL = """\
#if defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#pragma GCC optimize ("O%s")
#endif
"""


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

    def teardown_errors(self, err, options, result):
        """Mark Cython's own parts of the C that a translation wrote."""
        super().teardown_errors(err, options, result)
        if result.c_file:
            made = Path(result.c_file)
            text = made.read_text()
            for part, level in OWN_PARTS.items():
                head = f"/* #### Code section: {part} ### */\n"
                text = text.replace(head, LEVEL % level + head)
            made.write_text(text)


def hasten() -> None:
    """Replace Cython's functions by those above, and let it compress no strings."""
    Cython.Utils.find_versioned_file = find_file
    Cython.Build.Dependencies.DependencyTree.find_pxd = find_header
    Cython.Build.Dependencies.cythonize_one = translate_later
    Cython.Compiler.Main.Context = Context
    # It would write them in up to three ways, and into each module what expands them at import.
    getattr(Cython.Compiler.Code, "compression_algorithms", []).clear()
    headers()  # before there are several processes
