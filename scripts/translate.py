"""Make Cython faster, and what it writes quicker to compile, for `setup.py`.

This replaces some of Cython's functions. With a later Cython that does not call them a build is
only slower: the compiled modules do the same.
"""

import ctypes
import functools
import gc
import io
import multiprocessing
import os
import re
import signal
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

import Cython
import Cython.Build.Dependencies
import Cython.Compiler.Code
import Cython.Compiler.Main

#: Packages of the checkout.
FOLDERS = ("udpfast", "bench", "lab")
#: Where headers of a package are: of C's library and Python's objects, and of the checkout.
PLACES = dict.fromkeys(("cpython", "libc", "posix"), Path(Cython.__file__).parent / "Includes")
PLACES |= dict.fromkeys(FOLDERS, Path())
#: Cython's own function, which looks for a header wherever Python imports from.
find_pxd_file = Cython.Compiler.Main.Context.find_pxd_file


@functools.cache
def header(place: Path, name: str) -> str | None:
    """Return the path of a header below the place of its package."""
    path = place / name.replace(".", os.sep)
    paths = (Path(f"{path}.pxd"), path / "__init__.pxd")
    return next((str(path) for path in paths if path.exists()), None)


def find_header(context, name: str, position=None, sys_path=True, source_file_path=None):
    """Return the path of a header, or None, for Cython. None is beside what cimports it.

    Cython asks for each cimported name whether it is a module, too, in the package of the module
    that cimports it and in all. To look everywhere would take most of the time to find out what
    changed, and a tenth of a translation.
    """
    place = PLACES.get(name.partition(".")[0])
    return header(place, name) if place else find_pxd_file(context, name, sys_path=sys_path)


#: Cython's own function, which translates one module.
cythonize_one = Cython.Build.Dependencies.cythonize_one
#: Translations that were begun, by the path of the C that each writes.
translations: dict[str, Future] = {}


#: For prctl(2).
PR_SET_PDEATHSIG = 1


def begin() -> None:
    """Prepare a process for translations."""
    Cython.Build.Dependencies.cythonize_one = cythonize_one
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the build, which gives up
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # if it is killed, this ends, too
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


#: Lines for compilers that have a level for each function; sanitizers need one for all.
LEVELLED = """\
#if defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
%s
#else
%s
#endif
"""
#: Cython's own part of a module's C, in three: how types begin and end, how the module begins, and
#: what deals with Python's objects. It is half of the C, and no loop over records runs it. With -O2
#: it would take GCC half of the time, so it gets what modules get that run seldom; and what runs
#: once gets less.
OWN_PARTS = {"module_exttypes": "g", "initfunc_declarations": "0", "utility_code_pragmas": "g"}
#: Functions that Python calls, where they are declared.
CALLED = re.compile(
    r"^(static [^;{}()]*\b__pyx_p[fw]_\w+\([^;{}]*\)); /\* ?proto ?\*/$", re.MULTILINE
)
#: Where Python calls them for each record or message, or a feed's loop is: beside its functions
#: they cost it some percent. Elsewhere Python calls them to begin, to end or for a batch, whose
#: loop is in a function of C.
CALLED_OFTEN = (
    *("udpfast/client/", "udpfast/market/", "udpfast/payload/", "bench/"),
    *("udpfast/agents/feed/", "udpfast/feed/", "udpfast/log/", "udpfast/net/"),
)


def levelled(text: str, module: str) -> str:
    """Return a module's C with levels of optimisation for what runs seldom."""
    parts = {part: (f'#pragma GCC optimize ("O{level}")', "") for part, level in OWN_PARTS.items()}
    if not module.startswith(CALLED_OFTEN):
        seldom = "#define UDPFAST_SELDOM"
        parts["decls"] = f'{seldom} __attribute__((optimize("Og")))', seldom
        text = CALLED.sub(r"\1 UDPFAST_SELDOM;", text)
    for part, lines in parts.items():
        head = f"/* #### Code section: {part} ### */\n"
        text = text.replace(head, LEVELLED % lines + head)
    return text


class Context(Cython.Compiler.Main.Context):
    """The translation of a module, which reads only the functions that the module calls."""

    def module(self) -> Path:
        """Return the path of the module that is translated."""
        return Path(self.options.output_file).relative_to("build/cython").with_suffix(".pyx")

    def process_pxd(self, source_desc, scope, module_name):
        """Read a header; the module's own header is read whole."""
        module = self.module()
        path = Path(os.path.relpath(source_desc.filename))
        if path.parts[0] in FOLDERS and path != module.with_suffix(".pxd") and module.exists():
            text = narrowed(path.read_text(), reached(module)).encode()
            source_desc.get_file_object = lambda **_: io.TextIOWrapper(
                io.BytesIO(text), encoding="UTF-8"
            )
        return super().process_pxd(source_desc, scope, module_name)

    def teardown_errors(self, err, options, result):
        """Mark what runs seldom in the C that a translation wrote."""
        super().teardown_errors(err, options, result)
        if result.c_file:
            made = Path(result.c_file)
            made.write_text(levelled(made.read_text(), self.module().as_posix()))


def hasten() -> None:
    """Replace Cython's functions by those above, and let it compress no strings."""
    Cython.Compiler.Main.Context.find_pxd_file = find_header
    Cython.Build.Dependencies.cythonize_one = translate_later
    Cython.Compiler.Main.Context = Context
    # It would write them in up to three ways, and into each module what expands them at import.
    getattr(Cython.Compiler.Code, "compression_algorithms", []).clear()
    headers()  # before there are several processes
