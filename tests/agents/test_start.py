"""Starts that fail: what was there stays as it was, and nobody is told of a new writer."""

import errno
import os
import shutil
import signal
import socket
import traceback

import pytest

from tests.waiting import wait_until
from udpfast.agents.feed.subscriber import Subscriber
from udpfast.archive.run_notes import list_runs
from udpfast.cli.run import say_removed
from udpfast.client.reader import Reader
from udpfast.errors import ConfigError, WriterExistsError
from udpfast.net.ports import free_ports


def instance_settings(port, **more):
    return {
        "name": "test",
        "ring": {"capacity_bytes": 1 << 22},
        "window": {"size": 64},
        "objects": {"max": 64, "collect_bytes": 1 << 20},
        "incremental": {"lines": [{"name": "A", "address": f"127.0.0.1:{port}"}]},
    } | more


def test_settings_that_are_wrong_are_said_without_the_way_through_the_checks():
    settings = instance_settings(1, incremental={"lines": [{"name": "A", "address": "239.1.1.1"}]})
    with pytest.raises(ConfigError) as caught:
        Subscriber(settings)
    assert str(caught.value).endswith(": expected ip:port or [ip6]:port, found '239.1.1.1'")
    assert [frame.name for frame in traceback.extract_tb(caught.tb)][1:] == ["__init__"]


def test_core_that_the_host_does_not_have_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    last = os.sysconf("SC_NPROCESSORS_CONF") - 1
    feed = Subscriber(instance_settings(0, agent={"core": last + 1}))
    said = f"agent.core: expected a core of this host, 0 to {last}, found {last + 1}"
    with pytest.raises(ConfigError, match=said):
        feed.start()


def test_second_subscriber_of_a_name_is_refused_without_the_way_to_the_lock(tmp_path, monkeypatch):
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    settings = instance_settings(0)
    with Subscriber(settings), pytest.raises(WriterExistsError) as caught:
        Subscriber(settings).start()
    assert str(os.getpid()) in str(caught.value)
    assert [frame.name for frame in traceback.extract_tb(caught.tb)][1:] == ["start"]


def state_of(directory):
    """Return what readers of an instance find: contents and permissions, counters of time apart."""
    names = ("ring", "names", "feed.json", "counters", "latency")
    modes = {each: (directory / each).stat().st_mode for each in (".", "readers", *names)}
    return modes, {each: (directory / each).read_bytes() for each in names}


@pytest.mark.parametrize("why", ["port", "room", "names", "roster"])
@pytest.mark.parametrize("ended", ["killed", "closed"])
def test_start_that_fails_leaves_the_instance_as_it_was(tmp_path, monkeypatch, why, ended):
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    port, _ = free_ports(2)
    child = os.fork()
    if child == 0:
        feed = Subscriber(instance_settings(port))
        feed.start()
        if ended == "closed":
            feed.stop()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    directory = tmp_path / "shm" / "test"
    before = state_of(directory)
    more = {"ring": {"capacity_bytes": 1 << 23}, "access": {"group": str(os.getegid())}}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        if why == "port":
            taken.bind(("127.0.0.1", port))
        elif why == "room":
            monkeypatch.setattr(os, "posix_fallocate", raise_no_space_from(3))
        elif why == "names":
            monkeypatch.setattr(os, "posix_fallocate", raise_no_space_from(4))
        else:
            monkeypatch.setattr("udpfast.agents.feed.companions.Roster", raise_no_space_from(0))
        feed = Subscriber(instance_settings(port, **more))
        with pytest.raises(OSError, match=r"in use|No space"):
            feed.start()
    monkeypatch.undo()
    assert state_of(directory) == before
    assert not [each.name for each in directory.iterdir() if each.name.endswith(".next")]


def raise_no_space_from(call):
    calls = iter(range(1000))
    reserve = os.posix_fallocate

    def refuse(*arguments):
        if next(calls) >= call:
            raise OSError(errno.ENOSPC, "No space left on device")
        return reserve(*arguments)

    return refuse


def test_second_start_that_is_refused_changes_no_permission(tmp_path, monkeypatch):
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    first, second = free_ports(2)
    group = {"access": {"group": str(os.getegid())}}
    for mine, other in (({}, group), (group, {})):
        with Subscriber(instance_settings(first, **mine)) as feed:
            modes, _ = state_of(feed.directory)
            with pytest.raises(WriterExistsError, match=str(os.getpid())):
                Subscriber(instance_settings(second, **other)).start()
            assert state_of(feed.directory)[0] == modes


@pytest.mark.parametrize("removed", ["counters", "all"])
def test_feed_whose_files_are_removed_goes_on_and_says_so(tmp_path, monkeypatch, removed, capsys):
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    port, _ = free_ports(2)
    with Subscriber(instance_settings(port)) as feed, Reader("ring:test") as reader:
        before = feed.counters()
        said = {}
        say_removed(feed, said)
        assert not said
        if removed == "counters":
            (feed.directory / "counters").unlink()
        else:
            shutil.rmtree(feed.directory)
        assert feed.counters().keys() == before.keys()
        for _ in range(2):
            say_removed(feed, said)
        assert capsys.readouterr().err.count("removed while the feed runs") == 1
        assert list(list_runs()) == ["test"]
        assert (feed.failure, reader.state) == (None, "alive")


@pytest.mark.parametrize("moved", ["counters", "all"])
def test_feed_whose_files_are_put_back_can_be_found_again(tmp_path, monkeypatch, moved, capsys):
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    with Subscriber(instance_settings(free_ports(1)[0])) as feed:
        place = feed.directory if moved == "all" else feed.directory / "counters"
        said = {}
        place.rename(tmp_path / "elsewhere")
        say_removed(feed, said)
        (tmp_path / "elsewhere").rename(place)
        for _ in range(2):
            say_removed(feed, said)
        assert capsys.readouterr().err.count("its files are there again") == 1
        assert (said, list_runs()) == ({}, {})


def test_image_that_is_removed_while_the_feed_runs_is_made_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    settings = instance_settings(free_ports(1)[0], image={"enabled": True})
    with Subscriber(settings) as feed:
        image = feed.directory / "image"

        def runs(restarts):
            (agent,) = [each for each in feed.agents if each.name == "image"]
            return agent.restarts == restarts and agent.cycles and image.exists()

        wait_until(lambda: runs(0), "the image")
        image.unlink()
        wait_until(lambda: runs(1), "another image")
    assert "the image was removed while the feed runs" in capsys.readouterr().err


def test_feed_of_a_store_has_no_files_of_a_ring_to_be_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    store = {"output": "store", "store": {"directory": str(tmp_path / "store")}}
    with Subscriber(instance_settings(free_ports(1)[0], **store)) as feed:
        said = {}
        say_removed(feed, said)
        assert not said
