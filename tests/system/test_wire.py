"""`udpfast wire` as two processes in two network namespaces, by two real interfaces each."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.namespaces import Wire, run
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.system

UDPFAST = [sys.executable, "-m", "udpfast", "wire"]
LINES = "microwave=va@10.99.0.2,fibre=wa@10.98.0.2"
QUICK = ["--idle", "sleep", "--json"]


@pytest.fixture(scope="module")
def lines(link: Wire) -> Wire:
    """Return the wire with a second line beside it: `wa` (10.98.0.1) and `wb` (10.98.0.2)."""
    run("ip", "link", "add", "wa", "netns", link.a, "type", "veth",
        "peer", "name", "wb", "netns", link.b)  # fmt: skip
    for number, (each, end) in enumerate(((link.a, "wa"), (link.b, "wb")), 1):
        run("ip", "-n", each, "addr", "add", f"10.98.0.{number}/24", "dev", end)
        run("ip", "-n", each, "link", "set", end, "up")
    return link


@pytest.fixture
def listener(lines: Wire) -> Iterator["subprocess.Popen[str]"]:
    """Return a listener at the b side, for one session."""
    with lines.inside(lines.b):
        process = subprocess.Popen(
            [*UDPFAST, "listen", "--sessions", "1", *QUICK],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    yield process
    process.kill()
    process.communicate()


def send(lines: Wire, *options: str) -> "subprocess.Popen[str]":
    with lines.inside(lines.a):
        return subprocess.Popen(
            [*UDPFAST, "send", "10.99.0.2", "--wait", str(PATIENCE_S), *QUICK, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def result(process: "subprocess.Popen[str]") -> dict:  # type: ignore[type-arg]
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    found = json.loads(output)
    assert isinstance(found, dict)
    return found


def sent_by(lines: Wire, interface: str) -> int:
    shown = run("ip", "netns", "exec", lines.a, "cat", "/proc/net/dev")
    _, _, counts = shown.partition(f"{interface}:")
    return int(counts.split()[9])


def test_two_lines_are_measured_each_by_its_interface(
    lines: Wire, listener: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    before = {name: sent_by(lines, name) for name in ("va", "wa")}
    page, arrays = tmp_path / "page.html", tmp_path / "arrays.npz"
    asked = ["--rate", "1000", "--seconds", "1", "--report", str(page), "--arrays", str(arrays)]
    found = result(send(lines, "--lines", LINES, *asked))
    heard = result(listener)
    for name in ("microwave", "fibre"):
        ours, theirs = found["lines"][name], heard["lines"][name]
        assert (ours["sent"], ours["arrived"], ours["returned"]) == (1000, 1000, 1000)
        assert theirs["arrived"] == 1000
        assert ours["stamps"] == {
            "sent": "kernel or NIC",
            "reached": "kernel",
            "returned": "kernel",
        }
        assert ours["out_ns"]["min"] >= 0
    for name, count in before.items():
        assert sent_by(lines, name) - count >= 1000
    # Both namespaces have this host's clock.
    assert found["clocks"]["method"] == "same clock"
    assert page.stat().st_size > 100_000
    assert arrays.stat().st_size > 0


def test_thin_line_is_seen_as_thin(lines: Wire, listener: "subprocess.Popen[str]") -> None:
    if shutil.which("tc") is None:
        pytest.skip("no tc of iproute2 in PATH (/usr/sbin)")
    rate_bits, burst, size, train = 8_000_000, 3_000, 1000, 32
    run("tc", "-n", lines.a, "qdisc", "add", "dev", "wa", "root", "tbf", "rate", str(rate_bits),
        "burst", str(burst), "limit", "1000000")  # fmt: skip
    try:
        asked = ["--rate", "320", "--seconds", "1", "--size", str(size), "--train", str(train)]
        found = result(send(lines, "--lines", LINES, *asked))
    finally:
        run("tc", "-n", lines.a, "qdisc", "del", "dev", "wa", "root")
    thin, wide = found["lines"]["fibre"], found["lines"]["microwave"]
    assert thin["arrived"] == wide["arrived"] == 320
    # The last of a train waits for all that do not fit the bucket: no host can make that less.
    wait_ns = ((size + 42) * train - burst) * 8 * 1e9 / rate_bits
    assert thin["round_trip_ns"]["max"] >= wait_ns
    assert thin["queued_ns"]["max"] >= wait_ns


def test_line_that_is_cut_is_lost_alone_and_a_signal_ends_the_run(
    lines: Wire, listener: "subprocess.Popen[str]"
) -> None:
    before = sent_by(lines, "va")
    process = send(lines, "--lines", LINES, "--rate", "500", "--seconds", "600")
    wait_until(lambda: sent_by(lines, "va") > before + 200, "probes")
    run("ip", "-n", lines.b, "link", "set", "wb", "down")
    try:
        cut = sent_by(lines, "va")
        wait_until(lambda: sent_by(lines, "va") > cut + 500, "more probes")
        process.send_signal(signal.SIGINT)
        found = result(process)
    finally:
        run("ip", "-n", lines.b, "link", "set", "wb", "up")
    heard = result(listener)
    whole, broken = found["lines"]["microwave"], found["lines"]["fibre"]
    assert not found["complete"]
    assert whole["lost_out"] == 0
    assert broken["sent"] - broken["arrived"] >= 450
    assert broken["loss_runs"]["longest"] >= 450
    assert found["all_lines"]["lost_out"] == 0
    assert heard["lines"]["microwave"]["arrived"] == whole["arrived"]


def netem(lines: Wire) -> bool:
    """Return whether this kernel has netem."""
    asked = ["tc", "-n", lines.a, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    if shutil.which("tc") is None or subprocess.run(asked, check=False, stderr=-3).returncode:
        return False
    run("tc", "-n", lines.a, "qdisc", "del", "dev", "lo", "root")
    return True


def test_what_netem_does_is_what_is_found(lines: Wire, listener: "subprocess.Popen[str]") -> None:
    if not netem(lines):
        pytest.skip("this kernel has no netem: the faults of tests/probe/test_impaired.py serve")
    loss, twice, delay_ms = 10, 5, 5
    run("tc", "-n", lines.a, "qdisc", "add", "dev", "wa", "root", "netem", "delay",
        f"{delay_ms}ms", "loss", f"{loss}%", "duplicate", f"{twice}%")  # fmt: skip
    try:
        found = result(send(lines, "--lines", LINES, "--rate", "4000", "--seconds", "1"))
    finally:
        run("tc", "-n", lines.a, "qdisc", "del", "dev", "wa", "root")
    bad, good = found["lines"]["fibre"], found["lines"]["microwave"]
    assert good["lost_out"] == 0

    def likely(count: int, percent: float) -> bool:
        # Six standard deviations of a binomial: once in 500 million runs.
        mean = 4000 * percent / 100
        return abs(count - mean) <= 6 * (mean * (1 - percent / 100)) ** 0.5

    assert likely(bad["lost_out"], loss)
    assert likely(bad["out_duplicates"], twice)
    assert bad["round_trip_ns"]["min"] >= delay_ms * 1_000_000
    assert good["round_trip_ns"]["min"] < bad["round_trip_ns"]["min"]


def test_listener_of_one_address_is_found_by_it_alone(lines: Wire) -> None:
    with lines.inside(lines.b):
        process = subprocess.Popen(
            [*UDPFAST, "listen", "10.98.0.2@wb", "--sessions", "1", *QUICK],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    try:
        found = result(send(lines, "--lines", LINES, "--seconds", "0.5"))
        heard = result(process)
    finally:
        process.kill()
    assert found["lines"]["fibre"]["arrived"] == 500
    assert found["lines"]["microwave"]["returned"] == 0
    assert list(heard["lines"]) == ["fibre"]
