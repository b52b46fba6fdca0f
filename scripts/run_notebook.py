"""Run a notebook as Jupyter does, and write the output of its cells into its file.

    python scripts/run_notebook.py docs/notebook.ipynb

Run it while nothing else runs: the notebook shows latencies that it measures on this host.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path


def main() -> int:
    """Run the notebook in an empty directory, with shared memory and journals of its own."""
    import nbclient
    import nbformat

    summary, _, more = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    file: Path = parser.parse_args().file
    notebook = nbformat.reads(file.read_text(), as_version=4)  # type: ignore[no-untyped-call]
    metadata = notebook.metadata.copy()
    with tempfile.TemporaryDirectory() as temporary:
        for name in ("UDPFAST_SHM", "UDPFAST_JOURNALS"):
            os.environ[name] = str(Path(temporary, name))
        resources = {"metadata": {"path": temporary}}
        nbclient.NotebookClient(
            notebook, timeout=300, resources=resources, record_timing=False
        ).execute()
    notebook.metadata = metadata  # the Python of this host does not matter to readers
    file.write_text(nbformat.writes(notebook) + "\n")  # type: ignore[no-untyped-call]
    return 0


if __name__ == "__main__":
    sys.exit(main())
