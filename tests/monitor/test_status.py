"""What is known of instances: live, dead, and such as nobody can read."""

import json
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from udpfast.agents.feed.subscriber import Subscriber
from udpfast.cli.main import cli
from udpfast.client.reader import Reader
from udpfast.core.layout import Kind
from udpfast.errors import ConfigError
from udpfast.log.readers import ReaderInfo
from udpfast.log.ring import Ring
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.monitor.output import OutputFacts
from udpfast.monitor.status import InstanceStatus, _readers, read_host, read_status
from udpfast.shm.lock import open_existing


def feed(name: str, **line: str) -> Subscriber:
    """Return a feed of one line that nothing is sent to."""
    lines = [{"name": "A", "address": "127.0.0.1:0", **line}]
    return Subscriber({"name": name, "incremental": {"lines": lines}})


def test_read_host_has_every_instance_live_or_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    assert read_host().instances == {}
    with feed("dead"):
        pass
    (tmp_path / "nothing").mkdir(mode=0o700)
    (tmp_path / "nothing" / "lock").touch()
    with (
        pytest.raises(ConfigError, match=r"^incremental\.A .*interface"),
        feed("refused", interface="nosuch0"),
    ):
        pass
    assert [path.name for path in (tmp_path / "refused").iterdir()] == ["readers"]
    (tmp_path / "replay").mkdir(mode=0o700)
    Ring.create(tmp_path / "replay", 1 << 20, PAYLOAD_HASH).close()
    with feed("live"):
        host = read_host()
        assert set(host.instances) == {"dead", "live"}
        assert (host.instances["dead"].state, host.instances["live"].state) == ("closed", "open")
        assert set(host.unreadable) == {"nothing", "replay"}
        assert host.instances["live"].directory == read_status("live").directory


@pytest.mark.parametrize("looks", range(6))
def test_feed_that_ends_in_good_order_while_it_is_looked_at_is_not_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    left = looks
    with ExitStack() as running:
        running.enter_context(feed("late"))

        def end_behind_some(path: Path, flags: int) -> int:
            nonlocal left
            if left == 0:
                running.close()
            left -= 1
            return open_existing(path, flags)

        monkeypatch.setattr("udpfast.shm.region.open_existing", end_behind_some)
        assert read_status("late").life in ("running", "stopped")


def test_damaged_roster_hides_no_other_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    for name in ("damaged", "sound"):
        with feed(name):
            pass
    with (tmp_path / "damaged" / "roster").open("r+b") as file:
        file.seek(4096 + 16)
        file.write((99).to_bytes(4, "little"))
    host = read_host()
    assert set(host.instances) == {"sound"}
    assert "expected states of agents" in host.unreadable["damaged"]


def test_reader_that_the_ring_has_left_behind_is_lapped_before_it_polls_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    with feed("slow"):
        pass
    with Ring.create(tmp_path / "slow", 1 << 16, PAYLOAD_HASH) as ring, Reader("ring:slow") as slow:
        for _ in range(10):
            ring.append(Kind.MESSAGE, bytes(100))
        assert len(slow.poll(timeout=0)) == 10
        slow.poll(timeout=0)  # says how far it is
        for turn in range(2):
            for _ in range(2_000):
                ring.append(Kind.MESSAGE, bytes(100))
            ring.flush()
            (reader,) = read_status("slow").readers
            assert reader.lapped > 1_000 * (1 + turn)
            assert reader.lapped + reader.lag == 2_000 * (1 + turn)
        assert f"missed {reader.lapped:,}" in CliRunner().invoke(cli, ["stat", "slow"]).output
        slow.poll(timeout=0)
        slow.poll(timeout=0)
        (after,) = read_status("slow").readers
        assert after.lapped >= reader.lapped


@pytest.mark.parametrize(("capacity", "lag_bytes"), [(0, 900), (500, 500), (1_000, 900)])
def test_lag_in_bytes_is_all_of_a_store_and_what_a_ring_still_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capacity: int, lag_bytes: int
) -> None:
    monkeypatch.setattr("udpfast.monitor.status.find_overwritten", lambda *_: 0)
    kind = "ring" if capacity else "store"
    output = OutputFacts(1, True, "open", 0, 1, 9, 1_000, tmp_path, kind, capacity=capacity)
    behind = ReaderInfo(1, "slow", 100, 1, 0, 0, True, 1, 0)
    (reader,) = _readers(tmp_path, [behind], output)
    assert (reader.lag, reader.lag_bytes) == (8, lag_bytes)


def test_read_status_is_frozen_and_goes_into_json_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    with feed("dead"):
        pass
    status = read_status("dead")
    with pytest.raises(AttributeError):
        status.alive = False  # type: ignore[misc]
    text = json.dumps(msgspec.to_builtins(status))
    assert msgspec.json.decode(text, type=InstanceStatus) == status
    assert status.ledger.adds_up and status.agents[0].name == "feed"
