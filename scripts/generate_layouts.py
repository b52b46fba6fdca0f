"""Generate what follows from the layouts of updates: `Kind`, dtypes, sizes, stubs.

Usage: python scripts/generate_layouts.py [--check]

The layouts are in `udpfast/market/updates.pxd`, and that of a level in `update_header.pxd`. A
struct with the number of a kind in its comment is the payload of that kind. With --check nothing is
written, and the exit code is 1 if a file is not up to date. Afterwards run `make build`, then
scripts/generate_reference.py, which uses the compiled modules. What it writes of a kind and its
fields is in scripts/update_fields.py, and a layout of which nothing is said there is refused.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.update_fields import KINDS, OWN, ROWS

ROOT = Path(__file__).parent.parent
SOURCES = Path("udpfast/market/update_header.pxd"), Path("udpfast/market/updates.pxd")
_STRUCT = re.compile(
    r"^cdef packed struct (\w+):  # (?:(\d+): )?\d+ bytes(?:, (\w+)\[)?([^\n]*)\n"
    r"((?:    .*\n)+)",
    re.M,
)


@dataclass(frozen=True, slots=True)
class Layout:
    """One struct of the layouts. `kind` is 0 for a row; `row` is the struct of its rows."""

    name: str
    kind: int
    row: str
    origin: str
    fields: tuple[tuple[str, str], ...]

    @property
    def constant(self) -> str:
        """`TOP_OF_BOOK` of `TopOfBook`."""
        return snake(self.name).upper()

    @property
    def looks_complex(self) -> bool:
        """Cython takes a struct of two doubles for a complex number."""
        return [type_ for type_, _ in self.fields] == ["double", "double"]


def snake(name: str) -> str:
    """Return `top_of_book` of `TopOfBook`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def read_layouts(text: str) -> list[Layout]:
    """Return rows and kinds in order, without the header of all updates."""
    found = [
        Layout(
            name,
            int(kind or 0),
            row,
            rest.rpartition(": ")[2].strip() if ": " in rest else "",
            tuple(re.findall(r"^    (\w+) (\w+)", body, re.M)),
        )
        for name, kind, row, rest, body in _STRUCT.findall(text)
        if name != "UpdateHeader"
    ]
    kinds = [each.kind for each in found if each.kind]
    if kinds != list(range(16, 16 + len(kinds))) or len(kinds) > 32:
        raise SystemExit(f"{SOURCES[-1]}: expected kinds 16, 17, ... up to 47, found {kinds}")
    return found


def unsaid(layouts: list[Layout]) -> Iterator[str]:
    """Yield what scripts/update_fields.py does not say of the layouts: kinds, and their fields."""
    rows = {each.name: each for each in layouts if not each.kind}
    for each in (each for each in layouts if each.kind):
        if each.constant not in KINDS:
            yield f"KINDS[{each.constant!r}]"
        for table, said, layout in (("OWN", OWN, each), ("ROWS", ROWS, rows.get(each.row))):
            known = said.get(each.constant, {})
            for type_, name in layout.fields if layout else ():
                if not (type_ in {"UpdateHeader", "char"} or name in known or "reserved" in name):
                    yield f"{table}[{each.constant!r}][{name!r}]"


def kind_constants(kinds: list[Layout]) -> str:
    """Return core/update_kinds.pxd, which holds the enumerators."""
    lines = [f"    KIND_{each.constant} = {each.kind}" for each in kinds]
    notes = [f"  # {each.origin}" if each.origin else "" for each in kinds]
    listed = "".join(
        (f"{line:<27}{note}" if note else line) + "\n"
        for line, note in zip(lines, notes, strict=True)
    )
    return f"""\
# The kinds of decoded updates, apart from those of layout.pxd, which nearly every module reads: a
# new one compiles only what names one.
#
# Generated from market/updates.pxd by scripts/generate_layouts.py.

cdef enum:  # Kind
{listed}"""


def formats(layouts: list[Layout]) -> str:
    """Return Cython's formats of the structs for numpy: a part of market/updates.pyx."""
    first, *others = [each for each in layouts if not each.looks_complex]
    tables = [each for each in layouts if each.kind]
    return "\n".join(
        [
            "cdef union Layout:  # one of each struct: only their formats are wanted, not values",
            *(f"    {each.name} {snake(each.name)}" for each in (first, *others)),
            "",
            "",
            "def _formats():",
            '    """Return the PEP 3118 formats of all structs, by constant name."""',
            "    cdef Layout layout",
            "    # One typed view: casts alone leave out what Cython's shared code declares.",
            f"    cdef {first.name}[::1] views = <{first.name}[:1]> &layout.{snake(first.name)}",
            "    return {",
            f'        "{first.constant}": memoryview(views),',
            *(
                f'        "{each.constant}": memoryview(\n'
                f"            <{each.name}[:1]> &layout.{snake(each.name)}),"
                for each in others
            ),
            "    }",
            "",
            "",
            "#: Structs of two doubles, for Cython complex numbers: name, size, fields.",
            "_PAIRS = (",
            *(
                f'    ("{each.constant}", sizeof({each.name}), '
                f'("{each.fields[0][1]}", "{each.fields[1][1]}")),'
                for each in layouts
                if each.looks_complex
            ),
            ")",
            "#: Constant names of each kind, and of its rows.",
            "_KINDS = {",
            *(f'    {each.kind}: ("{each.constant}", "{row_of(each)}"),' for each in tables),
            "}",
            "",
            "",
        ]
    )


def row_of(kind: Layout) -> str:
    """Return the constant name of a kind's rows; empty: it has none."""
    return snake(kind.row).upper() if kind.row else ""


def sizes(kinds: list[Layout]) -> str:
    """Return market/update_sizes.pxd: the sizes of all kinds, for code that treats kinds alike."""
    lines = [
        "# Generated from updates.pxd by scripts/generate_layouts.py.",
        "",
        "from libc.stdint cimport uint16_t, uint32_t",
        "",
        "from udpfast.core.update_kinds cimport (",
        *wrapped([f"KIND_{each.constant}" for each in kinds]),
        "from udpfast.market.update_header cimport Level",
        "from udpfast.market.updates cimport (",
        *wrapped(
            [each.name for each in kinds]
            + [each.row for each in kinds if each.row not in ("", "Level")]
        ),
        "",
        "",
        "cdef inline uint32_t update_fixed(uint16_t kind, uint32_t* row) noexcept nogil:",
        "    # Bytes of a kind's fixed part and of one of its rows; 0: there is no such kind.",
        "    row[0] = 0",
    ]
    for each in kinds:
        lines.append(f"    if kind == KIND_{each.constant}:")
        if each.row:
            lines.append(f"        row[0] = sizeof({each.row})")
        lines.append(f"        return sizeof({each.name})")
    return "\n".join([*lines, "    return 0", ""])


def wrapped(names: list[str]) -> list[str]:
    """Return the lines of an import's names, closed by a bracket."""
    lines, line = [], "   "
    for name in sorted(set(names), key=lambda each: (not each.isupper(), each)):
        if len(line) + len(name) > 96:
            lines.append(line)
            line = "   "
        line += f" {name},"
    return [*lines, line.rstrip(",") + ")"]


def outputs(text: str, tree: Path) -> dict[Path, str]:
    """Return the contents of each file that follows from the layouts."""
    layouts = read_layouts(text)
    kinds = [each for each in layouts if each.kind]
    names = sorted(each.constant for each in layouts)
    core, market = tree / "udpfast/core", tree / "udpfast/market"
    constants = "".join(f"    {each.constant} = KIND_{each.constant}\n" for each in kinds)
    numbers = "".join(f"    {each.constant} = {each.kind}\n" for each in kinds)
    dtypes = "".join(f"{name}: np.dtype[np.void]\n" for name in names)
    exported = "".join(f'    "{name}",\n' for name in sorted([*names, *_FACES]))
    stub = replaced(market / "updates.pyi", r"(?<=^__all__ = \[\n)(?:    .*\n)+", exported)
    return {
        core / "update_kinds.pxd": kind_constants(kinds),
        core / "layout.pyx": replaced(
            core / "layout.pyx",
            r"^    BOOK = KIND_BOOK\n(?:    (?!BUS )\w+ = KIND_\w+\n)*",
            constants,
        ),
        core / "layout.pyi": replaced(
            core / "layout.pyi", r"^    BOOK = \d+\n(?:    (?!BUS )\w+ = \d+\n)*", numbers
        ),
        market / "updates.pyi": re.sub(
            r"^(?:[A-Z_]+: np\.dtype\[np\.void\]\n)+", dtypes, stub, count=1, flags=re.M
        ),
        market / "updates.pyx": replaced(
            market / "updates.pyx",
            r"^cdef union Layout(?s:.*?)(?=^# One item of)",
            formats(layouts),
        ),
        market / "update_sizes.pxd": sizes(kinds),
    }


#: Other public names of `market.updates`.
_FACES = ("LAYOUTS", "PAYLOAD_HASH", "ROW_DTYPES", "UPDATE_DTYPES", "Update", "view_update")


def source() -> str:
    """Return the text of all layouts, in order."""
    return "".join((ROOT / each).read_text(encoding="utf-8") for each in SOURCES)


def replaced(path: Path, pattern: str, text: str) -> str:
    """Return a file's text with the only match of a pattern replaced."""
    new, count = re.subn(pattern, lambda _: text, path.read_text(encoding="utf-8"), flags=re.M)
    if count != 1:
        raise SystemExit(f"{path}: expected one block of {pattern!r}, found {count}")
    return new


def main() -> None:
    """Write the files, or compare them."""
    if missing := list(unsaid(read_layouts(source()))):
        raise SystemExit(f"scripts/update_fields.py lacks {', '.join(missing)}")
    wanted = outputs(source(), ROOT)
    for path, text in wanted.items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if "--check" in sys.argv[1:]:
            raise SystemExit(
                f"{path.relative_to(ROOT)} is not what {SOURCES[-1].name} says: "
                "run python scripts/generate_layouts.py"
            )
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
