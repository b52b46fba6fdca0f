"""What comments say: who and what they name exists, and none begins with "Of"."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shared import ROOT
from tests.sources import absent_files, files, line_of, texts

COMMENTED = (".py", ".pyx", ".pxd")
COMMENT = re.compile(r"(?:^|(?<=\s))#:? (.*)$", re.M)
COMMENT_OF_C = re.compile(r"/\*.*?\*/|//.*?$", re.M | re.S)

#: A name of several words, as variables and functions have.
NAME = re.compile(r"(?<![\w./-])_?[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b(?![.\w])")

#: Names of Linux and of pcapng.
FOREIGN = {
    *("data_end", "dev_valid_name", "ethtool_channels", "group_source_req", "hwtstamp_config"),
    *("if_name", "if_tsoffset", "if_tsresol", "rx_filter", "sockaddr_storage", "sockaddr_xdp"),
    *("sun_path", "tx_type", "xdp_action", "xdp_mmap_offsets", "xp_release_deferred"),
    "_redirect_map",
}

PAGE = re.compile(r"(?<![\w/.-])(?:docs/)?([\w-]+\.md)\b")
#: Pages that a reader of the repository cannot open.
NO_PAGE = re.compile(r"PROTOCOL [0-9]|DESIGN [0-9]|\(seed \d+\)")


def comments(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield each line's comment: its number, its words, and whether a comment begins there."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        match = COMMENT.search(line) if "#" in line else None
        if match is None:
            inside = False
            continue
        alone = not line[: match.start()].strip()
        yield number, match[1], not (inside and alone)
        inside = alone


def code_of(name: str, text: str) -> str:
    """Return a file's text without its comments."""
    return COMMENT.sub("", COMMENT_OF_C.sub("", text) if name.endswith((".c", ".h")) else text)


def identifiers() -> set[str]:
    """Return every word that stands outside a comment in the project's code, and files' names."""
    found = set()
    for path in [*texts(), *files("udpfast/payload/roq", ".py", ".pxd")]:
        found.add(path.stem)
        if path.suffix != ".md":
            found.update(re.findall(r"\w+", code_of(path.name, path.read_text(errors="replace"))))
    return found


def wrong_comments(name: str, text: str, known: set[str], pages: set[str]) -> list[str]:
    """Return what is wrong with the comments of a file, a sentence each."""
    found = []
    for number, words, begins in comments(text):
        where = f"{name}:{number}"
        if begins and words.startswith("Of "):
            found.append(f"{where}: begins with Of: name the thing first")
        found += [
            f"{where}: {word} is nowhere in the code"
            for word in NAME.findall(words)
            if word not in known
        ]
    found += [
        f"{name}:{line_of(text, page)}: cites {page[1]}, which is not there"
        for page in (PAGE.finditer(text) if ".md" in text else ())
        if page[1] not in pages
    ]
    found += [
        f"{name}:{line_of(text, cited)}: cites {cited[0]}, which nobody can open"
        for cited in NO_PAGE.finditer(text)
    ]
    return found if name.startswith("tests/") else found + absent_files(name, text)


def checked() -> Iterator[tuple[str, Path]]:
    """Yield the files whose comments are checked."""
    for path in texts():
        name = str(path.relative_to(ROOT))
        own = name == "tests/test_comments.py"
        if path.suffix in COMMENTED and not own:
            yield name, path


def test_comments_name_what_exists() -> None:
    known = identifiers() | FOREIGN
    pages = {path.name for path in texts() if path.suffix == ".md"}
    found = []
    for name, path in checked():
        text = path.read_text()
        own = set(PAGE.findall(code_of(name, text))) if name.startswith("tests/") else set()
        found += wrong_comments(name, text, known, pages | own)
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "x = 1  # window_gone\n# window_gone\n#: window_gone\n"),
        ("a.c", "x; // window_gone\n/* of\nwindow_gone\n*/"),
        ("a.h", "#define x 1  /* window_gone */\n"),
        ("a.toml", "x = 1  # window_gone\n"),
    ],
)
def test_name_in_a_comment_is_no_code(name: str, text: str) -> None:
    assert "window_gone" not in code_of(name, text)
    assert code_of(name, f"{text}\nwindow_gone = 1\n").endswith("window_gone = 1\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# Of what lies there nothing is read.\n", "a.pyx:1: begins with Of"),
        ("x = 1  # Of no use.\n", "a.pyx:1: begins with Of"),
        ("# See `window_gone`.\n", "a.pyx:1: window_gone is nowhere"),
        ('"""As docs/none.md has it."""\n', "a.pyx:1: cites none.md"),
        ("# See udpfast/wire/none.pxd.\n", "a.pyx:1: cites udpfast/wire/none.pxd"),
        ("# See wire/none.pxd.\n", "a.pyx:1: cites wire/none.pxd"),
        ("# As a publisher does (PROTOCOL 5).\n", "a.pyx:1: cites PROTOCOL 5"),
        ("# A hole of four (seed 003).\n", "a.pyx:1: cites (seed 003)"),
    ],
)
def test_comment_wrong_one_is_refused(text: str, message: str) -> None:
    found = wrong_comments("a.pyx", text, {"window_slot"}, {"bus.md"})
    assert [each for each in found if each.startswith(message)]


@pytest.mark.parametrize(
    "text",
    [
        "# The size is that\n# Of the whole.\n",
        "# See `window_slot`, docs/bus.md.\n",
        "# As wire/frame.pxd, udpfast/market/updates.pxd and linux/udp.h have it.\n",
        'x = "# Officers"\n',
        "x = 1  # the ring's\n",
    ],
)
def test_comment_right_one_passes(text: str) -> None:
    assert wrong_comments("a.pyx", text, {"window_slot"}, {"bus.md"}) == []
