"""The systemd unit: what systemd says of it, and that it means the exit codes that there are."""

import configparser
import re
import shutil
import subprocess
import sys

import pytest

from tests.shared import ROOT
from udpfast.cli.run import EXIT_TAKEN
from udpfast.config import RunConfig

UNIT = ROOT / "packaging" / "udpfast@.service"


@pytest.fixture
def service():
    """Return the unit's [Service]."""
    return service_of(UNIT)


def service_of(path):
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read(path)
    return unit["Service"]


def test_unit_and_the_drop_in_of_the_page_are_right_by_systemd_itself(tmp_path):
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze here")
    copy = tmp_path / "udpfast@test.service"
    copy.write_text(UNIT.read_text().replace("/usr/local/bin/udpfast", sys.executable))
    page = (ROOT / "docs" / "operating.md").read_text()
    drop_in = re.search(r"^\[Service\]\n(?:.+\n)+", page, re.M)
    assert drop_in is not None
    (tmp_path / f"{copy.name}.d").mkdir()
    (tmp_path / f"{copy.name}.d" / "override.conf").write_text(drop_in[0].replace("```\n", ""))
    checked = subprocess.run(
        [analyze, "verify", str(copy)], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


@pytest.mark.parametrize("name", ["udpfast@", "udpfast-group@", "udpfast-relay@", "udpfast-bus@"])
def test_unit_does_not_start_again_what_that_does_not_help(name):
    service = service_of(ROOT / "packaging" / f"{name}.service")
    assert service["RestartPreventExitStatus"].split() == ["2", str(EXIT_TAKEN)]
    assert service["Restart"] == "on-failure"


def test_unit_leaves_time_to_drain(service):
    assert int(service["TimeoutStopSec"]) * 1000 > 2 * RunConfig().drain_ms
    assert service["KillMode"] == "mixed"  # the feed ends first


@pytest.mark.parametrize(
    ("name", "instance"),
    [
        ("udpfast-bus@", "udpfast-bus@one"),
        ("udpfast-group@", "udpfast-group@us"),
        ("udpfast-metrics", "udpfast-metrics"),
        ("udpfast-relay@", "udpfast-relay@cme"),
    ],
)
def test_other_units_are_right_by_systemd_itself(tmp_path, name, instance):
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze here")
    unit = ROOT / "packaging" / f"{name}.service"
    copy = tmp_path / f"{instance}.service"
    copy.write_text(unit.read_text().replace("/usr/local/bin/udpfast", sys.executable))
    checked = subprocess.run(
        [analyze, "verify", str(copy)], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
