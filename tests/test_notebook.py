"""The notebook of the documentation, executed by Jupyter's own kernel."""

import re
from pathlib import Path

import pytest

from tests.shared import ROOT
from udpfast.net.ports import free_ports

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
PORTS = ("29001", "29101", "29002")


@pytest.mark.system
def test_notebook_runs_as_it_is_written_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    text = NOTEBOOK.read_text()
    for port, free in zip(PORTS, free_ports(3), strict=True):
        text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{free}")
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path / "journals"))
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("PATH", str(tmp_path))  # a kernel's need not be that of its environment
    for _ in range(2):  # what the first run leaves behind does not disturb the second
        notebook = nbformat.reads(text, as_version=4)
        notebook.cells.append(nbformat.v4.new_code_cell("float(axes.dataLim.x1)"))
        nbclient.NotebookClient(
            notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
        ).execute()
    shown = [
        output["data"]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if "data" in output
    ]
    plain = "\n".join(data["text/plain"] for data in shown)
    assert 8 < float(shown[-1]["text/plain"]) < 60, "the figure is of this market"
    assert re.search(r"<OrderBook .* sound>", plain)
    assert re.search(r"'lost': \d+", plain)
    assert "origin_to_kernel" in plain
    assert all("text/html" in data for data in shown if data["text/plain"].startswith("<"))
    counts = [int(n) for n in re.findall(r"│ [A-Z]+ +┆ (\d+)", plain)]
    assert counts and min(counts) > 0, "quotes of each symbol in the journal"


def test_notebook_is_kept_with_what_it_shows_and_its_links_lead_somewhere() -> None:
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert {output.output_type for output in outputs} == {"execute_result", "display_data"}
    assert any("image/png" in output.data for output in outputs), "scripts/run_notebook.py draws it"
    text = NOTEBOOK.read_text()
    assert not re.search(r"/tmp/", text), "a path of the host that ran it"
    sources = "".join(cell.source for cell in notebook.cells)
    links = re.findall(r"\]\((.*?)\)", sources)
    assert links and all((NOTEBOOK.parent / link).exists() for link in links)
