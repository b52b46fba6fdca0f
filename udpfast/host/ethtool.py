"""Settings that only the driver knows and can set, through the `ethtool` command."""

from __future__ import annotations

import shutil
import subprocess

__all__ = ["ask_driver", "run_ethtool", "set_driver", "why_silent"]


def ask_driver(interface: str, flag: str) -> str:
    """Return what `ethtool` shows of an interface; "" if the driver does not say."""
    answer = run_ethtool(flag, interface)
    return answer.stdout if answer.returncode == 0 else ""


def set_driver(target: str, value: str) -> str:
    """Set one parameter of an interface, as in "eth1 -C rx-usecs"; return why it was refused."""
    interface, flag, parameter = target.split()
    answer = run_ethtool(flag, interface, parameter, value)
    if answer.returncode == 0:
        return ""
    return (answer.stderr.splitlines() or ["the driver does not say why"])[-1].rpartition(": ")[2]


def why_silent() -> str:
    """Return why `ask_driver` got no answer."""
    return "the driver does not say" if shutil.which("ethtool") else "ethtool is not installed"


def run_ethtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, for ten seconds at most."""
    command = ["ethtool", *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))
