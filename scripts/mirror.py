"""Copy the sources to another folder, to build them there with other flags.

    python scripts/mirror.py build/sanitize

Unchanged files keep their time stamps, so that a second build compiles only what changed.
"""

import shutil
import sys
from pathlib import Path

COPIED = (
    *("udpfast", "pyspark_udpfast", "tests", "docs", "scripts", "bench", "lab", "packaging"),
    ".ci",
)
SKIPPED = ("*.so", "__pycache__")
GENERATED = {"udpfast": ("*.c",)}  # elsewhere C is source: examples, benchmarks' peers


def mirror(source: Path, target: Path) -> None:
    """Make `target` contain the sources of `source`; what was built in it stays."""
    built = {path.relative_to(target) for path in target.rglob("*.so")}
    built = {path for path in built if path.name.partition(".")[0] != "_cython"}  # has no source
    for folder in COPIED:
        if (source / folder).is_dir():
            copy_newer(source / folder, target / folder, (*SKIPPED, *GENERATED.get(folder, ())))
    for path in source.iterdir():
        if path.is_file():
            copy_file(str(path), str(target / path.name))
    for path in built:
        if not any((source / path.parent).glob(f"{path.name.partition('.')[0]}.pyx")):
            (target / path).unlink()


def copy_newer(source: Path, target: Path, skipped: tuple[str, ...]) -> None:
    """Copy a tree; remove files that its source no longer has, except built ones."""
    shutil.copytree(
        source,
        target,
        ignore=shutil.ignore_patterns(*skipped),
        copy_function=copy_file,
        dirs_exist_ok=True,
    )
    for path in list(target.rglob("*")):
        kept = path.is_dir() or path.suffix in {".so", ".pyc"}
        if not kept and not (source / path.relative_to(target)).exists():
            path.unlink()


def copy_file(source: str, target: str) -> str:
    """Copy one file with its time stamp, unless it is unchanged."""
    old, new = Path(target), Path(source)
    if not old.exists() or old.stat().st_mtime_ns != new.stat().st_mtime_ns:
        old.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(new, old)
    return target


if __name__ == "__main__":
    mirror(Path(__file__).resolve().parent.parent, Path(sys.argv[1]).resolve())
