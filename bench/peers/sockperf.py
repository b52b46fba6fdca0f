"""sockperf: ping-pong between two C processes over UDP, half of a round trip."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from typing import NamedTuple

__all__ = ["LESS", "PingPong", "ping_pong", "version"]

LESS = "C on both ends; ping-pong, not open loop; no order, no gaps, no ring"
FRAME_SIZE = 16
OBSERVATION = re.compile(
    r"(?:percentile (?P<percent>[\d.]+)|<MAX> observation)\s*=\s*(?P<us>[\d.]+)"
)
COUNT = re.compile(r"Total (\d+) observations")
WRONG = re.compile(r"# (\w+) messages = (\d+)")
NAMES = {50.0: "p50", 90.0: "p90", 99.0: "p99", 99.9: "p99.9"}
START_S = 0.2


class PingPong(NamedTuple):
    """What sockperf printed: ns as in `Row.latency`, and how many round trips it timed."""

    latency: dict[str, float]
    round_trips: int


def version() -> str:
    """Return the installed version, "" if there is none."""
    if shutil.which("sockperf") is None:
        return ""
    shown = subprocess.run(["sockperf", "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"\d+\.\d+(?:[.-]\w+)*", shown.stdout)
    return f"sockperf {match[0]}" if match else "sockperf"


def ping_pong(cores: tuple[int, int], payload: int, seconds: int = 1) -> PingPong:
    """Run client and server, both spinning, each on its core.

    Raises
    ------
    RuntimeError
        As `parse`.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        port = str(sock.getsockname()[1])
    where = ["-i", "127.0.0.1", "-p", port, "--nonblocked"]
    server = subprocess.Popen(
        ["taskset", "-c", str(cores[1]), "sockperf", "server", *where],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        time.sleep(START_S)
        size = ["-m", str(FRAME_SIZE + payload), "-t", str(seconds)]
        client = ["taskset", "-c", str(cores[0]), "sockperf", "ping-pong", *where, *size]
        shown = subprocess.run(client, capture_output=True, text=True, check=False).stdout
    finally:
        server.kill()
        server.wait()
    return parse(shown)


def parse(shown: str) -> PingPong:
    """Read what sockperf prints; its latencies are in microseconds.

    Raises
    ------
    RuntimeError
        It printed none, or messages were dropped, came twice or in another order.
    """
    latency = {}
    for match in OBSERVATION.finditer(shown):
        name = NAMES.get(float(match["percent"])) if match["percent"] else "max"
        if name:
            latency[name] = round(float(match["us"]) * 1e3, 1)
    count = COUNT.search(shown)
    wrong = [name for name, times in WRONG.findall(shown) if int(times)]
    if count is None or len(latency) != len(NAMES) + 1 or wrong:
        raise RuntimeError(
            f"expected latencies of sockperf and nothing {' or '.join(wrong) or 'lost'}, "
            f"found {shown.strip()[-200:]!r}"
        )
    return PingPong(latency | {"count": float(count[1])}, int(count[1]))
