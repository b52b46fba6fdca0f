"""Measure what the page of `udpfast monitor` costs, unwatched and with a browser.

    python scripts/monitor_cost.py --feeds 1 4
    python scripts/monitor_cost.py --loop

The given number of feeds run on loopback, each with two lines, a simulated market and a strategy;
then the page, which Chromium (Debian: `apt-get install chromium chromium-driver`) shows. Measured
is the processor time of the page's process from /proc: without a browser, with one, and with one
that shows a book. The cost does not grow while a browser watches, because it is sent only changes.
`--loop` shows instead that a feed's loop does nothing for the page: it counts the system calls of
its thread (strace) and its context switches, without the page and with one that shows a book.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from chromium import MISSING, browser, is_there
from make_pictures import show_book, started

FEED = """\
name = "feed{number}"

[[incremental.lines]]
name = "microwave"
address = "127.0.0.1:{port}1"

[[incremental.lines]]
name = "fibre"
address = "127.0.0.1:{port}2"

[[snapshot.lines]]
name = "snapshots"
address = "127.0.0.1:{port}3"

[image]
enabled = true

[agent]
idle = "sleep"
"""
STRATEGY = """\
import sys, udpfast

books = udpfast.Books()
with udpfast.Reader(f"ring:{sys.argv[1]}", image=True, name="strategy", timeout=600) as reader:
    while True:
        books.apply_batch(reader.poll(4096, timeout=1.0))
"""
LISTEN = "127.0.0.1:29819"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def processor_s(pid: int) -> float:
    """Return the processor time of a process in seconds."""
    # The fields after the name, which may have blanks: state, 10 others, user and system time.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def part_of_core(pid: int, seconds: float) -> float:
    """Return the share of a core that a process uses over some seconds, in percent."""
    before_s, began_s = processor_s(pid), time.monotonic()
    time.sleep(seconds)
    return 100 * (processor_s(pid) - before_s) / (time.monotonic() - began_s)


def start_feed(stack: contextlib.ExitStack, number: int, folder: Path, seconds: float) -> None:
    """Start one feed, its publisher and a strategy."""
    port = 2910 + number
    path = folder / f"feed{number}.toml"
    path.write_text(FEED.format(number=number, port=port))
    udpfast = ("-m", "udpfast")
    stack.enter_context(started(*udpfast, "run", str(path)))
    send = f"send --simulate --seed {number} --seconds {seconds} --loss 0.01 --skew-us 200"
    incremental = f"127.0.0.1:{port}1,127.0.0.1:{port}2"
    where = ("--incremental", incremental, "--snapshot", f"127.0.0.1:{port}3")
    stack.enter_context(started(*udpfast, *send.split(), *where))
    time.sleep(1.0)
    stack.enter_context(started("-c", STRATEGY, f"feed{number}"))


def loop_thread() -> int:
    """Wait for the loop of the first feed; return the id of its thread."""
    while True:
        for path in Path("/proc").glob("[0-9]*/task/[0-9]*/comm"):
            with contextlib.suppress(OSError):
                if path.read_text().strip() == "udpfast feed0":
                    return int(path.parent.name)
        time.sleep(0.1)


def say_loop(thread: int, what: str, seconds: float) -> None:
    """Print the system calls and context switches of a thread during some seconds."""

    def switched() -> int:
        lines = Path(f"/proc/{thread}/status").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)

    before = switched()
    time.sleep(seconds)
    switches = switched() - before
    with tempfile.NamedTemporaryFile("r") as table:
        command = ["strace", "-c", "-U", "name,calls", "-o", table.name, "-p", str(thread)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as tracing:
            time.sleep(seconds)
            tracing.terminate()
        rows = [line.split() for line in table.read().splitlines()]
    left_out = ("total", "restart_syscall")  # the sum, and strace's own interruption
    own = [row for row in rows if len(row) == 2 and row[1].isdigit() and row[0] not in left_out]
    calls = sorted(f"{name} {int(count):,}" for name, count in own)
    print(f"{what}: {switches:,} context switches; calls: {', '.join(calls)}", flush=True)


def measure_loop(seconds: float) -> None:
    """Print the system calls of a feed's loop without the page and with it."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ["UDPFAST_SHM"] = str(folder / "shm")
        start_feed(stack, 0, folder, 8 * seconds + 60)
        thread = loop_thread()
        say_loop(thread, "without the page", seconds)
        with started_page():
            driver = stack.enter_context(browser(folder / "chromium"))
            driver.get(f"http://{LISTEN}")
            time.sleep(5.0)
            show_book(driver)
            say_loop(thread, "with a book shown", seconds)
        say_loop(thread, "without the page", seconds)


@contextlib.contextmanager
def started_page() -> Iterator[subprocess.Popen[bytes]]:
    """Start the page, and end it."""
    command = [sys.executable, "-m", "udpfast", "monitor", "--listen", LISTEN]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as page:
        assert page.stdout is not None
        page.stdout.readline()  # its address: it answers
        time.sleep(2.0)
        yield page
        page.terminate()


def measure(feeds: int, seconds: float) -> None:
    """Measure a number of feeds, and print one line."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ["UDPFAST_SHM"] = str(folder / "shm")
        for number in range(feeds):
            start_feed(stack, number, folder, 4 * seconds + 60)
        with started_page() as page:
            alone = part_of_core(page.pid, seconds)
            driver = stack.enter_context(browser(folder / "chromium"))
            driver.get(f"http://{LISTEN}")
            time.sleep(5.0)
            watched = part_of_core(page.pid, seconds)
            levels = show_book(driver)
            with_book = part_of_core(page.pid, seconds)
    print(
        f"{feeds} feeds: of a core, {alone:.2f} % unwatched, {watched:.2f} % watched, "
        f"{with_book:.2f} % with a book ({levels} levels shown)",
        flush=True,
    )


def main() -> int:
    """Measure each of the given numbers of feeds."""
    summary, _, more = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--feeds", type=int, nargs="+", default=[1, 4], metavar="COUNT")
    parser.add_argument("--seconds", type=float, default=60.0, help="timed, each")
    parser.add_argument("--loop", action="store_true", help="what a feed's loop does for the page")
    options = parser.parse_args()
    if options.loop:
        measure_loop(min(options.seconds, 10.0))
        return 0
    if not is_there():
        print(f"udpfast: {MISSING}")
        return 1
    for feeds in options.feeds:
        measure(feeds, options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
