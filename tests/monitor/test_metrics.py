"""What Prometheus is told: every counter, with help and units by its conventions, and no more."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tests.agents.test_bus_host import running
from tests.agents.test_bus_host import settings as bus_settings
from tests.shared import ROOT
from tests.waiting import wait_until
from udpfast import Reader
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.archive.groups import GroupFeed, GroupFile
from udpfast.cli.main import cli
from udpfast.client.app import App
from udpfast.client.latency import Hop
from udpfast.core.counter import CHANNEL_COUNTERS, FEED_COUNTERS, LINE_COUNTERS, VERDICTS
from udpfast.host import Finding
from udpfast.monitor import host
from udpfast.monitor.families import BOUNDS_NS
from udpfast.monitor.metrics import metrics_text
from udpfast.monitor.objects import REASONS, ObjectStates
from udpfast.monitor.status import read_status
from udpfast.net.ports import free_port
from udpfast.shm.answers import AnswersRegion
from udpfast.shm.histogram import LatencyHistogram
from udpfast.shm.instance import instance_directory
from udpfast.shm.relay_counts import RelayCounts

parser = pytest.importorskip("prometheus_client.openmetrics.parser")

RULES = ROOT / "packaging" / "prometheus" / "udpfast.rules.yml"
#: Pages that name metrics of feeds and buses.
PAGES = ("operating", "runbook", "relay", "venues", "glossary")
ELSEWHERE = ("udpfast_address_datagrams_total", "udpfast_replay_up")
DASHBOARD = ROOT / "packaging" / "grafana" / "udpfast.json"


@pytest.fixture
def feed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Subscriber]:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path / "journals"))
    lines = [{"name": "A", "address": "127.0.0.1:0"}]
    with Subscriber({"name": "deribit", "incremental": {"lines": lines}}) as subscriber:
        yield subscriber


@pytest.fixture
def everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run a feed with a recorder, and a bus of two hosts; return the metrics of all that.

    Beside the feed lies what a relay has counted, and what asks a venue's server.
    """
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path / "S"))
    wrong = [
        Finding("x", "1", "2", False, "costs time"),
        Finding("y", "1", "2", False, "", fault=True),
    ]
    monkeypatch.setattr(host, "inspect_host", lambda use: wrong)
    lines = [{"name": "A", "address": "127.0.0.1:0"}]
    settings = {"name": "deribit", "incremental": {"lines": lines}, "record": {"enabled": True}}
    config = bus_settings(tmp_path, free_port())
    with ExitStack() as stack:
        stack.enter_context(Subscriber({**settings, "image": {"enabled": True}}))
        relayed = RelayCounts.create(instance_directory("deribit"), ["microwave"])
        stack.callback(relayed.close)
        asked = AnswersRegion.create(instance_directory("deribit"), "retransmission", 0, 1)
        stack.callback(asked.close)
        asked.region.mark_ready()
        group = stack.enter_context(closing(GroupFile("us")))
        group.write([GroupFeed("deribit", "ring:deribit", "running")])
        stack.enter_context(running(config, "S", tmp_path))
        stack.enter_context(running(config, "one", tmp_path))
        # An app waits until there is a store.
        wait_until(lambda: "udpfast_replica_lag_seconds" in text_of(), "the copy")
        stack.enter_context(App(f"store:{tmp_path / 'S' / 'orders'}", "algo"))
        stack.enter_context(Reader("ring:deribit"))
        journal = f'udpfast_journal_up{{directory="{tmp_path / "S" / "deribit"}"}} 1.0'
        needed = ("udpfast_objects_sound", journal, "udpfast_store_reader_lag_records")
        wait_until(lambda: all(name in text_of() for name in needed), "all of them")
        yield text_of()


def promtool(*arguments: str, text: str = "", directory: Path | None = None) -> str:
    """Run promtool, which must find nothing wrong; return what it says."""
    path = shutil.which("promtool")
    if path is None:
        pytest.skip("no promtool here: apt-get install prometheus")
    result = subprocess.run(
        [path, *arguments], input=text, capture_output=True, text=True, check=False, cwd=directory
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def text_of(names: Sequence[str] = ()) -> str:
    """Return metrics in the format that has a strict parser."""
    return metrics_text(names, openmetrics=True)


def families(text: str) -> dict[str, Any]:
    return {each.name: each for each in parser.text_string_to_metric_families(text)}


def test_metrics_have_every_counter_with_its_help_and_value(feed: Subscriber) -> None:
    found = families(text_of())
    status = read_status("deribit")
    assert all(each.documentation.endswith(".") for each in found.values())
    helps = {each.documentation.lower() for each in found.values()}
    own = [info for info in LINE_COUNTERS if info not in VERDICTS]
    for info in (*own, *CHANNEL_COUNTERS, *FEED_COUNTERS):
        assert f"{info.meaning}.".lower() in helps, info.name
    verdicts = found["udpfast_line_verdicts"].samples
    assert [sample.labels["verdict"] for sample in verdicts] == [info.name for info in VERDICTS]
    (records,) = found["udpfast_ring_records"].samples
    assert (records.name, records.value) == ("udpfast_ring_records_total", status.records)
    assert records.labels == {"feed": "deribit"}


def test_metrics_are_what_promtool_wants(everything: str) -> None:
    from prometheus_client import generate_latest

    from udpfast.monitor.metrics import feed_registry

    text = generate_latest(feed_registry()).decode()
    assert promtool("check", "metrics", text=text) == ""


def test_metrics_of_the_host_have_stores_journals_and_findings(
    everything: str, tmp_path: Path
) -> None:
    found = families(everything)

    def values(name: str, label: str) -> dict[str, float]:
        return {each.labels[label]: each.value for each in found[f"udpfast_{name}"].samples}

    own, copy = (str(tmp_path / host / "orders") for host in ("S", "one"))
    assert values("store_up", "directory") == {own: 1, copy: 1}
    assert values("store_writer", "host") == {"S": 1, "one": 0}
    assert values("replica_connected", "replica") == {"one": 1}
    assert values("outbox_slots", "sender") == {"algo": 65_536}
    assert values("host_finding", "finding") == {"y": 1, "x": 1}
    assert values("journal_up", "directory")[str(tmp_path / "S" / "deribit")] == 1
    assert set(values("objects_in_doubt", "reason")) == set(REASONS)
    series = [line.rpartition(" ")[0] for line in everything.splitlines() if line[0] != "#"]
    assert len(series) == len(set(series))
    assert all(each.documentation.endswith(".") for each in found.values())


def test_metrics_of_damaged_stores_and_journals_say_so(feed: Subscriber, tmp_path: Path) -> None:
    for name, file in (("store", "bus.json"), ("journal", "journal")):
        (tmp_path / "journals" / name).mkdir(mode=0o700, parents=True)
        (tmp_path / "journals" / name / file).write_bytes(b"\x1b[2J{")
    found = families(text_of())
    for what in ("store", "journal"):
        samples = found[f"udpfast_{what}_readable"].samples
        assert [each.value for each in samples if each.labels["directory"].endswith(what)] == [0]
    assert found["udpfast_feed_up"].samples[0].value == 1


def test_metrics_of_named_feeds_leave_the_host_out(everything: str) -> None:
    named = families(text_of(["deribit"]))
    assert not any(name.startswith(("udpfast_store", "udpfast_journal")) for name in named)
    assert "udpfast_objects_sound" in named


def test_readers_of_one_name_are_told_apart(feed: Subscriber) -> None:
    with Reader("ring:deribit", name="s"), Reader("ring:deribit", name="s"):
        text = text_of()
    series = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))
    samples = families(text)["udpfast_reader_up"].samples
    assert [sample.labels["reader"] for sample in samples] == ["s", "s+"]


def test_buckets_hold_what_was_recorded_and_sum_it_up() -> None:
    from udpfast.monitor import families

    values = [100, 1_000, 1_001, 999_999, 3_000_000_000]
    histogram = LatencyHistogram()
    for value in values:
        histogram.record(value)
    counts = histogram.counts()
    hop = Hop(counts, np.zeros_like(counts), 0, 0)
    buckets, total = families._cumulated(hop)
    assert buckets == sorted(buckets)
    for bound, count in zip(BOUNDS_NS, buckets, strict=True):
        # A slot that the bound cuts through counts above it.
        assert sum(value <= bound * 0.99 for value in values) <= count
        assert count <= sum(value <= bound for value in values)
    assert total == pytest.approx(sum(values) / 1e9, rel=0.01)
    below = Hop(counts, counts, 5, 0)
    assert families._cumulated(below)[0] == [5 + count for count in buckets]


def test_instances_that_cannot_be_read_are_said(feed: Subscriber, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir(mode=0o700)
    (tmp_path / "nothing" / "lock").touch()
    for names in ((), ("deribit", "nothing")):
        samples = families(text_of(names))["udpfast_feed_readable"].samples
        assert {each.labels["feed"]: each.value for each in samples} == {"deribit": 1, "nothing": 0}
    kinds = families(text_of())["udpfast_troubles"].samples
    assert [each.value for each in kinds if each.labels["kind"] == "unreadable"] == [1]


def test_feed_that_is_gone_has_no_sound_objects(
    feed: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    from udpfast.monitor import status

    def states(*_: object) -> ObjectStates:
        return ObjectStates(12, {**dict.fromkeys(REASONS, 0), "gap": 2})

    monkeypatch.setattr(status, "read_objects", states)
    assert status.read_status("deribit").objects == states()
    feed.stop()
    found = families(text_of())
    assert found["udpfast_objects_sound"].samples[0].value == 0
    doubts = {
        each.labels["reason"]: each.value for each in found["udpfast_objects_in_doubt"].samples
    }
    assert (doubts["gap"], doubts["unfed"], sum(doubts.values())) == (2, 12, 14)


def test_instance_that_is_removed_meanwhile_is_said(
    feed: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    from udpfast.monitor import metrics

    def gone(directory: Path) -> dict[str, Hop]:
        raise FileNotFoundError(directory)

    monkeypatch.setattr(metrics, "read_hops", gone)
    (sample,) = families(text_of())["udpfast_feed_readable"].samples
    assert (sample.labels["feed"], sample.value) == ("deribit", 0)


def test_stat_prints_the_same_metrics(feed: Subscriber) -> None:
    result = CliRunner().invoke(cli, ["stat", "deribit", "--openmetrics"])
    assert result.exit_code == 0
    assert result.output.endswith("# EOF\n")
    assert families(result.output).keys() == families(text_of(["deribit"])).keys()
    classic = CliRunner().invoke(cli, ["stat", "deribit", "--metrics"])
    assert classic.exit_code == 0
    assert "# EOF" not in classic.output
    promtool("check", "metrics", text=classic.output)
    absent = CliRunner().invoke(cli, ["stat", "absent", "--metrics"])
    assert isinstance(absent.exception, FileNotFoundError)


def test_a_feed_imports_nothing_of_what_shows_it() -> None:
    code = (
        "import sys, udpfast.agents.feed.subscriber, udpfast.cli.run; "
        "print({name.partition('.')[0] for name in sys.modules} & {'prometheus_client', 'textual'})"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert result.stdout == "set()\n"


def test_alerts_are_what_promtool_wants_and_fire_when_they_should(tmp_path: Path) -> None:
    promtool("check", "rules", str(RULES))
    shutil.copy(RULES, tmp_path)
    tests = sorted(Path(__file__).parent.glob("alerts*_test.yml"))
    assert len(tests) == 3
    for path in tests:
        shutil.copy(path, tmp_path)
        promtool("test", "rules", path.name, directory=tmp_path)


def expressions() -> list[str]:
    """Return the queries of alerts and dashboard, the dashboard's variables filled in."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    shown = [target["expr"] for panel in panels for target in panel["targets"]]
    filled = [each.replace("$feed", ".*").replace("$__rate_interval", "1m") for each in shown]
    return [*filled, RULES.read_text()]


def test_alerts_dashboard_and_pages_ask_for_metrics_that_there_are(everything: str) -> None:
    names = {line.partition("{")[0] for line in everything.splitlines() if line[0] != "#"}
    names |= set(families(everything))
    pages = [(ROOT / "docs" / f"{page}.md").read_text() for page in PAGES]
    asked = {
        name for each in [*expressions(), *pages] for name in re.findall(r"\budpfast_\w+", each)
    }
    # What C has, and lines of several addresses and replays, which are not running here.
    headers = [path.read_text() for path in (ROOT / "udpfast" / "include").glob("*.h")]
    names |= {*re.findall(r"\budpfast_\w+", "".join(headers)), *ELSEWHERE}
    # Pages also name families by their beginning, "udpfast_line_*".
    absent = {
        name
        for name in asked - names
        if not (name.endswith("_") and any(each.startswith(name) for each in names))
    }
    assert not absent, sorted(absent)


def test_queries_of_the_dashboard_are_what_promtool_understands(tmp_path: Path) -> None:
    rules = [
        {"record": f"udpfast:panel:{number}", "expr": each}
        for number, each in enumerate(expressions()[:-1])
    ]
    path = tmp_path / "panels.yml"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", str(path))
