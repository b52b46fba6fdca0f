"""The files that a build removes."""

import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.shared import ROOT

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")

REMOVE = """
import os, runpy, setuptools, sys
setuptools.setup = lambda **settings: None
remove = runpy.run_path("setup.py")["remove_without_source"]
os.chdir(sys.argv[1])
remove()
"""


def test_compiled_modules_whose_source_is_gone_are_removed(tmp_path: Path) -> None:
    """Python would import such a module in place of the `.py` that has replaced its source."""
    kept = [f"udpfast/_cython{SUFFIX}", f"udpfast/log/ring{SUFFIX}", "udpfast/log/ring.pyx"]
    kept += ["udpfast/log/gone.py", "bench/library.so"]
    gone = [f"udpfast/log/gone{SUFFIX}", f"lab/gone{SUFFIX}", f"bench/loops/gone{SUFFIX}"]
    for name in kept + gone:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    subprocess.run([sys.executable, "-c", REMOVE, tmp_path], cwd=ROOT, check=True)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == set(kept)
