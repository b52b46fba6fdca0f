"""`udpfast metrics`: where it serves, and what it says if it cannot."""

import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from udpfast.cli.main import cli
from udpfast.errors import ConfigError

pytest.importorskip("prometheus_client")


def test_metrics_at_a_port_in_use_names_the_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = CliRunner().invoke(cli, ["metrics", "--listen", address])
    assert isinstance(result.exception, ConfigError)
    assert f"--listen: expected a free port of this host, found {address}" in str(result.exception)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_metrics_prints_the_address_that_answers(host: str) -> None:
    command = [sys.executable, "-m", "udpfast", "metrics", "--listen", f"{host}:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().removeprefix("udpfast: ").strip()
        try:
            assert address.startswith(f"http://{host}:")
            with urllib.request.urlopen(address) as answer:
                assert answer.status == 200
        finally:
            process.send_signal(signal.SIGTERM)


def test_metrics_of_a_feed_that_is_not_there_says_which_one_may_be_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path))
    (tmp_path / "market").mkdir(mode=0o700)
    (tmp_path / "market" / "ring").touch()
    command = [sys.executable, "-m", "udpfast", "metrics", "market", "markt"]
    command += ["--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        process.terminate()
    assert said.endswith("udpfast: markt: no such instance so far; did you mean 'market'?\n")
