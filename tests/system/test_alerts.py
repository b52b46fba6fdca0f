"""Each alert is staged before a real Prometheus: it fires for its own facts, and for no others.

The facts are those of a real feed and bus, in which a stage changes some. Every stage is a target
of its own, so that all of them pass at once; durations are cut short, as `promtool test rules` has
the long ones.
"""

import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.monitor.test_metrics import RULES, everything  # noqa: F401 - a fixture
from tests.system.feed_files import feed
from tests.system.test_prometheus import asked
from tests.waiting import PATIENCE_S, wait_until
from udpfast.net.ports import free_port

pytestmark = pytest.mark.system

#: Which alerts have fired so far, and which stages were not scraped at some time.
EVER_FIRED = 'max_over_time(ALERTS{alertstate="firing"}[1h])'
EVER_UNSCRAPED = "min_over_time(up[1h]) == 0"
#: Windows of the rules, and what they become: a loss of 8.5 a second is one by count, not by rate.
WINDOWS = {"1m": "4s", "5m": "4s", "15m": "14s", "30m": "4s"}
#: A value that is one, or grows by so many a second.
Value = float | Callable[[float], float]
#: A sample's name and a part of its labels.
Key = tuple[str, str]
DAY = 86_400.0


def grows(per_s: float) -> Callable[[float], float]:
    """Return what only grows."""
    return lambda seconds: per_s * seconds


WELL: dict[Key, Value] = {
    ("udpfast_group_up", ""): 1,
    ("udpfast_group_ended", ""): 0,
    ("udpfast_group_feed_down", ""): 0,
    ("udpfast_feed_stuck_seconds", ""): 0,
    ("udpfast_feed_stalled_seconds_total", ""): 0,
    ("udpfast_feed_took_over", ""): 0,
    ("udpfast_line_silent", ""): 0,
    ("udpfast_server_silent", ""): 0,
    ("udpfast_agent_up", ""): 1,
    ("udpfast_objects_in_doubt", ""): 0,
    ("udpfast_feed_objects_stranded", ""): 0,
    ("udpfast_host_finding", ""): 0,
    ("udpfast_hop_latency_seconds_bucket", ""): 0,
    ("udpfast_journal_disk_size_bytes", ""): 1e12,
    ("udpfast_journal_disk_free_bytes", ""): 5e11,
    ("udpfast_journal_disk_segment_bytes", ""): 1.3e8,
    ("udpfast_replica_connected", ""): 1,
    ("udpfast_replica_lag_seconds", ""): 0,
    ("udpfast_outbox_registered", ""): 1,
    ("udpfast_store_trouble", ""): 0,
    ("udpfast_store_standbys_away", ""): 0,
    ("udpfast_store_source_gone", ""): 0,
}
#: Everything was stopped in good order, in the middle of whatever it did.
STOPPED: dict[Key, Value] = {
    ("udpfast_feed_up", ""): 0,
    ("udpfast_feed_ended", ""): 1,
    ("udpfast_group_up", ""): 0,
    ("udpfast_group_ended", ""): 1,
    ("udpfast_line_silent", ""): 1,
    ("udpfast_server_silent", ""): 1,
    ("udpfast_agent_up", ""): 0,
    ("udpfast_objects_in_doubt", ""): 2,
    ("udpfast_store_up", ""): 0,
    ("udpfast_store_ended", ""): 1,
    ("udpfast_replica_connected", ""): 0,
}
LATE = {("udpfast_hop_latency_seconds_bucket", f'le="{le}"'): grows(100) for le in ("0.1", "+Inf")}
LOST = ("udpfast_channel_lost_total", 'channel="incremental"')
DROPS = ("udpfast_line_kernel_drops_total", 'line="B"')
#: By alert: the facts that it is for, and which others they are facts of as well.
STAGES: dict[str, tuple[dict[Key, Value], set[str]]] = {
    "UdpfastNotScraped": ({}, set()),
    "UdpfastFeedDown": ({("udpfast_feed_up", ""): 0}, set()),
    "UdpfastFeedStuck": ({("udpfast_feed_stuck_seconds", ""): 4}, set()),
    "UdpfastFeedRestarted": ({("udpfast_feed_took_over", ""): 1}, set()),
    "UdpfastGroupDown": ({("udpfast_group_up", ""): 0}, set()),
    "UdpfastGroupFeedDown": ({("udpfast_group_feed_down", ""): 1}, set()),
    "UdpfastFeedUnreadable": ({("udpfast_feed_readable", ""): 0}, set()),
    "UdpfastLosing": ({LOST: grows(1000)}, {"UdpfastMessagesLost"}),
    "UdpfastMessagesLost": ({LOST: grows(8.5)}, set()),
    "UdpfastKernelDropping": ({DROPS: grows(1000)}, {"UdpfastKernelDrops"}),
    "UdpfastKernelDrops": ({DROPS: grows(2)}, set()),
    "UdpfastChannelSilent": ({("udpfast_line_silent", ""): 1}, {"UdpfastLineSilent"}),
    "UdpfastLineSilent": ({("udpfast_line_silent", 'line="B"'): 1}, set()),
    "UdpfastServerSilent": ({("udpfast_server_silent", ""): 1}, set()),
    "UdpfastLinesDisagree": ({("udpfast_line_disagreements_total", 'line="B"'): grows(2)}, set()),
    "UdpfastMemoryFull": ({("udpfast_feed_names_full_total", ""): grows(2)}, set()),
    "UdpfastRelayGone": ({("udpfast_troubles", "relay_gone"): 1}, set()),
    "UdpfastRelayShort": ({("udpfast_relay_short", ""): 1.0}, set()),
    "UdpfastReaderLapped": ({("udpfast_reader_lapped_records_total", ""): grows(5)}, set()),
    "UdpfastAgentRestarted": ({("udpfast_agent_restarts_total", "image"): grows(2)}, set()),
    "UdpfastLedgerDiffers": (STOPPED | {("udpfast_feed_ledger_difference", ""): 3}, set()),
    "UdpfastLoopLate": (LATE, set()),
    "UdpfastObjectsInDoubt": ({("udpfast_objects_in_doubt", "gap"): 3}, set()),
    "UdpfastObjectsStranded": ({("udpfast_feed_objects_stranded", ""): 3}, set()),
    "UdpfastAgentDown": ({("udpfast_agent_up", "image"): 0}, set()),
    "UdpfastRecorderDown": ({("udpfast_agent_up", "record"): 0}, set()),
    "UdpfastNotRecorded": ({("udpfast_journal_dropped_records_total", ""): grows(9)}, set()),
    "UdpfastSyncFails": ({("udpfast_journal_sync_errors_total", ""): grows(2)}, set()),
    "UdpfastJournalUnreadable": ({("udpfast_journal_readable", ""): 0}, set()),
    "UdpfastDiskNearlyFull": ({("udpfast_journal_disk_free_bytes", ""): 4e10}, set()),
    "UdpfastDiskFull": (
        {
            ("udpfast_journal_disk_size_bytes", ""): 6e8,
            ("udpfast_journal_disk_free_bytes", ""): 1e8,  # a sixth, and no segment
        },
        set(),
    ),
    "UdpfastDiskFullSoon": (
        {("udpfast_journal_disk_free_bytes", ""): lambda seconds: 5e11 - 1e8 * seconds},
        set(),
    ),
    "UdpfastStoreDown": ({("udpfast_store_up", ""): 0}, set()),
    "UdpfastStoreTrouble": ({("udpfast_store_trouble", ""): 1}, set()),
    "UdpfastReplicaAway": ({("udpfast_replica_connected", ""): 0}, set()),
    "UdpfastStoreUnprotected": ({("udpfast_store_standbys_away", ""): 1}, set()),
    "UdpfastStoreSourceGone": ({("udpfast_store_source_gone", ""): 1}, set()),
    "UdpfastReplicaBehind": ({("udpfast_replica_lag_seconds", ""): 30}, set()),
    "UdpfastOutboxNearlyFull": ({("udpfast_outbox_waiting", ""): 1e9}, set()),
    "UdpfastSenderRefused": ({("udpfast_outbox_registered", ""): 0}, set()),
    "UdpfastHostFault": ({("udpfast_host_finding", 'fault="1"'): 1}, set()),
}
QUIET = {"well": WELL, "stopped": STOPPED}


def alerts() -> list[str]:
    """Return the names of the rules file's alerts."""
    return re.findall(r"- alert: (\w+)", RULES.read_text())


def test_every_alert_has_its_stage() -> None:
    assert sorted(STAGES) == sorted(alerts())


def samples(text: str) -> list[tuple[str, str, float]]:
    """Return name, labels and value of what the rules ask for; the feed gets a second line."""
    wanted = set(re.findall(r"\budpfast_\w+", RULES.read_text()))
    found = []
    for line in text.splitlines():
        name, _, rest = line.partition("{")
        if line.startswith("#") or name not in wanted:
            continue
        labels, _, value = rest.rpartition("} ")
        found.append((name, labels, float(value)))
        if 'line="A"' in labels:
            found.append((name, labels.replace('line="A"', 'line="B"'), float(value)))
    assert wanted == {name for name, _, _ in found}
    return found


def staged(
    base: list[tuple[str, str, float]], facts: dict[Key, Value]
) -> tuple[str, list[tuple[str, Callable[[float], float]]]]:
    """Return what is well but for some facts: the text that stays, and what grows."""
    stays, growing = [], []
    for name, labels, real in base:
        value: Value = real
        for (changed, part), given in {**WELL, **facts}.items():
            if changed == name and part in labels:
                value = given
        if callable(value):
            growing.append((f"{name}{{{labels}}}", value))
        else:
            stays.append(f"{name}{{{labels}}} {value}\n")
    return "".join(stays), growing


@contextmanager
def stage(base: list[tuple[str, str, float]]) -> Iterator[int]:
    """Serve every stage at a port, by the parameter `stage`."""
    began = time.monotonic()
    # Made once: on a busy host each scrape has to be answered in time, too.
    stages = {
        name: staged(base, facts)
        for name, facts in {**{each: one for each, (one, _) in STAGES.items()}, **QUIET}.items()
    }

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            (name,) = parse_qs(urlsplit(self.path).query)["stage"]
            stays, growing = stages[name]
            self.send_response(500 if name == "UdpfastNotScraped" else 200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            seconds = time.monotonic() - began
            grown = "".join(f"{sample} {value(seconds)}\n" for sample, value in growing)
            self.wfile.write((stays + grown).encode())

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def short_rules() -> str:
    """Return the rules, with durations of seconds."""
    text = re.sub(r"\b((?:keep_firing_)?for|interval): \w+", r"\1: 1s", RULES.read_text())
    return re.sub(r"\[(\w+)\]", lambda found: f"[{WINDOWS[found[1]]}]", text)


@contextmanager
def prometheus(
    folder: Path, targets: list[dict[str, Any]]
) -> Iterator[Callable[..., dict[str, set[str]]]]:
    """Run Prometheus on targets; yield what returns the alerts that fire, by instance."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus here: apt-get install prometheus")
    (folder / "udpfast.rules.yml").write_text(short_rules())
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["udpfast.rules.yml"],
        "scrape_configs": [{"job_name": "udpfast", "static_configs": targets}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(settings))  # JSON is YAML
    port = free_port()
    process = subprocess.Popen(
        [
            program,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=error",
        ]
    )

    def firing(
        by: str = "instance", query: str = 'ALERTS{alertstate="firing"}'
    ) -> dict[str, set[str]]:
        data = asked(f"http://127.0.0.1:{port}/api/v1/query", query=query)
        found: dict[str, set[str]] = {}
        for each in data["result"] if data else ():
            metric = each["metric"]
            found.setdefault(metric.get(by, ""), set()).add(metric.get("alertname", ""))
        return found

    try:
        yield firing
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def test_each_alert_fires_for_its_facts_alone_and_none_in_a_clean_stop(
    tmp_path: Path,
    everything: str,  # noqa: F811
) -> None:
    expected = {name: {name, *others} for name, (_, others) in STAGES.items()}
    with stage(samples(everything)) as port:
        targets = [
            {
                "targets": [f"127.0.0.1:{port}"],
                "labels": {"__param_stage": name, "instance": name},
            }
            for name in (*STAGES, *QUIET)
        ]
        with prometheus(tmp_path, targets) as firing:

            def differing() -> dict[str, set[str]]:
                # On a busy host no moment may have all at once, and a scrape may come too late:
                # then UdpfastNotScraped is right.
                found = firing(query=EVER_FIRED)
                late = firing(query=EVER_UNSCRAPED)
                return {
                    name: differ
                    for name in {*found, *expected}
                    if (differ := found.get(name, set()) ^ expected.get(name, set()))
                    and not (name in late and differ == {"UdpfastNotScraped"})
                }

            with contextlib.suppress(AssertionError):
                wait_until(lambda: not differing())
            time.sleep(3)
            assert differing() == {}


def test_live_feeds_killed_stopped_and_without_recorder_alert_as_they_should(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path / "journals"))
    (tmp_path / "taken").write_text("no directory: nothing can be recorded there")
    record = f'[record]\nenabled = true\ndirectory = "{tmp_path}/taken/x"\n'
    exporter = free_port()
    command = [sys.executable, "-m", "udpfast"]
    with ExitStack() as stack:
        feeds = {}
        for name, more in (("killed", ""), ("stopped", ""), ("unrecorded", record)):
            process = subprocess.Popen(
                [*command, "run", str(feed(tmp_path, name, more)), "--quiet"]
            )
            feeds[name] = stack.enter_context(process)
            stack.callback(process.kill)
            wait_until((tmp_path / "shm" / name / "roster").exists)
        server = subprocess.Popen([*command, "metrics", "--listen", f"127.0.0.1:{exporter}"])
        stack.enter_context(server)
        stack.callback(server.kill)
        wait_until((tmp_path / "shm/stopped/ring").exists)
        feeds["killed"].kill()
        feeds["stopped"].send_signal(signal.SIGTERM)
        assert feeds["stopped"].wait(PATIENCE_S) == 0
        targets = [{"targets": [f"127.0.0.1:{exporter}"], "labels": {"instance": "here"}}]
        with prometheus(tmp_path, targets) as firing:
            # Nobody sends to the feed that runs.
            silent = {"UdpfastChannelSilent", "UdpfastLineSilent"}
            expected = {
                "killed": {"UdpfastFeedDown"},
                "unrecorded": {"UdpfastRecorderDown", *silent},
            }
            wait_until(
                lambda: all(
                    names <= firing("feed").get(name, set()) for name, names in expected.items()
                )
            )
            found = firing("feed")
            assert found["killed"] == {"UdpfastFeedDown"}
            assert found["unrecorded"] - {"UdpfastAgentRestarted"} == expected["unrecorded"]
            assert "stopped" not in found
