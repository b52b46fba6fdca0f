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
from scripts import chromium
from tests.shared import ROOT
from udpfast.cli.main import cli

#: What a page would fetch; links that a reader follows are others.
FETCHED = re.compile(r"""<(?:script|img|link)[^>]* (?:src|href)=["']?(https?:)?//""")

#: A page that is longer is better split: 30 windows.
LONGEST_PX = 32_000


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
    pages = sorted((site / "reference").glob("python*.html"))
    page = "".join(page.read_text() for page in pages)
    for name in udpfast.__all__:
        if name != "__version__":
            assert re.search(rf'id="udpfast\.([\w.]+\.)?{name}"', page), name
    assert "the writer never waits for you" in page  # a docstring of a compiled class
    assert not re.search(r"<h\d[^>]*>(Parameters|Raises|Returns)<", page)  # not parsed: plain text


def test_site_has_the_help_of_every_verb(site: Path) -> None:
    pages = sorted((site / "reference").glob("command-line*.html"))
    page = "".join(each.read_text() for each in pages)
    text = html.unescape(re.sub("<[^>]*>", "", page))
    context = click.Context(cli)
    for verb in cli.list_commands(context):
        assert f'id="udpfast-{verb}"' in page
        assert f"sage: udpfast {verb} [" in text
    assert "--rx-cpus LIST" in text
    assert "--skew-us NUMBER" in text
    assert "Sentinel" not in text


def test_site_calls_pages_by_their_titles_and_not_by_their_files(site: Path) -> None:
    named = {
        link.partition("#")[0] for link in re.findall(r"\[[\w-]+\.md\]\(([\w./#-]+)\)", sources())
    }
    assert len(named) >= 5
    for page in site.glob("*.html"):
        for link, words in re.findall(r'<a href="([^"]*)">([\w-]+\.md)</a>', page.read_text()):
            assert link.startswith("https:"), (page.name, words)
    assert '">Shared memory, byte by byte</a>' in (site / "records.html").read_text()


def test_site_shows_all_of_its_code_and_no_page_without_end(site: Path, tmp_path: Path) -> None:
    """In a window of 1,400 px, as Chromium lays it out."""
    pytest.importorskip("selenium")
    if not chromium.is_there():
        pytest.skip("no Chromium with its driver on this host")
    cut = (
        "[...document.querySelectorAll('pre code')].filter(e => e.scrollWidth > e.clientWidth + 1)"
    )
    with chromium.browser(tmp_path) as driver:
        driver.set_window_size(1400, 1000)
        pages = [page for page in sorted(site.rglob("*.html")) if page.name != "404.html"]
        for page in pages:
            driver.get(page.as_uri())
            assert driver.execute_script(f"return {cut}.length") == 0, page
            height = driver.execute_script("return document.documentElement.scrollHeight")
            assert 500 < height < LONGEST_PX, page


def sources() -> str:
    """Return all pages as they are written."""
    return "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))


def test_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 15
    for page in pages:
        assert not FETCHED.search(page.read_text()), page
