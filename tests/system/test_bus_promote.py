"""What `bus promote` reports stays true: real daemons that are stopped, killed and started."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases import nightly
from tests.system.test_bus_begin import Hosts
from tests.waiting import wait_until

pytestmark = pytest.mark.system

WISH = "bus.promote"


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    """Return hosts where S writes, and one has a complete copy."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    made = Hosts(tmp_path)
    # A composite would have its turns, too, and nobody looks at it.
    made.file.write_text(made.file.read_text().partition("[composites")[0])
    for host in ("S", "one"):
        made.start(host)
    try:
        made.until("one", "end", bool)
        yield made
    finally:
        made.close()


def promote(hosts: Hosts, host: str, wait: object) -> tuple[int, str]:
    done = hosts.bus("promote", str(hosts.file), "orders", "--host", host, "--wait", str(wait),
                     "--directory", str(hosts.folder / host))  # fmt: skip
    return done.returncode, done.stderr


def writers(hosts: Hosts) -> list[str]:
    return [host for host in ("S", "one") if hosts.state(host)["writer"]]


def first_epoch(hosts: Hosts) -> str:
    """Wait until S reports the epoch that it writes, and return it; early reports have none."""
    hosts.until("S", "epoch", lambda epoch: epoch not in {None, "0"})
    return str(hosts.state("S")["epoch"])


def test_promotion_of_a_host_whose_daemon_was_killed_is_withdrawn(hosts: Hosts) -> None:
    epoch = first_epoch(hosts)
    hosts.kill("one")
    code, said = promote(hosts, "one", 0.5)  # for a second the daemon still seems to live
    assert code == 1
    assert "within 0.5 s: nothing was changed" in said
    assert not (hosts.path("one") / WISH).exists()
    hosts.start("one")
    hosts.until("one", "following", bool)
    assert writers(hosts) == ["S"]
    assert hosts.state("S")["epoch"] == epoch


def test_promotion_that_a_stopped_daemon_did_not_take_is_withdrawn(hosts: Hosts) -> None:
    epoch = first_epoch(hosts)
    hosts.daemons["one"].send_signal(signal.SIGSTOP)
    code, said = promote(hosts, "one", 1.5)
    assert (code, "the daemon of one stands still (its process" in said) == (1, True), said
    hosts.daemons["one"].send_signal(signal.SIGCONT)
    hosts.send("one", 10)
    assert writers(hosts) == ["S"]
    assert hosts.state("S")["epoch"] == epoch


def test_wish_of_before_is_not_carried_out_by_a_daemon_that_starts(hosts: Hosts) -> None:
    hosts.kill("one")
    (hosts.path("one") / WISH).touch()
    hosts.start("one")
    log = hosts.folder / "one.log"
    wait_until(lambda: "ignored a request from before this start" in log.read_text())
    hosts.send("one", 10)
    assert writers(hosts) == ["S"]
    assert not (hosts.path("one") / WISH).exists()


def test_promotion_that_goes_on_is_said_to(hosts: Hosts) -> None:
    hosts.daemons["S"].send_signal(signal.SIGSTOP)  # the promotion asks it for 2 s
    code, said = promote(hosts, "one", 1)
    assert (code, "one is still at it after 1 s: `udpfast bus stat`" in said) == (3, True), said
    hosts.until("one", "writer", bool)
    assert hosts.state("one")["outcome"][1:] == ["S could not be reached"]
    hosts.daemons["S"].send_signal(signal.SIGCONT)
    wait_until(lambda: writers(hosts) == ["one"])


def test_promotion_that_is_done_or_refused_is_said_by_its_exit_code(hosts: Hosts) -> None:
    assert promote(hosts, "one", 20) == (0, "")
    assert promote(hosts, "S", 20) == (0, "")
    wait_until(lambda: writers(hosts) == ["S"])


@pytest.mark.parametrize("wait", ["nan", *nightly("-1", "inf")])
def test_wait_that_is_no_time_is_refused(wait: str, tmp_path: Path) -> None:
    hosts = Hosts(tmp_path)
    assert promote(hosts, "one", wait)[0] == 2
    assert not list(tmp_path.rglob(WISH))
