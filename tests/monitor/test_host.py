"""What is known of a host beside its feeds: faults first, and what needs attention."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from udpfast.agents.feed.subscriber import Subscriber
from udpfast.host import Finding, HostUse
from udpfast.monitor import host
from udpfast.monitor.host import HostFacts, HostFinding, read_host_facts
from udpfast.monitor.journals import DiskStatus, Journals
from udpfast.monitor.paced import Paced
from udpfast.monitor.stores import Stores
from udpfast.monitor.troubles import describe_troubles

FINDINGS = [
    Finding("fine", "1", "1", True, "none"),
    Finding("unjudged", "1", "?", None, "none", reason="no NIC"),
    Finding("slow", "1", "2", False, "costs time"),
    Finding("wrong", "3", "4", False, "ends it", fault=True),
]


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path / "journals"))


@pytest.fixture
def uses(monkeypatch: pytest.MonkeyPatch) -> list[HostUse]:
    """Return what is found of this host each time that it is looked at."""
    found: list[HostUse] = []

    def inspect(use: HostUse) -> list[Finding]:
        found.append(use)
        return FINDINGS

    monkeypatch.setattr(host, "inspect_host", inspect)
    return found


@pytest.fixture
def facts() -> Iterator[HostFacts]:
    """Return a host of which nothing is wrong."""
    found = read_host_facts()
    return msgspec.structs.replace(found, findings=())


def test_findings_that_are_wrong_are_kept_faults_first(uses: list[HostUse]) -> None:
    found = read_host_facts().findings
    assert found == (
        HostFinding("wrong", "3", "4", "ends it", fault=True),
        HostFinding("slow", "1", "2", "costs time", fault=False),
    )


def test_findings_are_read_once_a_minute_however_often_somebody_looks(uses: list[HostUse]) -> None:
    paced = Paced()
    for _ in range(5):
        assert len(read_host_facts(paced=paced).findings) == 2
    assert len(uses) == 1


def test_host_is_judged_by_what_its_feeds_need(uses: list[HostUse], tmp_path: Path) -> None:
    lines = [{"name": "A", "address": "127.0.0.1:0"}]
    names = {"a": {"core": 0}, "b": {}}
    for name, agent in names.items():
        receive = {"rcvbuf_bytes": 1 << (20 if name == "a" else 22), "busy_poll_us": 0}
        settings = {"name": name, "incremental": {"lines": lines}, "receive": receive}
        with Subscriber(settings | {"agent": agent}):
            pass
    places = [tmp_path / "shm" / name for name in (*names, "absent")]
    (tmp_path / "shm" / "absent").mkdir(mode=0o700)
    read_host_facts(places)
    assert (uses[-1].cores, uses[-1].rcvbuf_bytes) == ((0,), 1 << 22)
    (places[0] / "feed.json").write_text("{")
    read_host_facts(places)
    assert uses[-1].cores == ()


def test_host_that_is_well_needs_nobody(facts: HostFacts) -> None:
    assert describe_troubles(facts) == []
    assert facts.stores == Stores({}, {})
    assert facts.losses.rcvbuf_errors >= 0


@pytest.mark.parametrize(
    ("free", "rate", "expected"),
    [
        (100 << 30, 1e6, []),
        (100 << 30, None, []),
        (1 << 30, None, ["0.1 % free"]),
        (36_000_000, 1e4, ["full in 60 min"]),
    ],
)
def test_disk_that_is_full_soon_needs_somebody(
    facts: HostFacts, free: int, rate: float | None, expected: list[str]
) -> None:
    disk = DiskStatus("/journals/x", 1, free, 1 << 40, rate)
    said = describe_troubles(
        msgspec.structs.replace(facts, journals=Journals({}, {"/bad": "damaged"}, (disk,)))
    )
    assert said[-1] == "/bad: damaged"
    assert [text for text in expected if text in said[0]] == expected
    assert len(said) == 1 + len(expected)


def test_faults_come_first(uses: list[HostUse]) -> None:
    assert describe_troubles(read_host_facts()) == ["wrong: 4, want 3"]
