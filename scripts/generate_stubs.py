"""Generate stubs of compiled modules: a `.pyi` beside each `.pyx` that has none by hand.

    python scripts/generate_stubs.py udpfast bench lab

The types come from the module's source: C types, annotations and, for attributes that are Python
objects to C, the types in the docstring of the class. A stub written by hand stays as it is. A
generated one begins with MARK, and every build writes it anew.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

MARK = "# Made from the module's source by scripts/generate_stubs.py.\n"

#: Homes of types that a module need not import.
KNOWN = {
    "collections": "Counter",
    "collections.abc": "AsyncIterator Awaitable Callable Iterable Iterator Mapping Sequence",
    "numpy.typing": "NDArray",
    "pathlib": "Path",
    "types": "TracebackType",
    "typing": "Any Literal Never Self final",
    "typing_extensions": "Buffer",
    "udpfast.core.moment": "Moment",
}
HOMES = {name: f"from {home} import {name}" for home in KNOWN for name in KNOWN[home].split()}
HOMES |= {name: f"import {name}" for name in ("builtins", "os", "socket")}
HOMES |= {"np": "import numpy as np"}

INTEGER = re.compile(r"(unsigned )?(u?int\d*(_t)?|s?size_t|Py_ssize_t|long|short|char|long long)")
PLAIN = {"": "Any", "object": "Any", "bint": "bool", "double": "float"}
PLAIN |= {kind: f"{kind}[Any]" for kind in ("list", "set")}
PLAIN |= {"dict": "dict[Any, Any]", "tuple": "tuple[Any, ...]"}
#: The arrays that a memoryview accepts. A view of bytes accepts any buffer.
ARRAYS = {
    f"{kind}_t": f"NDArray[np.{kind}]" for kind in ("int32", "int64", "uint16", "uint32", "uint64")
}
ARRAYS["double"] = "NDArray[np.float64]"

#: Return types of methods that Python calls.
RETURNED = {
    f"__{name}__": kind
    for kind, names in {
        "None": "init del setitem delitem exit",
        "Self": "enter new iter",
        "bool": "bool contains eq ne",
        "int": "len hash",
        "str": "repr str",
    }.items()
    for name in names.split()
}
EXIT = "kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None"
#: Methods that only Cython knows.
UNSEEN = {"__dealloc__", "__getbuffer__", "__releasebuffer__"}

TOKEN = re.compile(
    r"""[rbfu]*(?P<quotes>\"{3}|'{3})(?s:.*?)(?P=quotes)|[rbf]*"(?:\\.|[^"\\\n])*"|"""
    r"""[rbf]*'(?:\\.|[^'\\\n])*'|\#[^\n]*|\\\n|\n|[^\S\n]+|\w+|."""
)

CLASS = re.compile(r"(?:cdef )?class (\w+)")
DEFINED = re.compile(
    r"(?:(?P<async>async )?def |cpdef (?:inline )?(?!enum)(?P<c_type>[^(=]*?) ?)"
    r"\b(?P<name>\w+)(?P<rest>\(.*)$",
    re.DOTALL,
)
ASSIGNED = re.compile(r"(?P<name>\w+) ?(?P<rest>:.*|=[^=].*)$", re.DOTALL)


@dataclass
class Statement:
    """A statement without comments, on one line except for newlines in strings."""

    indent: int
    text: str
    inner: list["Statement"] = field(default_factory=list)


def statements(source: str) -> list[Statement]:
    """Return the statements of a module. Those of a block are inside the one that begins it."""
    top = Statement(-1, "")
    stack = [top]
    text, depth = "", 0
    for match in TOKEN.finditer(source + "\n"):
        token = match.group()
        if token.startswith("#") or token == "\\\n":
            continue
        depth += (token in ("[", "(", "{")) - (token in ("]", ")", "}"))
        if token != "\n" or depth:
            text += " " if token == "\n" else token
        elif text.strip():
            found = Statement(len(text) - len(text.lstrip()), text.strip())
            while stack[-1].indent >= found.indent:
                stack.pop()
            stack[-1].inner.append(found)
            stack.append(found)
            text = ""
        else:
            text = ""
    return top.inner


def parts(text: str, separator: str) -> list[str]:
    """Return the parts of a text between separators outside of brackets and strings."""
    found, depth = [""], 0
    for match in TOKEN.finditer(text):
        token = match.group()
        depth += (token in ("[", "(", "{")) - (token in ("]", ")", "}"))
        if token == separator and not depth:
            found.append("")
        else:
            found[-1] += token
    return [part.strip() for part in found if part.strip()]


def python_type(c_type: str) -> str:
    """Return the Python type of a C type."""
    c_type = c_type.removeprefix("const ").strip()
    if INTEGER.fullmatch(c_type):
        return "int"
    if "[" in c_type:
        item = c_type.partition("[")[0]
        return ARRAYS.get(item, "Buffer | NDArray[Any]")
    return PLAIN.get(c_type, c_type)


def said_type(words: str) -> str:
    """Return the type that a docstring states, such as `tuple of Grant or None`."""
    words = words.removesuffix(", optional").replace("pathlib.Path", "Path")
    words = re.sub(r"\btuple of ([\w.]+)", r"tuple[\1, ...]", words)
    words = re.sub(r"\b(list|set) of ([\w.]+)", r"\1[\2]", words)
    return words.replace(" or ", " | ")


def is_plain(default: str) -> bool:
    """Return whether a stub can state this default as it is."""
    try:
        value = ast.literal_eval(default)
    except (ValueError, SyntaxError):
        return False
    return value == () or isinstance(value, bool | int | float | str | bytes | None)


def parameter(text: str) -> str:
    """Return a parameter in Python syntax: `uint64_t index=0` becomes `index: int = 0`."""
    if text in ("*", "/", "self", "cls"):
        return text
    named, *default = parts(text, "=")
    name, *annotation = parts(named, ":")
    if annotation:
        (kind,) = annotation
    else:
        optional = default == ["None"] or name.endswith(" or None")
        *before, name = name.removesuffix(" not None").removesuffix(" or None").split()
        kind = python_type(" ".join(before))
        if optional and kind != "Any":
            kind += " | None"
    if not default:
        return f"{name}: {kind}"
    return f"{name}: {kind} = {default[0] if is_plain(default[0]) else '...'}"


def function(found: re.Match[str]) -> str:
    """Return the stub of a function."""
    name = found["name"]
    inside, _, result = parts(found["rest"], ":")[0].partition("->")
    takes = [parameter(each) for each in parts(inside[1 : inside.rindex(")")], ",")]
    if name == "__exit__":
        takes = ["self", EXIT]
    elif name == "__cinit__":
        name, takes[0] = "__new__", "cls"
    elif name == "__init__" and len(takes) == 1:
        takes += ["*args: Never", "**kwargs: Never"]
    elif name == "__contains__":
        takes.append("/")
    result = result.strip() or RETURNED.get(name) or python_type(found["c_type"] or "")
    return f"{found['async'] or ''}def {name}({', '.join(takes)}) -> {result}: ..."


def documented(body: list[Statement]) -> dict[str, str]:
    """Return the types of attributes that the docstring of a class states."""
    text = body[0].text if body and body[0].text.startswith(('"""', 'r"""')) else ""
    listed = re.split(r"\n    \w+\n    ---", text.partition("    Attributes\n    ----------\n")[2])[
        0
    ]
    said = re.findall(r"^    (\w[\w, ]*) : (.+)$", listed, re.MULTILINE)
    return {name: said_type(kind) for names, kind in said for name in parts(names, ",")}


def attributes(body: list[Statement], said: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield name and lines of each C attribute of a class that Python sees."""
    for each in body:
        if found := re.match(r"cdef (readonly|public) (.*?)(\w+(?:, ?\w+)*)$", each.text):
            kind = python_type(found[2])
            for name in parts(found[3], ","):
                better = said.get(name, kind)
                if found[1] == "public":
                    yield name, f"{name}: {better}"
                else:
                    yield name, f"@property\ndef {name}(self) -> {better}: ..."


def members(head: str, body: list[Statement]) -> Iterator[tuple[str, str]]:
    """Yield name and lines of each member of a class: methods, and assignments in its body."""
    begun = any(each.text.startswith("def __init__(") for each in body)
    decorators: list[str] = []
    for each in body:
        if each.text.startswith("@"):
            decorators.append(each.text)
            continue
        if match := DEFINED.match(each.text):
            name = match["name"]
            # `__cinit__` without parameters is left out, and so is one beside an `__init__`.
            silent = name == "__cinit__" and (begun or "(self)" in each.text)
            if name not in UNSEEN and not silent:
                yield name, "\n".join([*shown_decorators(decorators), function(match)])
        elif not head.startswith("cdef") and (match := ASSIGNED.match(each.text)):
            yield match["name"], field_stub(match["name"], match["rest"], head)
        decorators = []


def shown_decorators(decorators: list[str]) -> list[str]:
    """Return the decorators that matter to users; `cython.final` becomes `final`."""
    shown = ["@final" if each == "@cython.final" else each for each in decorators]
    return [each for each in shown if not each.startswith("@cython.")]


def field_stub(name: str, rest: str, head: str) -> str:
    """Return the stub of an assignment in a Python class; `rest` is what follows its name."""
    if rest.startswith("="):
        return f"{name} = ..."
    # A tuple has methods of these names, which such a field hides.
    hides = "NamedTuple" in head and name in ("count", "index")
    return parameter(name + rest) + ("  # type: ignore[assignment]" if hides else "")


def class_stub(head: str, decorators: list[str], body: list[Statement]) -> str:
    """Return the stub of a class."""
    said = documented(body)
    inner = [*attributes(body, said), *members(head, body)]
    # Attributes that `__init__` assigns, or that a C class takes from the module's constants.
    inner[:0] = (
        (name, f"{name}: {kind}") for name, kind in said.items() if name not in dict(inner)
    )
    seen = [text for name, text in inner if name.endswith("__") or not name.startswith("_")]
    lines = "\n".join(seen or ["..."]).split("\n")
    head = head.removeprefix("cdef ")
    return "\n".join([*shown_decorators(decorators), head, *(f"    {line}" for line in lines)])


def value_stub(name: str, rest: str) -> str:
    """Return the stub of a module's variable; `rest` is what follows its name."""
    if rest.startswith(":"):
        return f"{name}: {parts(rest[1:], '=')[0]}"
    try:
        value = ast.literal_eval(rest.lstrip("= "))
    except (ValueError, SyntaxError):
        return f"{name}: Any"
    kind = type(value).__name__
    if isinstance(value, tuple):
        (item,) = {type(each).__name__ for each in value}
        kind = f"tuple[{item}, ...]"
    return f"{name}: {kind}"


def shown(module: list[Statement], declared: dict[str, list[Statement]]) -> dict[str, str]:
    """Return the stubs of all classes, functions and variables of a module by name."""
    found: dict[str, str] = {}
    decorators: list[str] = []
    for each in module:
        if each.text.startswith("@"):
            decorators.append(each.text)
            continue
        if match := CLASS.match(each.text):
            body = [*each.inner, *declared.get(match[1], [])]
            found[match[1]] = class_stub(each.text, decorators, body)
        elif match := DEFINED.match(each.text):
            found[match["name"]] = "\n".join([*shown_decorators(decorators), function(match)])
        elif match := ASSIGNED.match(each.text):
            found.setdefault(match["name"], value_stub(match["name"], match["rest"]))
        decorators = []
    return found


def imported(module: list[Statement]) -> dict[str, str]:
    """Return the import or cimport statement for each name that a module imports."""
    known = {}
    for each in module:
        if match := re.match(r"from ([\w.]+) c?import \(?(.*?)\)?$", each.text):
            for name in parts(match[2], ","):
                known[name.split(" as ")[-1]] = f"from {match[1]} import {name}"
        elif match := re.match(r"import ([\w.]+)(?: as (\w+))?$", each.text):
            known[match[2] or match[1]] = each.text
    return known


@cache
def homes(package: Path) -> dict[str, str]:
    """Return an import statement for each class of a package."""
    found: dict[str, str] = {}
    several = set()
    for path in [*package.rglob("*.py"), *package.rglob("*.pyx")]:
        module = ".".join(path.relative_to(package.parent).with_suffix("").parts)
        for name in re.findall(r"^(?:cdef )?class (\w+)", path.read_text(), re.MULTILINE):
            if name in found:
                several.add(name)
            found[name] = f"from {module} import {name}"
    return {name: line for name, line in found.items() if name not in several}


def names(text: str) -> set[str]:
    """Return the names that a part of a stub uses."""
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def stub(path: Path, package: Path) -> str:
    """Return the stub of a module: the names in its `__all__`, and what they need."""
    module = statements(path.read_text())
    header = path.with_suffix(".pxd")
    declared = statements(header.read_text()) if header.exists() else []
    bodies = {match[1]: each.inner for each in declared if (match := CLASS.match(each.text))}
    own = shown(module, bodies)
    (listed,) = (each.text for each in module if each.text.startswith("__all__ ="))
    exported = ast.literal_eval(listed.removeprefix("__all__ ="))
    wanted, used = set(exported), set()
    while new := wanted - used:
        used |= new
        for name in new & own.keys():
            wanted |= names(own[name])
    known = {**homes(package), **HOMES, **imported([*declared, *module])}
    imports = {known[name] for name in used - own.keys() if name in known}
    body = [text for name, text in own.items() if name in used and name != "__all__"]
    return "\n".join([MARK, *sorted(imports), f"__all__ = {exported}", *body, ""])


def is_by_hand(path: Path) -> bool:
    """Return whether a stub was written by hand."""
    return path.exists() and not path.read_text().startswith(MARK)


def main(packages: list[str]) -> None:
    """Write the stubs of packages. A stub that is up to date keeps its time stamp."""
    for package in map(Path, packages):
        for path in package.rglob("*.pyi"):
            if not path.with_suffix(".pyx").exists() and not is_by_hand(path):
                path.unlink()
        for path in sorted(package.rglob("*.pyx")):
            target = path.with_suffix(".pyi")
            if is_by_hand(target):
                continue
            text = stub(path, package)
            if not target.exists() or target.read_text() != text:
                target.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
