"""Files of groups: the feeds of a supervisor, and which files are believed."""

import contextlib
import os
import stat

import pytest

from tests.waiting import wait_until
from udpfast.archive.groups import Group, GroupFeed, GroupFile, list_groups, read_group
from udpfast.errors import RegionError, WriterExistsError
from udpfast.shm.instance import instance_hint, list_instances

FEEDS = (GroupFeed("a", "ring:a", "running", 3, 17), GroupFeed("b.c", "store:/data/b.c"))


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """Return a root for the instances of one test."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    return tmp_path / "shm"


def test_a_group_is_read_as_it_was_written_and_is_no_instance(root):
    with contextlib.closing(GroupFile("us.east")) as file:
        file.write(FEEDS)
        group = read_group("us.east")
        assert (group.name, group.feeds, group.life) == ("us.east", FEEDS, "running")
        file.write(FEEDS[:1], ended=True)
    group = read_group("us.east")
    assert (group.feeds, group.alive, group.life) == (FEEDS[:1], False, "stopped")
    assert list_instances() == []
    assert stat.S_IMODE((root / ".groups/us.east.json").stat().st_mode) == 0o644


def test_a_group_has_one_supervisor():
    with contextlib.closing(GroupFile("us")) as file:
        with pytest.raises(WriterExistsError, match=r"group us runs already \(/.*us\.json\)"):
            GroupFile("us")
        file.write(FEEDS)
        with pytest.raises(WriterExistsError, match=rf"already \(pid {os.getpid()}\): only one"):
            GroupFile("us")
        GroupFile("eu").close()
    GroupFile("us").close()


def test_a_group_that_is_taken_for_an_instance_is_named_as_one():
    with contextlib.closing(GroupFile("us")) as file:
        file.write(FEEDS)
    assert instance_hint("us").startswith("; it is a group")
    assert "group" not in instance_hint("eu")


def test_a_supervisor_that_was_killed_leaves_a_dead_group():
    pid = os.fork()
    if pid == 0:
        GroupFile("us").write(FEEDS)
        os._exit(9)
    os.waitpid(pid, 0)
    assert read_group("us").life == "dead"


def test_an_unknown_group_suggests_a_similar_one():
    with contextlib.closing(GroupFile("opra")) as file:
        file.write(FEEDS)
    with pytest.raises(FileNotFoundError, match=r"no group 'opr'.*did you mean 'opra'\?"):
        read_group("opr")


@pytest.mark.parametrize("text", [b"", b"{", b'{"name": "us"}', b"[1]"])
def test_what_is_no_group_is_unreadable_and_hides_no_other(root, text):
    with contextlib.closing(GroupFile("eu")) as file:
        file.write(FEEDS)
    (root / ".groups/us.json").write_bytes(text)
    (root / ".groups/us.json").chmod(0o644)
    found, unreadable = list_groups()
    assert (list(found), list(unreadable)) == (["eu"], ["us"])
    assert "expected a group of feeds" in unreadable["us"]


def test_a_file_that_others_may_write_is_not_believed(root):
    with contextlib.closing(GroupFile("us")) as file:
        file.write(FEEDS)
    path = root / ".groups/us.json"
    path.chmod(0o666)
    with pytest.raises(RegionError, match="only its owner"):
        read_group("us")
    path.chmod(0o644)
    path.parent.chmod(0o777)
    with pytest.raises(RegionError, match="only its owner"):
        read_group("us")


def test_every_look_sees_a_whole_file():
    written = 200
    pid = os.fork()
    if pid == 0:
        file = GroupFile("us")
        for count in range(written):
            file.write(GroupFeed(f"feed{i}", "ring:x", restarts=count) for i in range(50))
        file.write([], ended=True)
        os._exit(0)
    seen: list[Group] = []

    def ended() -> bool:
        with contextlib.suppress(FileNotFoundError):
            seen.append(read_group("us"))
        return bool(seen) and seen[-1].ended

    wait_until(ended, "the last one")
    os.waitpid(pid, 0)
    assert all(len({feed.restarts for feed in group.feeds}) <= 1 for group in seen)


def test_a_supervisor_that_ends_in_good_order_while_it_is_looked_for_is_not_dead(monkeypatch):
    with contextlib.closing(GroupFile("us")) as file:
        file.write(FEEDS)

        def end_first(*_):
            file.write(FEEDS, ended=True)
            return False

        monkeypatch.setattr("udpfast.archive.groups.process_alive", end_first)
        assert read_group("us").life == "stopped"
