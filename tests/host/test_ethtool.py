"""Settings of a driver that `ethtool` reads and writes, and why it may fail."""

from pathlib import Path

import pytest

from udpfast.host.ethtool import ask_driver, run_ethtool, set_driver, why_silent

COMMAND = """#!/bin/sh
case "$1" in
    -g) echo "$@" ;;
    -C) echo "old" && echo "netlink error: Device or resource busy" >&2 && exit 1 ;;
    -K) exit 3 ;;
esac
"""


@pytest.fixture(autouse=True)
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install an `ethtool` that prints how it was called, or fails."""
    path = tmp_path / "ethtool"
    path.write_text(COMMAND)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return path


def test_ask_driver_returns_what_is_shown_and_nothing_of_a_failure() -> None:
    assert ask_driver("eth1", "-g") == "-g eth1\n"
    assert ask_driver("eth1", "-C") == ""
    assert why_silent() == "the driver does not say"


def test_set_driver_says_why_it_was_refused() -> None:
    assert set_driver("eth1 -G rx", "1024") == ""
    assert set_driver("eth1 -C rx-usecs", "0") == "Device or resource busy"
    assert set_driver("eth1 -K gro", "off") == "the driver does not say why"


def test_run_ethtool_without_the_command_is_a_failure(command: Path) -> None:
    command.unlink()
    assert run_ethtool("-g", "eth1").returncode == 1
    assert ask_driver("eth1", "-g") == ""
    assert why_silent() == "ethtool is not installed"
