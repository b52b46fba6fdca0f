"""Stubs of compiled modules are generated from their sources."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.generate_stubs import MARK, main, parameter, said_type
from tests.shared import ROOT

MODULE = '''\
"""A module."""

from pathlib import Path

import cython

from sample.other cimport Other

__all__ = ["LIMITS", "NAME", "Ended", "Thing", "made"]

LIMITS = (1, 2)
NAME: str = Path("x").name
_HIDDEN = 3


class Ended(Exception):
    """It has ended.

    Attributes
    ----------
    why : str or None
    """

    def __init__(self, why: str | None):
        self.why = why


@cython.final
cdef class Thing(Base):
    """A thing.

    Attributes
    ----------
    path : pathlib.Path
        Where it is.
    """

    def __cinit__(self, uint64_t size, *, bint whole=False, other: Other | None = None):
        pass

    cdef int hidden(self) noexcept nogil:
        return 0

    def take(
            self, const uint8_t[::1] data not None, text="a, b = (",  # not a parameter, this
            count: int = 1 << 3) -> list[Ended]:
        """Take `def x():` of it."""

    @property
    def end(self) -> int:
        """The end."""

    def _private(self):
        pass

    def __exit__(self, *exception):
        pass


cdef class Base:
    def __init__(self):
        raise TypeError


cpdef int64_t made(double x) noexcept:
    return 0
'''
DECLARED = """\
cdef class Thing(Base):
    cdef readonly object path    # a comment, readonly
    cdef public uint32_t first, last
    cdef void* memory
"""
STUB = """\
from numpy.typing import NDArray
from pathlib import Path
from sample.other import Other
from types import TracebackType
from typing import Any
from typing import Never
from typing import Self
from typing import final
from typing_extensions import Buffer
__all__ = ['LIMITS', 'NAME', 'Ended', 'Thing', 'made']
LIMITS: tuple[int, ...]
NAME: str
class Ended(Exception):
    why: str | None
    def __init__(self, why: str | None) -> None: ...
@final
class Thing(Base):
    @property
    def path(self) -> Path: ...
    first: int
    last: int
    def __new__(cls, size: int, *, whole: bool = False, other: Other | None = None) -> Self: ...
    def take(self, data: Buffer | NDArray[Any], text: Any = "a, b = (", count: int = ...)\
 -> list[Ended]: ...
    @property
    def end(self) -> int: ...
    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,\
 trace: TracebackType | None) -> None: ...
class Base:
    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
def made(x: float) -> int: ...
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "sample"
    folder.mkdir()
    (folder / "module.pyx").write_text(MODULE)
    (folder / "module.pxd").write_text(DECLARED)
    monkeypatch.chdir(tmp_path)
    return folder


def test_stub_has_what_a_module_exports_and_what_that_is_said_with(package: Path) -> None:
    main(["sample"])
    assert (package / "module.pyi").read_text() == f"{MARK}\n{STUB}"


def test_stub_by_hand_stays(package: Path) -> None:
    (package / "module.pyi").write_text("by: hand\n")
    main(["sample"])
    assert (package / "module.pyi").read_text() == "by: hand\n"


def test_stub_whose_module_is_gone_goes(package: Path) -> None:
    main(["sample"])
    (package / "module.pyx").rename(package / "renamed.pyx")
    (package / "alone.pyi").write_text("by: hand\n")
    main(["sample"])
    assert sorted(path.name for path in package.glob("*.pyi")) == ["alone.pyi", "renamed.pyi"]


def test_stub_that_says_the_same_keeps_its_age(package: Path) -> None:
    main(["sample"])
    before = (package / "module.pyi").stat()
    main(["sample"])
    assert (package / "module.pyi").stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize(
    ("cython", "python"),
    [
        ("unsigned long long n=0", "n: int = 0"),
        ("Other other=None", "other: Other | None = None"),
        ("Other other or None", "other: Other | None"),
        ("const int64_t[::1] due not None", "due: NDArray[np.int64]"),
        ("names: dict[str, int] = {}", "names: dict[str, int] = ..."),
        ('what: Literal["a", "b=c"] = "a"', 'what: Literal["a", "b=c"] = "a"'),
        ("*", "*"),
    ],
)
def test_parameter_is_said_as_python_says_it(cython: str, python: str) -> None:
    assert parameter(cython) == python


def test_words_of_a_docstring_are_types() -> None:
    assert said_type("tuple of Grant or None") == "tuple[Grant, ...] | None"
    assert said_type("list of str, optional") == "list[str]"


def test_every_compiled_module_has_its_stub_from_the_build() -> None:
    """A build after a change of a signature updates the stub beside it."""
    command = [sys.executable, "scripts/generate_stubs.py", "udpfast"]
    made = {path: path.stat().st_mtime_ns for path in (ROOT / "udpfast").rglob("*.pyi")}
    subprocess.run(command, cwd=ROOT, check=True)
    assert {path.with_suffix(".pyi") for path in (ROOT / "udpfast").rglob("*.pyx")} <= made.keys()
    assert all(path.stat().st_mtime_ns == before for path, before in made.items())
