"""The documentation site: built as `make docs` does, complete, and without the internet."""

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import udpfast
from tests.shared import ROOT
from udpfast.cli.main import cli

#: What a page would fetch; links that a reader follows are others.
FETCHED = re.compile(r"""<(?:script|img|link)[^>]* (?:src|href)=["']?(https?:)?//""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the site; a link that leads nowhere fails."""
    pytest.importorskip("mkdocs")
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    result = subprocess.run(
        [*command, "--site-dir", str(directory)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return directory


def test_site_has_every_public_name_with_its_docstring(site: Path) -> None:
    page = (site / "reference" / "python.html").read_text()
    for name in udpfast.__all__:
        if name != "__version__":
            assert re.search(rf'id="udpfast\.([\w.]+\.)?{name}"', page), name
    assert "the writer never waits for you" in page  # a docstring of a compiled class
    assert not re.search(r"<h\d[^>]*>(Parameters|Raises|Returns)<", page)  # not parsed: plain text


def test_site_has_the_help_of_every_verb(site: Path) -> None:
    page = (site / "reference" / "command-line.html").read_text()
    text = html.unescape(re.sub("<[^>]*>", "", page))
    context = click.Context(cli)
    for verb in cli.list_commands(context):
        assert f'id="udpfast-{verb}"' in page
        assert f"sage: udpfast {verb} [" in text
    assert "--rx-cpus LIST" in text
    assert "--skew-us FLOAT RANGE" in text
    assert "Sentinel" not in text


def test_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 15
    for page in pages:
        assert not FETCHED.search(page.read_text()), page
