"""What AF_XDP lacks for one feed: `check` says what `run` would, and disturbs nothing."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.namespaces import Wire
from tests.links import linked
from tests.net.xdp_link import attached_program
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.config import FeedConfig, parse_feed
from udpfast.errors import ConfigError
from udpfast.host import Finding
from udpfast.monitor.findings import inspect_feed
from udpfast.net import xdp_open


@pytest.fixture(scope="module")
def link() -> Iterator[Wire]:
    """Return a wire with two queues, its two ends in namespaces of their own."""
    yield from linked(queues=2)


@pytest.fixture(autouse=True)
def instances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep instances below tmp_path."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))


def feed(name: str = "one", port: int = 9101, interface: str = "vb", **xdp: object) -> FeedConfig:
    """Return a feed of a group by AF_XDP."""
    line = {"name": "A", "address": f"239.9.9.1:{port}", "interface": interface}
    return parse_feed(
        {
            "name": name,
            "agent": {"idle": "sleep"},
            "ring": {"capacity_bytes": 1 << 22, "carry": "messages"},
            "receive": {"path": "xdp"},
            "xdp": {"frames": 64, **xdp},
            "incremental": {"lines": [line]},
        }
    )


def judged(link: Wire, config: FeedConfig, name: str) -> Finding:
    """Return the finding of this name of a feed at the b side."""
    with link.inside(link.b):
        found = {each.name: each for each in inspect_feed(config)}
    return found[name]


@pytest.mark.parametrize(
    ("interface", "xdp", "name"),
    [("vb", {"queues": [3]}, "AF_XDP vb"),
     ("vb", {"mode": "native", "zero_copy": "on"}, "AF_XDP vb"),
     ("", {}, "incremental.A 239.9.9.1:9101"), ("nic7", {}, "incremental.A 239.9.9.1:9101")],
)  # fmt: skip
def test_what_run_refuses_is_a_fault_in_its_words(
    link: Wire, interface: str, xdp: dict[str, object], name: str
) -> None:
    config = feed(interface=interface, **xdp)
    finding = judged(link, config, name)
    assert finding.fault and finding.ok is False
    with link.inside(link.b), pytest.raises((ConfigError, OSError)) as refused:
        Subscriber(config).start()
    assert finding.have == str(refused.value).removeprefix("[Errno 95] ")


def test_driver_that_can_is_fine_and_stays_without_a_program(link: Wire) -> None:
    finding = judged(link, feed(mode="native"), "AF_XDP vb")
    assert (finding.ok, finding.have) == (True, "native, frames are copied")
    finding = judged(link, feed(mode="generic"), "AF_XDP vb")
    assert (finding.ok, finding.have) == (True, "generic, frames are copied")
    assert not attached_program(link)


def test_program_of_another_feed_is_a_fault_and_the_feed_s_own_is_none(link: Wire) -> None:
    with ExitStack() as stack:
        with link.inside(link.b):  # the loop's thread begins in this one's namespace
            stack.enter_context(Subscriber(feed()))
        finding = judged(link, feed(), "AF_XDP vb")
        assert finding.ok is None
        assert finding.have == f"a program of the feed, which runs (pid {os.getpid()})"
        finding = judged(link, feed("two", 9102), "AF_XDP vb")
        assert finding.fault and finding.ok is False
        assert "vb, which has another program attached (native)" in finding.have


def test_kernel_that_does_not_tell_of_drivers_judges_only_what_needs_none(
    link: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xdp_open, "ask_driver", lambda _: None)
    assert judged(link, feed(), "AF_XDP vb").ok
    finding = judged(link, feed(mode="native"), "AF_XDP vb")
    assert (finding.ok, finding.reason) == (
        None,
        "this kernel does not tell what the driver can do",
    )
