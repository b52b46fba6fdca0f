"""`udpfast monitor` in a real browser: Chromium, as wide as a desk and as a phone."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from scripts import chromium
from tests.cases import nightly
from tests.waiting import wait_until
from udpfast import Reader
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.net.ports import free_port

# Not imported here: each worker that collects the tests would take a second for it.
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(find_spec("nicegui") is None, reason="no nicegui: pip install nicegui"),
]


#: Sizes of a feed that has little to receive.
SMALL = {
    "ring": {"capacity_bytes": 1 << 22, "names": 64},
    "window": {"slab_cells": 256},
    "objects": {"max": 64, "collect_bytes": 1 << 20},
    "agent": {"idle": "sleep"},
}

#: Points of the chart that has the fewest.
POINTS_DRAWN = """() => {
    const charts = Object.keys(udpfastPoints).map(id => getElement(Number(id)).chart);
    const drawn = charts.map(one => one.getOption().series.map(each => each.data.length));
    return drawn.length === 7 ? Math.min(...drawn.flat()) : 0;
}"""


@pytest.fixture(scope="module")
def feed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Run a feed named deribit; return its port."""
    folder, port = tmp_path_factory.mktemp("feed"), free_port()
    lines = [{"name": "A", "address": f"127.0.0.1:{port}"}]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UDPFAST_SHM", str(folder / "shm"))
        patch.setenv("UDPFAST_JOURNALS", str(folder / "journals"))
        with Subscriber({"name": "deribit", "incremental": {"lines": lines}} | SMALL):
            yield port


def start(*options: str) -> tuple[subprocess.Popen[str], str]:
    """Start the page; return its process, and the address that it prints."""
    # NiceGUI serves otherwise where it finds a test around it.
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    process = subprocess.Popen(
        [sys.executable, "-m", "udpfast", "monitor", *options],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("udpfast: http://"), line
    return process, line.split()[1]


def end(process: subprocess.Popen[str]) -> None:
    """End it as an operator does."""
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 0


@pytest.fixture(scope="module")
def page(feed: int) -> Iterator[str]:
    """Serve the page of that feed; return its address."""
    process, address = start("--listen", f"127.0.0.1:{free_port()}", "--interval", "0.2")
    yield address
    end(process)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return Chromium, without a screen."""
    pytest.importorskip("selenium.webdriver")
    if not chromium.is_there():
        pytest.skip(chromium.MISSING)
    with chromium.browser(tmp_path_factory.mktemp("chromium"), {"performance": "ALL"}) as found:
        yield found


@pytest.fixture
def browser(found: Any) -> Iterator[Any]:
    """Return it as it is when it starts, and leave it so."""
    yield found
    found.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    found.get("about:blank")
    found.get_log("performance")


#: Tables, of the page and of text, that are wider than what is seen of them.
CUT = """return [...document.querySelectorAll('.words, .q-table__middle')]
    .filter(each => each.scrollWidth > each.clientWidth + 1)
    .map(each => [each.className, each.scrollWidth, each.clientWidth])"""


@pytest.mark.parametrize("width", [390, *nightly(1400)])
def test_page_shows_a_feed_as_it_goes(feed: int, page: str, browser: Any, width: int) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 800},
    )
    browser.get(page)

    def words() -> str:
        return str(browser.execute_script("return document.body.innerText"))

    wait_until(lambda: "deribit: running" in words(), "the feed's name")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:

        def comes() -> bool:
            # A control byte that no publisher sends: a verdict, and nothing more.
            sock.sendto(b"\xff" * 40, ("127.0.0.1", feed))
            return re.search(r"incremental\.A +[1-9]", words()) is not None

        wait_until(comes, "datagrams")
    drawn = "return document.querySelectorAll('.charts canvas').length"
    wait_until(lambda: browser.execute_script(drawn) == 7, "seven charts")
    drawn = f"return ({POINTS_DRAWN})()"
    wait_until(lambda: browser.execute_script(drawn) >= 3, "points that follow each other")
    assert "image" in words()  # why there is no book
    assert "this host" in words() and "what needs attention" in words()
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script(CUT) == []
    fetched = {
        json.loads(entry["message"])["message"]["params"]["request"]["url"]
        for entry in browser.get_log("performance")
        if '"Network.requestWillBeSent"' in entry["message"]
    }
    # The browser's own pages are of no scheme that a network has.
    fetched = {url for url in fetched if url.startswith(("http", "ws"))}
    assert len(fetched) > 3
    assert {urlsplit(url).netloc for url in fetched} == {urlsplit(page).netloc}


#: For each chart that has a point, show what the mouse would at its newest.
TIPS_SHOWN = """() => {
    for (const id of Object.keys(udpfastPoints)) {
        const chart = getElement(Number(id)).chart;
        chart.getOption().series.forEach((one, at) => chart.dispatchAction(
            {type: 'showTip', seriesIndex: at, dataIndex: one.data.length - 1}));
    }
}"""


def test_names_of_readers_are_text_and_no_page(page: str, browser: Any) -> None:
    evil = "<b id=evil>"
    with Reader("ring:deribit", name=evil):
        browser.get(page)

        def text() -> str:
            return str(browser.execute_script("return document.body.innerText"))

        wait_until(lambda: evil in text(), "the reader's name")
        named = "return Object.values(udpfastPoints).some(p => JSON.stringify(p).includes('evil'))"
        wait_until(lambda: browser.execute_script(named), "a chart that has it")
        browser.execute_script(f"({TIPS_SHOWN})()")
        wait_until(lambda: text().count(evil) >= 2, "the tooltip")
        assert browser.execute_script("return document.getElementById('evil')") is None


def test_page_shows_a_book_when_it_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: Any
) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path / "journals"))
    market, snapshots = free_port(), free_port()
    settings = {
        "name": "deribit",
        "incremental": {"lines": [{"name": "A", "address": f"127.0.0.1:{market}"}]},
        "snapshot": {"lines": [{"name": "S", "address": f"127.0.0.1:{snapshots}"}]},
        "image": {"enabled": True, "capacity_bytes": 1 << 22, "objects": 64},
    } | SMALL
    send = f"send --simulate --levels 20 --rate 200 --seconds 300 --incremental 127.0.0.1:{market}"
    command = [sys.executable, "-m", "udpfast", *send.split()]
    command += ["--snapshot", f"127.0.0.1:{snapshots}"]
    with Subscriber(settings), subprocess.Popen(command, stdout=subprocess.DEVNULL) as sender:
        process, address = start("--listen", f"127.0.0.1:{free_port()}", "--interval", "2")
        try:
            browser.get(address)

            # Asked and clicked inside the page, which draws its elements anew at any moment.
            def count(where: str) -> int:
                asked = "return document.querySelectorAll(arguments[0]).length"
                return int(browser.execute_script(asked, where))

            def click(where: str) -> None:
                browser.execute_script("document.querySelector(arguments[0])?.click()", where)

            def listed() -> bool:
                # The list is read when it is opened: the first time it may be too early for it.
                if not count(".q-menu .q-item"):
                    click(".charts .q-select .q-field__control")
                    time.sleep(0.5)
                return count(".q-menu .q-item") > 0

            def chosen() -> bool:
                # A click may come while the list is drawn anew, and then meets nothing.
                if count(".charts tbody tr") != 10 and listed():
                    click(".q-menu .q-item")
                    time.sleep(0.5)
                return count(".charts tbody tr") == 10

            wait_until(listed, "a list of books")
            assert count(".charts tbody tr") == 0
            wait_until(chosen, "ten levels")
            text = "return document.body.innerText"
            wait_until(
                lambda: "sound; " in browser.execute_script(text), "what may be believed of it"
            )
        finally:
            end(process)
            sender.terminate()


def test_page_beyond_this_host_needs_its_token(feed: int) -> None:
    process, address = start("--listen", "0.0.0.0:0")  # at any free port, and says which
    try:
        host = address.replace("0.0.0.0", "127.0.0.1")
        where, _, token = host.partition("?token=")
        assert len(token) >= 16
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(where)
        assert b"token" in refused.value.read()
        assert urllib.request.urlopen(host).status == 200
    finally:
        end(process)


def test_page_port_in_use_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        result = subprocess.run(
            [sys.executable, "-m", "udpfast", "monitor", "--listen", listen],
            capture_output=True,
            text=True,
            check=False,
        )
    assert result.returncode == 2
    assert f"expected a free port of this host, found {listen}" in result.stderr


def test_token_that_no_address_can_hold_is_refused() -> None:
    command = [sys.executable, "-m", "udpfast", "monitor", "--token", "\udcff"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.partition(" ")[2] == (
        "ERROR udpfast: --token: expected printable text, found '\\udcff'\n"
    )
