"""A schema's XML as plain elements, each with its file and line.

Only the file itself is read, and files beside it that it includes. A document type declaration is
refused, and so are all entities.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from xml.parsers import expat

from msgspec import Struct, field

from udpfast.errors import FormatError, shown

__all__ = ["Element", "Problems", "SchemaError", "read_document"]

#: The largest known schema has 0.4 MB.
FILE_BYTES_MAX = 1 << 24
#: Elements inside elements; limits the recursion.
DEPTH_MAX = 64
#: How many errors an exception lists.
LISTED_MAX = 100
_XINCLUDE = "http://www.w3.org/2001/XInclude"
_SEPARATOR = "\t"  # does not occur in names of XML
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


class SchemaError(FormatError):
    """A schema is invalid. The message lists every place, what was expected, and what was found.

    Attributes
    ----------
    problems : tuple of str
        For each problem `FILE:LINE: <element name>: expected ..., found ...`.
    """

    def __init__(self, problems: tuple[str, ...]) -> None:
        said = list(problems[:LISTED_MAX])
        if len(problems) > len(said):
            said.append(f"... and {len(problems) - len(said)} more")
        if len(problems) > 1:
            said.insert(0, f"{len(problems)} errors in this schema:")
        super().__init__("\n".join(said))
        self.problems = problems


class Element(Struct):
    """An element of XML.

    Attributes
    ----------
    tag : str
        Without its namespace.
    namespace : str
        Empty if it has none.
    attributes : dict of str to str
        Those without a namespace.
    text : str
        Its own text, without that of its children.
    children : list of Element
        In the order of the file.
    file, line
        Where it begins.
    """

    tag: str
    namespace: str
    attributes: dict[str, str]
    file: str
    line: int
    text: str = ""
    children: list[Element] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The attribute `name`; empty if there is none."""
        return self.attributes.get("name", "")

    @property
    def label(self) -> str:
        """Tag and name, as error messages show them."""
        return f"<{self.tag}{' ' * bool(self.name)}{self.name}>"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.label}"


class Problems:
    """Collects all that is wrong with a schema, so that one error shows everything."""

    def __init__(self) -> None:
        self._found: dict[str, None] = {}  # in order, without repetitions

    def add(self, element: Element, expected: str, found: object) -> None:
        """Note what an element should have had, and what it has."""
        said = found if isinstance(found, str) else shown(found)
        self._found[f"{element}: expected {expected}, found {said}"] = None

    def __len__(self) -> int:
        return len(self._found)

    def check(self) -> None:
        """Raise SchemaError if anything is wrong."""
        if self._found:
            raise SchemaError(tuple(self._found))


def read_document(path: str | os.PathLike[str]) -> Element:
    """Return the root element of a schema, with included files in place.

    Raises
    ------
    SchemaError
        The file is not well-formed XML, or has something that is refused (see the module).
    OSError
        The file cannot be read.
    """
    return _read(Path(path), ())


def _read(path: Path, inside: tuple[Path, ...]) -> Element:
    with path.open("rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise SchemaError((f"{path}: expected at most {FILE_BYTES_MAX} bytes, found more",))
    root = _parse(path, data)
    _include(root, path, (*inside, path.resolve()))
    return root


def _parse(path: Path, data: bytes) -> Element:
    stack: list[Element] = []
    roots: list[Element] = []
    parser = expat.ParserCreate(namespace_separator=_SEPARATOR)
    parser.buffer_text = True

    def refuse(expected: str, found: str) -> None:
        line = parser.CurrentLineNumber
        raise SchemaError((f"{path}:{line}: expected {expected}, found {found}",))

    def start(tag: str, attributes: dict[str, str]) -> None:
        namespace, _, local = tag.rpartition(_SEPARATOR)
        if len(stack) == DEPTH_MAX:
            refuse(f"at most {DEPTH_MAX} elements inside each other", f"<{local}> in {DEPTH_MAX}")
        own = {name: value for name, value in attributes.items() if _SEPARATOR not in name}
        element = Element(local, namespace, own, str(path), parser.CurrentLineNumber)
        (stack[-1].children if stack else roots).append(element)
        stack.append(element)

    def end(_: str) -> None:
        stack.pop()

    def text(said: str) -> None:
        if stack:
            stack[-1].text += said

    def doctype(name: str, *_: object) -> None:
        refuse("no document type declaration (entities are not read)", f"<!DOCTYPE {name}>")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise SchemaError((f"{path}:{error.lineno}: expected XML, found {reason}",)) from None
    except (LookupError, ValueError) as error:  # an encoding that Python does not know
        raise SchemaError((f"{path}: expected XML, found {error}",)) from None
    return roots[0]


def _include(element: Element, path: Path, inside: tuple[Path, ...]) -> None:
    children: list[Element] = []
    for child in element.children:
        if child.tag == "include" and child.namespace == _XINCLUDE:
            children.append(_included(child, path, inside))
        else:
            _include(child, path, inside)
            children.append(child)
    element.children = children


def _included(element: Element, path: Path, inside: tuple[Path, ...]) -> Element:
    def refuse(expected: str, found: str) -> SchemaError:
        return SchemaError((f"{element}: expected {expected}, found {found}",))

    href = element.attributes.get("href", "")
    if element.attributes.get("parse", "xml") != "xml" or "xpointer" in element.attributes:
        raise refuse("the whole of an XML file", shown(element.attributes))
    if not href or _SCHEME.match(href) or href.startswith(("/", "\\")):
        raise refuse("href to be a path beside this file", shown(href))
    target = path.parent / href
    if target.resolve() in inside:
        raise refuse("files that do not include each other in a circle", shown(href))
    if len(inside) == DEPTH_MAX or not target.is_file():
        raise refuse("href to be a file", f"no file {target}")
    return _read(target, inside)
