"""The style that can be read off the text: every rule is tested with a snippet that breaks it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.shared import ROOT
from tests.sources import absent_files, files, line_of, texts

COLUMNS = 100
FUNCTION_LINES = 70

CODE = {".py", ".pyx", ".pxd", ".pyi", ".sh"}

#: Words that have a better one; DESIGN: one word, one meaning.
BANNED_WORDS = [
    # (word, files where it is the term of a foreign format, what to write instead)
    # A pattern that begins with a letter is searched for ten times as fast as one with `\b`.
    (
        r"packets?\b(?<!\wpacket)(?<!\wpackets)",
        r"pcap|conformance/flows",
        "datagram (or frame, fragment, message)",
    ),
    (r"[Uu]tili[sz]e\b", "", "use"),
    (r"TODO\b|FIXME\b|XXX\b|HACK\b", "", "do it, or leave it out"),
]

#: Names that say nothing.
BANNED_NAMES = re.compile(
    r"\b(?:class|def|cdef class|struct)\s+\w*"
    r"(?:[Mm]anager|[Hh]andler|[Hh]elper|[Uu]tils?|[Cc]ommon)\b"
)
BANNED_STEMS = {
    "utils",
    "util",
    "common",
    "helper",
    "helpers",
    "manager",
    "handler",
    "misc",
    "data",
}

#: The project speaks of itself alone: no private path, no registry.
FOREIGN = [
    (r"(?<![\w.])/(?:home|root|work|Users|mnt)/", "a path of one machine"),
    (r"index-url|py(?:pi|thonhosted)\.org|/simple/", "a package registry"),
]

SIGNATURE = re.compile(
    r"^(?P<indent>\s*)(?:async def|def|cpdef|cdef)\b"
    r"(?!\s+(?:extern|struct|class|enum|packed|union|cppclass|fused)\b).*\("
)
EXTERN = re.compile(r"^\s*cdef extern\b")


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a Python or Cython file: its signature, and its lines without the docstring."""

    line: int
    signature: str
    body: list[str]


def indent(line: str) -> int:
    """Return the number of leading blanks."""
    return len(line) - len(line.lstrip())


def functions(text: str) -> Iterator[Function]:
    """Yield every function that has a body, nested ones too."""
    lines = text.splitlines()
    for start, line in enumerate(lines):
        if not SIGNATURE.match(line):
            continue
        end = start
        signature = code(line)
        while signature.count("(") > signature.count(")") and end + 1 < len(lines):
            end += 1
            signature += " " + code(lines[end]).strip()
        if not signature.rstrip().endswith(":"):
            continue
        body = []
        for following in lines[end + 1 :]:
            if following.strip() and indent(following) <= indent(line):
                break
            body.append(following)
        yield Function(start + 1, signature, without_docstring(body))


def code(line: str) -> str:
    """Return a line without its comment; a number sign inside quotes stays."""
    return re.sub(r"""(?<!["'])#.*$""", "", line)


def without_docstring(body: list[str]) -> list[str]:
    """Return the lines of a body that are not its docstring, nor blank at its end."""
    text = "\n".join(body).rstrip()
    text = re.sub(r'\A\s*r?"""(?:.|\n)*?"""', "", text)
    return text.strip("\n").splitlines()


def extern_lines(text: str) -> set[int]:
    """Return the numbers of the lines inside `cdef extern` blocks: C decides what they are."""
    inside: set[int] = set()
    block: int | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if EXTERN.match(line):
            block = indent(line)
        elif block is not None and line.strip():
            if indent(line) <= block:
                block = None
            else:
                inside.add(number)
    return inside


#: The words of this file break its rules on purpose.
OWN_NAME = "tests/test_tidy.py"


def untidy(name: str, text: str) -> list[str]:
    """Return what is untidy in a file, a sentence each."""
    found = []
    suffix = "." + name.rpartition(".")[2]
    stem = name.rpartition("/")[2].partition(".")[0]
    if suffix in CODE and stem in BANNED_STEMS:
        found.append(f"{name}: {stem!r} says nothing: name the file after its one idea")
    for number, line in enumerate(text.splitlines(), 1):
        if suffix in CODE and len(line) > COLUMNS:
            found.append(f"{name}:{number}: {len(line)} columns, at most {COLUMNS}")
        if line != line.rstrip():
            found.append(f"{name}:{number}: blanks at the end of the line")
    found += untidy_words(name, text, is_code=suffix in CODE) if name != OWN_NAME else []
    if text and not text.endswith("\n"):
        found.append(f"{name}: the last line has no end")
    if suffix in {".py", ".pyx", ".pxd"}:
        found += untidy_functions(name, text)
    return found


def untidy_words(name: str, text: str, *, is_code: bool) -> list[str]:
    """Return which words of a file have a better one, say nothing, or are of one machine."""
    # Over the whole text: that takes a fifth of the time that it takes line by line.
    wrong = [(pattern, f"names {what}") for pattern, what in FOREIGN]
    if is_code:
        wrong.append((BANNED_NAMES.pattern, "says nothing: name what it is"))
        wrong += [
            (pattern, f"write {instead}")
            for pattern, foreign, instead in BANNED_WORDS
            if not (foreign and re.search(foreign, name))
        ]
    return [
        f"{name}:{line_of(text, match)}: {match[0]!r}: {what}"
        for pattern, what in wrong
        for match in re.finditer(pattern, text)
    ]


def untidy_functions(name: str, text: str) -> list[str]:
    """Return what is untidy in the functions of a file."""
    found = []
    for function in functions(text):
        where = f"{name}:{function.line}"
        if len(function.body) > FUNCTION_LINES:
            lines = len(function.body)
            found.append(f"{where}: a function of {lines} lines, at most {FUNCTION_LINES}")
        if re.search(r"\bnogil\s*:$", function.signature.rstrip()) and any(
            re.match(r"\s*assert\b", line) for line in function.body
        ):
            found.append(f"{where}: assert in a nogil function only prints: use invariant()")
    if not name.endswith(".py"):
        foreign = extern_lines(text)
        for number, line in enumerate(text.splitlines(), 1):
            nogil = re.match(r"\s*cdef\b.*\)\s.*\bnogil\b", code(line))
            if nogil and number not in foreign and not re.search(r"\bnoexcept\b|\bextern\b", line):
                found.append(f"{name}:{number}: nogil without noexcept costs 53 ns per call")
    return found


def dead_links(name: str, text: str) -> list[str]:
    """Return what a Markdown file links to, or cites of the code, and that does not exist."""
    found = absent_files(name, text)
    for target in re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", text):
        if not re.match(r"[a-z]+:", target) and not ((ROOT / name).parent / target).exists():
            found.append(f"{name}: links to {target}, which is not there")
    return found


def test_project_is_tidy() -> None:
    found = []
    for path in texts():
        name = str(path.relative_to(ROOT))
        text = path.read_text(errors="replace")
        found += untidy(name, text)
        if path.suffix == ".md":
            found += dead_links(name, text)
    assert not found, "\n" + "\n".join(found)


def test_every_compiled_module_has_a_stub() -> None:
    missing = [
        str(path.relative_to(ROOT))
        for path in files("udpfast", ".pyx")
        if not path.with_suffix(".pyi").exists()
    ]
    assert not missing, f"no .pyi beside {missing}"


LONG = "def f():\n" + "    x = 1\n" * 71
DOCUMENTED = 'def f():\n    """One.\n' + "\n    more\n" * 80 + '    """\n    return 1\n'

REFUSED = [
    ("a.py", "x = 1" + " " * 100 + "# far\n", "columns, at most 100"),
    ("a.py", "x = 1 \n", "blanks at the end"),
    ("a.py", "x = 1", "the last line has no end"),
    ("a.py", "# FIXME later\n", "do it, or leave it out"),
    ("a.pyx", "cdef int packet = 1\n", "write datagram"),
    ("a.py", "class RingManager:\n", "says nothing"),
    ("udpfast/utils.py", "", "name the file after its one idea"),
    ("a.py", LONG, "a function of 71 lines, at most 70"),
    ("a.pyx", "cdef int f() noexcept nogil:\n    assert 1\n", "use invariant()"),
    ("a.pxd", "cdef inline void f(int x) nogil:\n    pass\n", "nogil without noexcept"),
    ("README.md", "see /home/me/x\n", "a path of one machine"),
    ("README.md", "https://pypi.org/x\n", "a package registry"),
]


@pytest.mark.parametrize(("name", "text", "message"), REFUSED)
def test_untidy_wrong_snippet_is_refused(name: str, text: str, message: str) -> None:
    assert [found for found in untidy(name, text) if message in found]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", DOCUMENTED),
        ("a.py", LONG.replace("x = 1\n", "", 1)),
        ("a.py", "x = config.lost_packet_wait_us\n"),
        ("net/pcap.pyx", "# A packet record is 16 bytes longer.\n"),
        ("a.pxd", 'cdef extern from "x.h" nogil:\n    void f(int x) nogil\n'),
        ("a.pxd", "cdef inline void f(int x) noexcept nogil:\n    pass\n"),
        ("a.pyx", "def f():\n    with nogil:\n        g()\n    assert x\n"),
        ("README.md", "word" * 40 + "\n"),
    ],
)
def test_untidy_right_snippet_passes(name: str, text: str) -> None:
    assert untidy(name, text) == []


def test_dead_links_absent_target_is_refused() -> None:
    assert dead_links("README.md", "[a](docs/none.md#top)") == [
        "README.md: links to docs/none.md, which is not there"
    ]
    assert dead_links("README.md", "[a](LICENSE) [b](https://example.org/none)") == []


def test_dead_links_absent_file_of_the_code_is_refused() -> None:
    found = dead_links("README.md", "`wire/none.pxd` `wire/frame.pxd` `udpfast/payload/VENUE/x.py`")
    assert found == ["README.md:1: cites wire/none.pxd, which is not there"]
