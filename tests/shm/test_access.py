"""A group that may read: what its members can and cannot do. These tests need root."""

import fcntl
import grp
import os
import stat
import tempfile
import traceback
from pathlib import Path

import pytest

from tests.waiting import wait_until
from udpfast.agents.feed.image_keeper import ImageKeeper
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.client.reader import Reader
from udpfast.config import ImageConfig
from udpfast.core.layout import Kind
from udpfast.errors import ConfigError, RegionError, WriterExistsError
from udpfast.log.readers import list_readers, remove_dead_readers
from udpfast.log.ring import Ring
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.shm.instance import instance_directory, list_instances
from udpfast.shm.region import Region

OWNER, MEMBER, OTHER, STRANGER, GROUP = 12_340, 12_341, 12_342, 12_343, 12_350

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be other users")


def as_user(uid, group, what):
    """Call a function in a process of another user; return the name of its exception, or ""."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setgroups([group] if group else [])
        os.setgid(uid)
        os.setuid(uid)
        text = ""
        try:
            what()
        except BaseException as error:
            text = type(error).__name__
            if isinstance(error, AssertionError):
                traceback.print_exc()
        os.write(write_end, text.encode())
        os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as pipe:  # noqa: PTH123 - a descriptor
        text = pipe.read().decode()
    os.waitpid(pid, 0)
    return text


@pytest.fixture
def root(monkeypatch):
    """Return a root for instances that other users can reach."""
    # `tmp_path` does not work: every new run of pytest takes the permissions of others away again.
    with tempfile.TemporaryDirectory(prefix="udpfast-test-") as name:
        directory = Path(name)
        directory.chmod(0o711)
        monkeypatch.setenv("UDPFAST_SHM", str(directory / "root"))
        yield directory / "root"


@pytest.fixture
def instance(root):
    """Return the directory of a ring, counters and a slab that GROUP may read."""
    os.mkdir(root.parent / "made")  # noqa: PTH102 - for the owner to make the root in
    os.chown(root.parent, OWNER, OWNER)

    def make():
        directory = instance_directory("feed", create=True, group=str(GROUP))
        with Ring.create(directory, 4096, PAYLOAD_HASH) as ring:
            ring.append(Kind.MESSAGE, b"price")
        Region.create(directory / "slab", "SLAB", 4096, 0, mode=0o600).close()

    assert as_user(OWNER, GROUP, make) == ""
    return root / "feed"


def mode(path):
    """Return the permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


@needs_root
def test_modes_let_a_group_read_and_nothing_else(instance, root):
    assert mode(root) == 0o711
    assert mode(instance) == 0o2750
    assert mode(instance / "readers") == 0o3770
    assert mode(instance / "ring") == 0o640
    assert mode(instance / ".ring.lock") == 0o600
    assert mode(instance / "slab") == 0o600
    assert {path.stat().st_gid for path in (instance, instance / "ring")} == {GROUP}


@needs_root
def test_member_of_the_group_reads_and_registers(instance, monkeypatch):
    monkeypatch.setenv("UDPFAST_TRUST", str(OWNER))

    def read():
        with Reader("ring:feed", start="begin", name="member") as reader:
            assert len(reader.poll()) == 1
            (entry,) = list((instance / "readers").iterdir())
            assert (mode(entry), entry.stat().st_gid) == (0o640, GROUP)
            assert os.geteuid() == MEMBER

    assert as_user(MEMBER, GROUP, read) == ""


@needs_root
@pytest.mark.filterwarnings("ignore:.*its writer .* has ended")
def test_owner_lists_the_readers_of_others_and_frees_those_that_died(instance):
    held = []

    def register():
        os.environ["UDPFAST_TRUST"] = str(OWNER)
        held.append(Reader("ring:feed", name="member"))
        assert [info.name for info in list_readers(instance)] == ["member"]
        assert list_readers(instance)[0].alive

    assert as_user(MEMBER, GROUP, register) == ""  # ends without closing anything

    def free():
        assert [info.alive for info in list_readers(instance)] == [False]
        assert remove_dead_readers(instance) == 1

    assert as_user(OWNER, GROUP, free) == ""


def write(path):
    """Open the file for writing."""
    os.close(os.open(path, os.O_RDWR))


FORBIDDEN = {
    "write the ring": lambda d: write(d / "ring"),
    "cut the ring": lambda d: os.truncate(d / "ring", 0),
    "map it for writing": lambda d: Region.attach(d / "ring", "RING", 0, writable=True),
    "become its writer": lambda d: Ring.create(d, 4096, PAYLOAD_HASH),
    "remove it": lambda d: (d / "ring").unlink(),
    "put another in its place": lambda d: (d / "readers" / "mine").rename(d / "ring"),
    "add a file": lambda d: (d / "names").touch(),
    "read the slab": lambda d: (d / "slab").read_bytes(),
    "take the lock": lambda d: (d / ".ring.lock").read_bytes(),
    "open the directory to all": lambda d: d.chmod(0o777),
    "remove another's entry": lambda d: (d / "readers" / "theirs").unlink(),
    "write another's entry": lambda d: write(d / "readers" / "theirs"),
    "move another's entry": lambda d: (d / "readers" / "theirs").rename(d / "readers" / "x"),
    "replace the readers": lambda d: (d / "readers").rename(d / "gone"),
}


@needs_root
@pytest.mark.parametrize("what", FORBIDDEN)
def test_member_of_the_group_cannot(instance, monkeypatch, what):
    monkeypatch.setenv("UDPFAST_TRUST", str(OWNER))
    theirs, mine = instance / "readers" / "theirs", instance / "readers" / "mine"
    assert as_user(OTHER, GROUP, lambda: (theirs.touch(), theirs.chmod(0o640))) == ""
    assert as_user(MEMBER, GROUP, mine.touch) == ""
    before = (instance / "ring").read_bytes()
    assert as_user(MEMBER, GROUP, lambda: FORBIDDEN[what](instance)) == "PermissionError"
    assert (instance / "ring").read_bytes() == before
    assert theirs.exists()


@needs_root
def test_stranger_is_not_let_in(instance, monkeypatch):
    monkeypatch.setenv("UDPFAST_TRUST", str(OWNER))
    assert as_user(STRANGER, 0, lambda: Reader("ring:feed")) == "PermissionError"


@needs_root
def test_stranger_is_told_what_lets_them_in(instance, root, monkeypatch):
    monkeypatch.setenv("UDPFAST_TRUST", str(OWNER))

    def look(what, said):
        with pytest.raises(PermissionError, match=said):
            what()

    own = r"access\.group of the feed's file names.*UDPFAST_TRUST.*/feed'"
    assert as_user(STRANGER, 0, lambda: look(lambda: Reader("ring:feed"), own)) == ""
    assert as_user(MEMBER, GROUP, lambda: look(list_instances, "give one by its name")) == ""
    root.chmod(0o700)
    all_of_them = own.replace("/feed'", "/root'")
    assert as_user(STRANGER, 0, lambda: look(lambda: Reader("ring:feed"), all_of_them)) == ""


@needs_root
def test_reader_believes_no_other_user_unless_told_to(instance):
    assert as_user(MEMBER, GROUP, lambda: Reader("ring:feed")) == "RegionError"
    os.environ["UDPFAST_TRUST"] = str(OTHER)
    try:
        assert as_user(MEMBER, GROUP, lambda: Reader("ring:feed")) == "RegionError"
    finally:
        del os.environ["UDPFAST_TRUST"]


@needs_root
def test_reader_that_locks_what_it_reads_keeps_no_writer_out(instance):
    """Whoever may read a file may lock it; the lock that decides is where no reader comes."""
    fd = os.open(instance / "ring", os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)

    def take_over():
        with Ring.create(instance, 4096, PAYLOAD_HASH) as ring:
            with pytest.raises(WriterExistsError, match=f"found process {os.getpid()}"):
                Ring.create(instance, 4096, PAYLOAD_HASH)
            ring.append(Kind.MESSAGE, b"x")

    assert as_user(OWNER, GROUP, take_over) == ""
    os.close(fd)


@needs_root
def test_group_taken_back_lets_nobody_in(instance):
    def take_back():
        instance_directory("feed", create=True)
        with Ring.create(instance, 4096, PAYLOAD_HASH):
            assert mode(instance / "ring") == 0o600

    assert as_user(OWNER, GROUP, take_back) == ""
    assert (mode(instance), mode(instance / "readers")) == (0o700, 0o700)
    assert as_user(MEMBER, GROUP, lambda: write(instance / "ring")) == "PermissionError"


@needs_root
def test_group_added_lets_in_to_a_ring_that_goes_on(root, monkeypatch):
    monkeypatch.setenv("UDPFAST_TRUST", "0")
    directory = instance_directory("feed", create=True)
    ring = Ring.create(directory, 4096, PAYLOAD_HASH)
    ring.append(Kind.MESSAGE, b"old")
    ring.region.close()  # as a kill does
    instance_directory("feed", create=True, group=str(GROUP))
    with Ring.create(directory, 4096, PAYLOAD_HASH) as ring:
        assert ring.restarted
        assert mode(directory / "ring") == 0o640
        assert as_user(MEMBER, GROUP, lambda: Reader("ring:feed", start="begin").poll()) == ""


@needs_root
@pytest.mark.filterwarnings("ignore:.*its writer .* has ended")
def test_member_of_the_group_begins_with_the_image_and_cannot_change_it(instance, monkeypatch):
    monkeypatch.setenv("UDPFAST_TRUST", str(OWNER))

    def keep():
        keeper = ImageKeeper(ImageConfig(), instance)
        keeper.on_start()
        keeper.on_stop()

    def join():
        with Reader("ring:feed", image=True) as reader:
            assert not reader.joining  # undecoded messages have no state
            assert reader.index == 1

    assert as_user(OWNER, GROUP, keep) == ""
    assert (mode(instance / "image"), mode(instance / ".image.lock")) == (0o640, 0o600)
    assert (instance / "image").stat().st_gid == GROUP
    assert as_user(MEMBER, GROUP, join) == ""
    assert as_user(MEMBER, GROUP, lambda: write(instance / "image")) == "PermissionError"
    assert as_user(STRANGER, 0, lambda: write(instance / "image")) == "PermissionError"


def test_subscriber_lets_in_the_group_of_its_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "root"))
    group = grp.getgrgid(os.getegid()).gr_name
    lines = [{"name": "A", "address": "127.0.0.1:0"}]
    tables = {"name": "feed", "incremental": {"lines": lines}, "access": {"group": group}}
    tables["ring"] = {"capacity_bytes": 1 << 22}
    tables["image"] = {"enabled": True}
    with Subscriber(tables) as subscriber:
        # The entry of the keeper is its last step.
        wait_until(lambda: list_readers(subscriber.directory), "an image keeper")
        modes = {path.name: mode(path) for path in subscriber.directory.iterdir()}
    assert modes.pop("slab") == 0o600
    assert modes.pop("readers") == 0o3770
    regions = {name for name in modes if not name.startswith(".")}
    assert regions >= {"ring", "counters", "names", "latency", "roster", "image"}
    assert {modes[name] for name in regions} == {0o640}
    assert {found for name, found in modes.items() if name.startswith(".")} == {0o600}


def test_group_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"access.group: .*'no-such'"):
        instance_directory(tmp_path / "feed", create=True, group="no-such")


def test_trust_in_nobody_that_there_is_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("UDPFAST_TRUST", "no-such-user")
    with pytest.raises(ConfigError, match=r"UDPFAST_TRUST: .*'no-such-user'"):
        instance_directory(tmp_path, create=True)


def test_trust_is_said_where_it_is_missing(tmp_path, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("needs root to give a directory away")
    os.chown(tmp_path, OTHER, -1)
    monkeypatch.setenv("UDPFAST_TRUST", f"{MEMBER}")
    message = rf"expected owner 0 \(or root, {MEMBER}\), found {OTHER}; UDPFAST_TRUST names"
    with pytest.raises(RegionError, match=message):
        instance_directory(tmp_path)
