"""A real Prometheus scrapes a running feed, and has what its counters have."""

import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.shared import ROOT
from tests.waiting import PATIENCE_S, wait_until
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.net.ports import free_ports

pytest.importorskip("prometheus_client")


def asked(url: str, **parameters: str) -> Any:
    """Return what Prometheus answers; None: nobody does yet."""
    query = urllib.parse.urlencode(parameters)
    try:
        with urllib.request.urlopen(f"{url}?{query}", timeout=PATIENCE_S) as answer:
            return json.load(answer)["data"]
    except (urllib.error.URLError, ConnectionError):
        return None


@pytest.mark.system
def test_prometheus_scrapes_a_running_feed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus here: apt-get install prometheus")
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path / "journals"))
    shutil.copy(ROOT / "packaging/prometheus/udpfast.rules.yml", tmp_path)
    exporter, server, line = free_ports(3)
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 250ms, evaluation_interval: 250ms}\n"
        "rule_files: [udpfast.rules.yml]\n"
        "scrape_configs:\n"
        "  - job_name: udpfast\n"
        f'    static_configs: [{{targets: ["127.0.0.1:{exporter}"]}}]\n'
    )
    commands = [
        [sys.executable, "-m", "udpfast", "metrics", "--listen", f"127.0.0.1:{exporter}"],
        [
            program,
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{server}",
            "--log.level=error",
        ],
    ]
    lines = [{"name": "A", "address": f"127.0.0.1:{line}"}]
    api = f"http://127.0.0.1:{server}/api/v1"

    def value(expression: str) -> float | None:
        data = asked(f"{api}/query", query=expression)
        return float(data["result"][0]["value"][1]) if data and data["result"] else None

    def equal(expression: str, expected: float) -> Callable[[], bool]:
        return lambda: value(expression) == expected

    processes = [subprocess.Popen(command, cwd=tmp_path) for command in commands]
    try:
        settings = {"name": "deribit", "incremental": {"lines": lines}, "record": {"enabled": True}}
        with Subscriber({**settings, "image": {"enabled": True}}):
            wait_until(equal('udpfast_feed_up{feed="deribit"}', 1))
            wait_until(equal('up{job="udpfast"}', 1))
            wait_until(equal('udpfast_line_silent{line="A"}', 1))
            wait_until(equal("udpfast_journal_up", 1))
            wait_until(equal("sum(udpfast_objects_in_doubt)", 0))
            wait_until(lambda: (value("udpfast_journal_disk_free_bytes") or 0) > 0)
            assert value("count(udpfast_hop_latency_seconds_bucket)") is not None
            wait_until(equal('ALERTS{alertname="UdpfastLineSilent"}', 1))
            (known,) = asked(f"{api}/metadata", metric="udpfast_feed_up")["udpfast_feed_up"]
            assert known["help"] == "Whether the feed's process lives, and can be found."
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(PATIENCE_S)
    assert processes[0].returncode == 0
