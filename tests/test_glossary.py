"""One word, one meaning: a noun of the docs is the name of one class, not of two."""

import re
from collections import defaultdict

from tests.shared import ROOT
from tests.sources import files

#: SBE has nouns of its own, which are its specification's.
ELSEWHERE = "payload/sbe/"
CLASS = re.compile(r"^(?:cdef )?class (\w+)", re.M)


def nouns() -> set[str]:
    """Return the words that the glossary, and the nouns of ARCHITECTURE.md, give a meaning."""
    glossary = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    nouns = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8").partition("## Three laws")
    cells = re.findall(r"^\| ([^|`]+) \|", glossary, re.M)
    words = [word.strip() for cell in cells for word in cell.split(",")]
    return {*map(str.lower, words), *map(str.lower, re.findall(r"\| \*\*(\w+)\*\*", nouns[0]))}


def test_noun_of_the_docs_is_the_name_of_one_class() -> None:
    known = nouns()
    assert {"ring", "outbox", "stream", "gap"} <= known
    found = defaultdict(set)
    for path in files("udpfast", ".py", ".pyx", ".pxd"):
        name = path.relative_to(ROOT / "udpfast").with_suffix("").as_posix()
        if not name.startswith(ELSEWHERE):
            for each in CLASS.findall(path.read_text(encoding="utf-8")):
                found[each].add(name)
    twice = {each: sorted(where) for each, where in found.items() if len(where) > 1}
    assert {each: where for each, where in twice.items() if each.lower() in known} == {}
