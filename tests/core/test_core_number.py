"""Cores that a thread can be pinned to."""

import os

import pytest

from udpfast.core.core_number import check_allowed, cores_allowed
from udpfast.errors import ConfigError


def test_cores_allowed_are_those_of_the_cpuset_not_of_the_affinity() -> None:
    before = os.sched_getaffinity(0)
    allowed = cores_allowed()
    assert before <= set(allowed)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert cores_allowed() == allowed
        assert os.sched_getaffinity(0) == {min(before)}
    finally:
        os.sched_setaffinity(0, before)


def test_core_that_is_offline_or_of_another_cpuset_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What the kernel leaves of all cores.
    monkeypatch.setattr(os, "sched_getaffinity", lambda thread: {1, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, cores: None)
    monkeypatch.setattr(os, "sysconf", lambda name: 4)
    check_allowed("core", 3)
    check_allowed("core", None)
    with pytest.raises(ConfigError, match=r"core: expected a core that .*: 1, 3; found 2"):
        check_allowed("core", 2)
    with pytest.raises(ConfigError, match="core: expected a core of this host, 0 to 3, found 4"):
        check_allowed("core", 4)
