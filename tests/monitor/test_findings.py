"""What of a host is not as one feed wants it."""

import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from udpfast.agents.feed.recorder import bytes_to_begin
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.archive.feed_settings import write_feed
from udpfast.config import FeedConfig, describe, parse_feed
from udpfast.errors import ConfigError
from udpfast.feed.pipeline import WAIT_MAX_US
from udpfast.host import Finding, HostUse
from udpfast.log.segment import segment_file_bytes
from udpfast.monitor import findings
from udpfast.monitor.findings import feed_use, inspect_feed, inspect_together


def feed(address: str = "127.0.0.1:0", **tables: object) -> FeedConfig:
    """Return a feed of one line."""
    lines = {"lines": [{"name": "A", "address": address}]}
    return parse_feed({"name": "test", "incremental": lines} | tables)


def inspect(config: FeedConfig) -> dict[str, Finding]:
    """Return the findings for a feed by name."""
    return {finding.name: finding for finding in inspect_feed(config)}


def test_feed_use_names_core_and_ways_of_receiving() -> None:
    core = min(os.sched_getaffinity(0))
    use = feed_use(
        feed(
            agent={"core": core, "idle": "spin", "fifo_priority": 5},
            receive={"busy_poll_us": 50, "gro": True, "rcvbuf_bytes": 1 << 20},
        )
    )
    assert use == HostUse(cores=(core,), rcvbuf_bytes=1 << 20, busy_poll=True, gro=True, fifo=True)
    assert feed_use(feed(agent={"fifo_priority": 5})).fifo is False


def test_feed_use_loopback_has_no_interface_to_look_at() -> None:
    assert feed_use(feed()).interfaces == ()


@pytest.mark.parametrize(
    ("core", "have", "ok"),
    [
        (None, "unpinned", False),
        (min(os.sched_getaffinity(0)), None, True),
        (999, "999, which this host does not have (0 to ", False),
    ],
)
def test_inspect_feed_core_must_be_one_that_is_allowed(
    core: int | None, have: str | None, ok: bool
) -> None:
    finding = inspect(feed(agent={} if core is None else {"core": core}))["agent.core"]
    assert finding.ok is ok
    assert finding.fault is (core == 999)
    assert finding.have.startswith(have or str(core))


def test_inspect_feed_core_that_is_offline_is_a_fault_of_a_strict_feed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = min(os.sched_getaffinity(0))
    monkeypatch.setattr(findings, "cores_allowed", lambda: [7000])
    for strict in (False, True):
        finding = inspect(feed(agent={"core": core, "strict": strict}))["agent.core"]
        assert (finding.ok, finding.fault) == (False, strict)
        assert finding.have == f"{core}, offline or not of the cpuset: 7000"
        assert finding.effect.startswith("udpfast run refuses") is strict


def test_inspect_feed_lines_that_the_feed_itself_holds_are_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        finding = inspect(feed(address))[f"incremental.A {address}"]
        assert finding.fault and finding.ok is False
        assert finding.have == "the port is taken by another program (ss -lunp)"
    with Subscriber(feed(address)):
        finding = inspect(feed(address))[f"incremental.A {address}"]
        assert finding.ok is None and finding.have == f"of the feed, which runs (pid {os.getpid()})"
        finding = inspect(feed(address, name="other"))[f"incremental.A {address}"]
        assert finding.fault and finding.ok is False


def test_inspect_feed_says_whose_stamps_are_wanted() -> None:
    lines = {"lines": [{"name": "A", "address": "127.0.0.1:0", "interface": "lo"}]}
    found = inspect(feed(incremental=lines))
    (finding,) = [each for name, each in found.items() if name.endswith("SO_TIMESTAMPING")]
    assert (finding.want, finding.have, finding.ok) == ("NIC", "kernel", False)


def test_inspect_feed_journal_must_be_its_own_and_within_its_limit(tmp_path: Path) -> None:
    table = {"enabled": True, "directory": str(tmp_path / "journal"), "keep_bytes": 1 << 26}
    (tmp_path / "journal" / "raw").mkdir(parents=True)
    write_feed(feed(name="first"), tmp_path / "journal" / "raw")
    finding = inspect(feed(name="second", record=table))["record.directory"]
    assert finding.ok is False and finding.fault and finding.have.endswith("of the feed first")
    found = inspect(feed(name="first", record=table))
    assert found["record.directory"].ok and found["record.keep_bytes"].ok
    (tmp_path / "journal" / "1.segment").write_bytes(bytes(1 << 26))
    found = inspect(feed(name="first", record={**table, "segment_bytes": 1 << 20}))
    assert found["record.keep_bytes"].ok is False and not found["record.keep_bytes"].fault


@pytest.mark.parametrize(("full", "segments"), [("stop", 4), ("drop", 2)])
def test_inspect_feed_journal_must_have_room_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str, segments: int
) -> None:
    table = {"enabled": True, "directory": str(tmp_path / "journal"), "segment_bytes": 1 << 22}
    config = feed(record={**table, "full": full, "what": "both"})
    need = bytes_to_begin(config.record, config.ring.names)
    assert 0 < need - segments * segment_file_bytes(1 << 22) < 16 << 20  # the names
    disk = os.statvfs(tmp_path)
    for free, ok in ((need - 1, False), (need, True)):
        fields = SimpleNamespace(f_bavail=free, f_frsize=1, f_blocks=disk.f_blocks)
        monkeypatch.setattr(findings.os, "statvfs", lambda _, fields=fields: fields)
        finding = inspect(config)["record room"]
        assert (finding.ok, finding.fault) == (ok, True)
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "00000001.segment").touch()
    assert "record room" not in inspect(config)


def test_inspect_together_names_what_only_one_feed_can_have(tmp_path: Path) -> None:
    table = {"enabled": True, "directory": str(tmp_path)}
    one = feed("127.0.0.1:9001", name="one", record=table)
    group = feed("239.1.1.1:9001", name="one")
    assert inspect_together({"one": one, "two": feed("127.0.0.1:9002", name="two")}) == []
    assert inspect_together({"one": group, "two": feed("239.1.1.1:9001", name="two")}) == []
    address, journal = inspect_together({"one": one, "two": one})
    of_both = "127.0.0.1:9001 of one incremental.A and two incremental.A"
    assert address.fault and address.have == of_both
    assert journal.fault and journal.have == f"{tmp_path} of one and two"


def test_inspect_feed_directory_must_be_one_that_can_be_made(tmp_path: Path) -> None:
    assert "record.directory" not in inspect(feed())
    (tmp_path / "file").touch()
    for directory, ok in ((tmp_path / "new" / "deep", True), (tmp_path / "file" / "deep", False)):
        table = {"enabled": True, "directory": str(directory)}
        finding = inspect(feed(record=table))["record.directory"]
        assert finding.ok is ok and str(tmp_path) in finding.have


@pytest.mark.parametrize(
    ("mode", "text", "ok", "said"),
    [
        (0o600, 'user = "u"\npassword = "p"', True, "login"),
        (0o600, None, False, "No such file"),
        (0o644, 'user = "u"\npassword = "hidden"', False, "only its owner"),
        (0o600, 'user = "u"\npass = "hidden"', False, "expected user and password, found pass"),
        (0o600, 'user = "u"\npassword = "hidden-and-long"', False, "at most 10 characters"),
        (0o600, '"hidden" hidden', False, "expected TOML"),
    ],
)
def test_inspect_feed_login_must_be_a_file_that_its_server_can_be_told(
    tmp_path: Path, mode: int, text: str | None, ok: bool, said: str
) -> None:
    path = tmp_path / "login"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    served = parse_feed(
        {
            "name": "test",
            "wire": {"framing": "moldudp64", "payload": "itch"},
            "streams": {"lines": [{"name": "A", "address": "127.0.0.1:0"}]},
            "retransmission": {"server": "127.0.0.1:9"},
            "snapshot_server": {"server": "127.0.0.1:9", "login": str(path)},
        }
    )
    found = inspect(served)
    assert found["retransmission.login"].ok  # it has none, and needs none
    finding = found["snapshot_server.login"]
    assert (finding.ok, finding.fault) == (ok, True)
    assert said in finding.have
    assert "hidden" not in finding.have


def two_lines(**tables: object) -> FeedConfig:
    """Return a feed of two lines."""
    lines = [{"name": name, "address": "127.0.0.1:0"} for name in "AB"]
    return parse_feed({"name": "test", "incremental": {"lines": lines}} | tables)


def counted(monkeypatch: pytest.MonkeyPatch, late: int, full: int, wait_us: int = 5_000) -> None:
    """Let a feed of two lines have counted this."""
    counters = {
        "incremental": {"gaps_window_full": full, "wait_ns": wait_us * 1_000},
        "incremental.A": {"late": 0},
        "incremental.B": {"late": late},
    }
    monkeypatch.setattr(findings, "instance_directory", Path)
    monkeypatch.setattr(findings, "read_counters", lambda directory: (counters, {}, 0))


@pytest.mark.parametrize(("late", "full"), [(0, 0), (244, 0), (0, 7)])
def test_inspect_feed_lines_of_different_lag_need_wait_and_room(
    monkeypatch: pytest.MonkeyPatch, late: int, full: int
) -> None:
    counted(monkeypatch, late, full)
    found = inspect(two_lines())
    wait, room = found["incremental lost_packet_wait_us"], found["incremental window.size"]
    assert (wait.ok, room.ok) == (late == 0, full == 0)
    assert '"auto"' in wait.want
    assert f"{late} datagrams" in wait.have
    assert not wait.fault


@pytest.mark.parametrize(
    ("wait_us", "wanted"),
    [(37_500, "knows the skew"), (WAIT_MAX_US, f"{WAIT_MAX_US:,} us at most")],
)
def test_inspect_feed_that_learns_its_wait_says_what_else_helps(
    monkeypatch: pytest.MonkeyPatch, wait_us: int, wanted: str
) -> None:
    counted(monkeypatch, 7, 0, wait_us)
    wait = inspect(two_lines(window={"lost_packet_wait_us": "auto"}))[
        "incremental lost_packet_wait_us"
    ]
    assert not wait.ok
    assert wait.have == f"auto (waits for {wait_us:,} us now), 7 datagrams came too late"
    assert wanted in wait.want
    assert "a number" in wait.want


def test_key_of_the_wait_says_how_long_auto_waits() -> None:
    reasons = {each.key: each.reason for each in describe(feed())}
    assert f" to {WAIT_MAX_US}" in reasons["window.lost_packet_wait_us"]


def test_inspect_feed_that_never_ran_does_not_judge_the_wait() -> None:
    found = inspect(two_lines(window={"lost_packet_wait_us": "auto"}))
    wait = found["incremental lost_packet_wait_us"]
    assert wait.ok is None
    assert wait.reason
    assert wait.have.startswith("auto")


def test_inspect_feed_names_the_wait_of_a_venue_as_its_file_does() -> None:
    lines = {"lines": [{"name": name, "address": "127.0.0.1:0"} for name in "AB"]}
    found = inspect(parse_feed({"name": "x", "wire": {"framing": "iex_tp"}, "streams": lines}))
    assert {"streams lost_packet_wait_us", "streams window.size"} <= found.keys()


def test_inspect_feed_one_line_waits_for_no_other() -> None:
    assert "incremental lost_packet_wait_us" not in inspect(feed())


def test_line_of_an_interface_that_is_not_there_is_a_fault_of_that_line() -> None:
    lines = {"lines": [{"name": "A", "address": "127.0.0.1:0", "interface": "nosuch0"}]}
    found = inspect(parse_feed({"name": "test", "incremental": lines}))
    finding = found["incremental.A 127.0.0.1:0"]
    assert (finding.ok, finding.fault) == (False, True)
    assert "interface of this host" in finding.have


def faults(config: FeedConfig) -> dict[str, str]:
    """Return what keeps a feed from running: what was found, by name; ports are not chosen."""
    found = inspect(config).values()
    wrong = {each.name: each.have for each in found if each.fault and each.ok is False}
    return {name: have for name, have in wrong.items() if not name.endswith("127.0.0.1:0")}


def test_inspect_feed_port_is_one_that_can_be_sent_to() -> None:
    found = [each for each in inspect_feed(feed()) if each.name == "incremental.A 127.0.0.1:0"]
    assert found[0].fault and found[0].have == "0: the kernel chooses another one at each start"


def test_inspect_feed_core_of_an_agent_is_refused_as_run_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    config = feed(image={"enabled": True, "core": 8000})
    assert faults(config)["image.core"].startswith("8000, which this host does not have")
    with pytest.raises(ConfigError, match=r"image.core: expected a core of this host"):
        Subscriber(config).start()
    assert faults(feed(image={"enabled": False, "core": 8000})) == {}


def test_inspect_feed_group_must_be_one_that_files_can_be_given_to() -> None:
    missing = "access.group: expected a group, found 'no_such_group'"
    assert faults(feed(access={"group": "no_such_group"})) == {"access.group": missing}
    assert faults(feed(access={"group": str(os.getgid())})) == {}


def test_inspect_feed_instances_must_have_a_safe_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "shm"
    monkeypatch.setenv("UDPFAST_SHM", str(root))
    assert faults(feed()) == {}
    assert not root.exists()
    root.mkdir(mode=0o777)
    root.chmod(0o1777)
    assert "that only its owner may write" in faults(feed())["instance"]
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "none" / "shm"))
    assert "No such file or directory" in faults(feed())["instance"]


def test_inspect_feed_agents_must_be_able_to_open_what_they_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    line = {"name": "far", "incremental": "239.1.1.1:7001", "interface": "none0"}
    assert "none0" in faults(feed(relay={"enabled": True, "lines": [line]}))["agent relay"]
    local = tmp_path / "zmq"
    local.touch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        config = feed(zmq={"enabled": True, "addresses": ["ipc", f"ipc://{local}", address]})
        assert "Address already in use" in faults(config)["agent zmq"]
    assert faults(config) == {}
    assert [each.name for each in tmp_path.iterdir()] == ["zmq"]  # a socket of another's is left
    with Subscriber(config):
        finding = inspect(config)["agent zmq"]
        assert finding.ok is None and finding.have == f"of the feed, which runs (pid {os.getpid()})"


def test_inspect_feed_store_must_have_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config = feed(output="store", store={"directory": str(tmp_path / "file" / "store")})
    assert "store.directory" in faults(config)


def test_inspect_feed_strict_feed_must_be_granted_what_it_asks_for() -> None:
    config = feed(agent={"strict": True, "idle": "spin", "fifo_priority": 5})
    finding = inspect(config)["agent.fifo_priority"]
    assert finding.fault and finding.want == "SCHED_FIFO 5"
    assert "agent.fifo_priority" not in inspect(feed(agent={"fifo_priority": 5}))
