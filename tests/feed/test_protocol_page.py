"""What docs/protocol.md says by examples and numbers is what the feed does."""

import itertools
import re
from pathlib import Path

import pytest

from tests.feed.drive import Driver, datagram, read
from udpfast.core.layout import Kind, SessionReason

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "protocol.md").read_text()
WAITS = {"ms": 1_000_000, "us": 1_000}


def rows(heading: str, level: str = "###") -> list[list[str]]:
    """The cells of the first table below a heading, without its first two lines."""
    _, text = PAGE.split(f"{level} {heading}\n", 1)
    lines = re.split(r"\n#+ ", text)[0].splitlines()
    table = list(
        itertools.takewhile(
            lambda line: line.startswith("|"),
            itertools.dropwhile(lambda line: not line.startswith("|"), lines),
        )
    )
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def spans(numbers: list[int]) -> str:
    """Numbers in a row as `first-last`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] + 1 == number:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def told(driver: Driver) -> str:
    """What came out, in the page's words."""
    words: list[str] = []
    numbers: list[int] = []
    for message in driver.out:
        if message.kind is Kind.MESSAGE:
            numbers.append(message.seqno)
            continue
        if numbers:
            words.append(spans(numbers))
            numbers = []
        if message.kind is Kind.GAP:
            gap = read(message)
            words.append(f"GAP {gap['first']}-{gap['last']}")
        elif message.kind is Kind.SESSION:
            said = read(message)
            unseen = f", {said['unseen']} unseen" if said["unseen"] else ""
            words.append(f"SESSION {said['new_id']} {SessionReason(said['reason']).name}{unseen}")
        elif message.kind is Kind.DISAGREEMENT:
            words.append(f"DISAGREEMENT {read(message)['number']}")
    if numbers:
        words.append(spans(numbers))
    return ", ".join(
        " ".join(part)
        for name, group in itertools.groupby(words, key=lambda word: word.split(maxsplit=1)[0])
        for part in (
            [(name, spans([int(word.split()[1]) for word in group]))]
            if name == "DISAGREEMENT"
            else [(word,) for word in group]
        )
    )


def bring(driver: Driver, what: str) -> None:
    """One step: `A 1-5`, `B s2 1`, `A 1-5 anew` (other bytes), `A heartbeats 6-9`, `6 ms`.

    Lines in small letters are those of the snapshot channel.
    """
    line, *words = what.split()
    if words[0] in WAITS:
        driver.expire(driver.now_ns + int(line) * WAITS[words[0]])
        return
    session = int(words.pop(0)[1:]) if words[0].startswith("s") else 1
    beats = words[0] == "heartbeats"
    first, _, last = words[beats].partition("-")
    payload = b"anew %d" if words[-1] == "anew" else b"" if beats else b"as it was %d"
    for number in range(int(first), int(last or first) + 1):
        data = payload % number if payload else b""
        driver.send(
            datagram(number, data, session_id=session, control=18 if line.islower() else 2),
            "ABC".index(line.upper()),
            channel=line.islower(),
            at_ns=driver.now_ns + 100_000,
        )


@pytest.mark.parametrize(("comes", "out", "why"), rows("Examples"))
def test_example(comes: str, out: str, why: str) -> None:
    assert why
    driver = Driver(lines_incremental=2 if "B " in comes else 1)
    for what in comes.split(", "):
        bring(driver, what)
    assert told(driver) == out


def test_page_has_twenty_examples() -> None:
    assert len(rows("Examples")) >= 20


def values_of_the_code() -> dict[str, str]:
    """Return the constants of `feed/` by name."""
    code = "".join(path.read_text() for path in (ROOT / "udpfast" / "feed").glob("*.pxd"))
    return dict(re.findall(r"^    ([A-Z_]+) = (\d+)\b", code, re.MULTILINE))


def test_numbers_are_those_of_the_code() -> None:
    values = values_of_the_code()
    table = rows("Numbers")
    assert len(table) >= 8
    assert [[name, values[name.strip("`")]] for name, *_ in table] == [
        [name, value] for name, value, _ in table
    ]


def test_proofs_are_those_of_the_code() -> None:
    code = (ROOT / "udpfast" / "feed" / "proof.pxd").read_text()
    values = values_of_the_code()
    words = {
        "QUIET_NONE": "no time",
        "QUIET_PACE": "8 datagrams",
        "QUIET_DEAD": "`line_dead`",
        "QUIET_UNDERWAY": "1 s",
        "never": "-",
        "replay": values["REPLAY_PER_CONTRADICTING"],
    }
    filled = re.findall(r"proof_set\(&rows\[(\w+)\], (.+)\)$", code, re.MULTILINE)
    proofs = [
        [f"`{name}`", *(words.get(value, value) for value in values.split(", "))]
        for name, values in filled
    ]
    assert [row[1:] for row in rows("3. Sessions", "##")] == proofs
    named = re.findall(r"^    (PROOF_\w+) = \d+  ", code.split("# ProofRow")[1], re.MULTILINE)
    assert [name for name, _ in filled] == named[: len(filled)]
