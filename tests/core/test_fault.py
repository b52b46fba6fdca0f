"""If a mapped file becomes shorter, the process ends with a message, whichever thread reads it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import mmap, os, sys, threading
from udpfast.core.fault import explain_bus_errors
path, where, journal = sys.argv[1:]
explain_bus_errors(journal == "journal")
with open(path, "r+b") as file:
    memory = mmap.mmap(file.fileno(), 0)
os.truncate(path, 0)
if where == "thread":
    reader = threading.Thread(target=lambda: memory[0])
    reader.start()
    reader.join()
print(memory[0])
"""


@pytest.mark.parametrize(
    ("where", "log", "begin"), [("main", "journal", "<3>"), ("main", "", ""), ("thread", "", "")]
)
def test_file_that_is_cut_ends_its_process_with_a_sentence(
    tmp_path: Path, where: str, log: str, begin: str
) -> None:
    path = tmp_path / "mapped here"
    path.write_bytes(bytes(8192))
    done = subprocess.run(
        [sys.executable, "-c", CODE, os.fspath(path), where, log],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{begin}udpfast: {path}: expected the file as it was")
