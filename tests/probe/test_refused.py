"""Probes that the sender's own kernel refuses: they never left, so no line has lost them."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from bench.namespaces import Wire, run
from tests.links import linked
from tests.waiting import wait_until
from udpfast.cli.wire_metrics import sender_families
from udpfast.probe import Receiver, Result, Sender


@pytest.fixture
def link() -> Iterator[Wire]:
    """Return a wire of each test's own: its routes are changed."""
    yield from linked()


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        ("unreachable", "No route to host"),
        ("prohibit", "Permission denied"),
        ("blackhole", "Invalid argument"),
    ],
)
def test_probes_without_a_route_are_unsent_and_not_lost(
    link: Wire, refusal: str, reason: str
) -> None:
    with link.inside(link.b):
        receiver = Receiver(["10.99.0.2:7007"], spin=False)
    with receiver, link.inside(link.a):
        sender = Sender({"A": "10.99.0.2:7007"}, rate_per_s=500, seconds=2, spin=False)
        with sender:
            sender.connect()
            found: list[Result] = []
            thread = threading.Thread(target=lambda: found.append(sender.run()))
            thread.start()
            wait_until(lambda: sender.live()["A"]["echoes"] > 100)
            route = ("ip", "-n", link.a, "route")
            run(*route, "add", refusal, "10.99.0.2/32")
            wait_until(lambda: sender.live()["A"]["unsent"] > 100)
            run(*route, "del", refusal, "10.99.0.2/32")
            thread.join()
            families = sender_families(sender)
    (line,) = found[0].lines.values()
    unsent = line.counts["unsent"]
    assert unsent is not None and unsent > 100
    assert line.unsent_reasons == {reason: unsent}
    assert int(line.sent.sum()) + unsent == len(line.sent) == 1000
    assert not (line.arrived & ~line.sent).any() and not np.isfinite(line.late_ns[~line.sent]).any()
    assert int(line.lost.sum()) == 0
    (sample,) = families.made["udpfast_wire_probes_refused"].samples
    assert sample.labels["reason"] == reason and sample.value == unsent
