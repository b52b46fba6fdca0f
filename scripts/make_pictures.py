"""Make the pictures of README.md and docs: a feed's page in a terminal and in a browser, a report.

    python scripts/make_pictures.py docs/images

A feed of two lines and a strategy run for half a minute on loopback, and Chromium (Debian:
`apt-get install chromium chromium-driver`) draws their pages. Then the demonstration makes a
report, if Spark is installed. Look at every picture before you commit it.
"""

import argparse
import asyncio
import io
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chromium import MISSING, browser, is_there
from PIL import Image

#: Pixels: pages show no picture larger.
SIZE_MAX = 1200

FEED = """\
name = "deribit"

[[incremental.lines]]
name = "microwave"
address = "127.0.0.1:29001"

[[incremental.lines]]
name = "fibre"
address = "127.0.0.1:29101"

[[snapshot.lines]]
name = "snapshots"
address = "127.0.0.1:29002"

[image]
enabled = true
"""
SEND = (
    "send --simulate --seconds 120 --loss 0.003 --skew-us 200 "
    "--incremental 127.0.0.1:29001,127.0.0.1:29101 --snapshot 127.0.0.1:29002"
)
STRATEGY = """\
import udpfast

books = udpfast.Books()
with udpfast.Reader("ring:deribit", image=True, name="strategy", timeout=60) as reader:
    for record in reader:
        books.apply(record)
"""
LISTEN = "127.0.0.1:29818"
WIDE, TALL, PHONE = 1200, 1160, 390
#: The picture ends below the charts and the book beside them; text follows there.
CHARTS_END = "return document.querySelector('.charts').getBoundingClientRect().bottom + 16 | 0"
WATCHED_S = 20.0
#: How long to wait for the page: on a busy machine it may take a while to answer.
PATIENCE_S = 60.0


@contextmanager
def started(*command: str) -> Iterator[None]:
    """Run Python with these arguments in a second process while the context lasts."""
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def draw_terminal(folder: Path) -> None:
    """Draw the page of a feed as `udpfast top` shows it in a terminal."""
    from udpfast.cli.top_app import TopApp

    async def look() -> None:
        app = TopApp(interval_s=1.0)
        async with app.run_test(size=(96, 36)) as pilot:
            await pilot.pause(3.0)
            await pilot.press("enter")
            await pilot.pause(2.0)
            drawn = app.export_screenshot(title="udpfast top")
        # The picture would load a font from the network; readers have one of the same width.
        drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
        (folder / "top.svg").write_text(re.sub(r"[ \t]+$", "", drawn, flags=re.MULTILINE))

    asyncio.run(look())


def wait_for(address: str) -> None:
    """Wait until somebody listens at an address."""
    host, _, port = address.rpartition(":")
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection((host, int(port)), 1.0).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
        else:
            return


def size(driver: Any, width: int, height: int = TALL) -> None:
    """Set the size of the window in pixels."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width == PHONE},
    )


def show(driver: Any, address: str, width: int) -> None:
    """Show an address in a window that is `width` pixels wide."""
    size(driver, width)
    driver.get(address)


def draw(driver: Any, path: Path, seconds: float) -> None:
    """Write a picture of the window after some seconds, no larger than pages show it."""
    time.sleep(seconds)
    with Image.open(io.BytesIO(driver.get_screenshot_as_png())) as picture:
        picture.thumbnail((SIZE_MAX, SIZE_MAX))
        picture.save(path)


def show_book(driver: Any) -> int:
    """Choose the first book of the page; return how many levels are shown."""
    driver.find_element("css selector", ".charts .q-select").click()
    time.sleep(2.0)
    driver.find_element("css selector", ".q-menu .q-item").click()
    time.sleep(3.0)
    return len(driver.find_elements("css selector", ".charts tbody tr"))


def draw_feed(folder: Path, temporary: Path) -> None:
    """Draw the pages of a running feed."""
    os.environ["UDPFAST_SHM"] = str(temporary / "shm")
    settings = temporary / "feed.toml"
    settings.write_text(FEED)
    udpfast = ("-m", "udpfast")
    with started(*udpfast, "run", str(settings)), started(*udpfast, *SEND.split()):
        time.sleep(2.0)
        monitor = started(*udpfast, "monitor", "--listen", LISTEN, "--interval", "1")
        with started("-c", STRATEGY), monitor, browser(temporary / "chromium") as driver:
            draw_terminal(folder)
            wait_for(LISTEN)
            show(driver, f"http://{LISTEN}", WIDE)
            time.sleep(2.0)
            show_book(driver)
            size(driver, WIDE, driver.execute_script(CHARTS_END))
            draw(driver, folder / "monitor.png", WATCHED_S)
            show(driver, f"http://{LISTEN}", PHONE)
            draw(driver, folder / "monitor_phone.png", 4.0)


def draw_report(folder: Path, temporary: Path) -> None:
    """Draw the beginning of the report that the demonstration makes."""
    command = [sys.executable, "-m", "udpfast", "demo", "--report", "demo"]
    subprocess.run(command, cwd=temporary, check=True, stdout=subprocess.DEVNULL)
    (report,) = (temporary / "demo").rglob("report.html")
    with browser(temporary / "chromium") as driver:
        show(driver, report.as_uri(), WIDE)
        draw(driver, folder / "report.png", 2.0)


def main() -> int:
    """Draw all pictures."""
    summary, _, more = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="directory of the pictures")
    folder: Path = parser.parse_args().folder.resolve()
    if not is_there():
        print(f"udpfast: {MISSING}")
        return 1
    with tempfile.TemporaryDirectory(prefix="udpfast-") as temporary:
        draw_feed(folder, Path(temporary))
        draw_report(folder, Path(temporary))
    return 0


if __name__ == "__main__":
    sys.exit(main())
