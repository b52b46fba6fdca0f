"""Whether logind removes the files of a feed when its user logs out, by settings of the host."""

from pathlib import Path

import pytest

from tests.host_tree import lay_out, spoil
from udpfast.host import inspect_host, shared_memory_removal

CONF = "etc/systemd/logind.conf"
STATUS = "proc/self/status"


def removes(root: Path) -> bool | None:
    """Return the finding of `check` and `run`, which is the same."""
    (finding,) = (each for each in inspect_host(root) if each.name == "RemoveIPC")
    assert bool(shared_memory_removal(root)) == (finding.ok is False)
    return None if finding.ok is None else not finding.ok


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], False),
        ([(CONF, "[Login]\n#RemoveIPC=no")], True),  # systemd's default
        ([(CONF, "[Login]\nRemoveIPC=1")], True),
        ([(CONF, "[Login]\nRemoveIPC=no\n[Other]\nRemoveIPC=yes")], False),
        ([(CONF, "RemoveIPC=no, and no section")], True),
        ([("run/systemd/logind.conf.d/50-x.conf", "[Login]\nRemoveIPC=yes")], True),
        (
            [
                (CONF, "[Login]\nRemoveIPC=yes"),
                ("usr/lib/systemd/logind.conf.d/60-z.conf", "[Login]\nRemoveIPC=no"),
                ("etc/systemd/logind.conf.d/50-a.conf", "[Login]\nRemoveIPC=yes"),
            ],
            False,
        ),
        ([(CONF, ""), ("var/lib/systemd/linger/feed", "")], False),
        ([(CONF, ""), (STATUS, "Uid:\t999\t999\t999\t999")], False),
        ([(CONF, ""), ("proc/1/comm", "tini")], None),
        ([(CONF, ""), (STATUS, "Name:\tpython")], None),
    ],
)
def test_files_are_removed_at_logout_as_logind_is_set(
    tmp_path: Path, files: list[tuple[str, str]], expected: bool | None
) -> None:
    root = lay_out(tmp_path)
    for name, _ in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
    spoil(root, files)
    assert removes(root) is expected
