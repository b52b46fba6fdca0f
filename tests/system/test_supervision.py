"""`udpfast run` as a service manager sees it: readiness, status, watchdog, end, exit codes."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from tests.system.test_subscriber import send
from tests.waiting import PATIENCE_S, wait_until
from udpfast.cli.main import cli
from udpfast.cli.service import Service
from udpfast.client.counters import counters
from udpfast.client.reader import Reader
from udpfast.core.layout import Kind
from udpfast.log.cursor import RingCursor
from udpfast.log.journal_state import journal_state
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.monitor.metrics import feed_registry
from udpfast.monitor.status import read_host, read_status
from udpfast.monitor.troubles import feed_troubles
from udpfast.shm.roster import AgentEntry, AgentState, Roster, read_roster

pytestmark = pytest.mark.system

#: recv and recvmmsg fail with the errno in the file that FAIL_WITH names, while it is there.
FAILING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

static int failing(void) {
    FILE* file = fopen(getenv("FAIL_WITH"), "r");
    int number = 0;
    if (!file) return 0;
    if (fscanf(file, "%d", &number) != 1) number = 0;
    fclose(file);
    errno = number;
    return number;
}

int bind(int fd, const struct sockaddr* address, socklen_t size) {
    if (failing()) { errno = EADDRNOTAVAIL; return -1; }
    int (*next)(int, const struct sockaddr*, socklen_t) = dlsym(RTLD_NEXT, "bind");
    return next(fd, address, size);
}

ssize_t recv(int fd, void* buffer, size_t size, int flags) {
    if (failing()) return -1;
    ssize_t (*next)(int, void*, size_t, int) = dlsym(RTLD_NEXT, "recv");
    return next(fd, buffer, size, flags);
}

ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
    if (failing()) return -1;
    ssize_t (*next)(int, struct msghdr*, int) = dlsym(RTLD_NEXT, "recvmsg");
    return next(fd, message, flags);
}

int recvmmsg(int fd, struct mmsghdr* messages, unsigned size, int flags, struct timespec* timeout) {
    if (failing()) return -1;
    int (*next)(int, struct mmsghdr*, unsigned, int, struct timespec*)
        = dlsym(RTLD_NEXT, "recvmmsg");
    return next(fd, messages, size, flags, timeout);
}
"""


@pytest.fixture
def feed(port, tmp_path, monkeypatch):
    """Return the file of a feed on loopback."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    path = tmp_path / "feed.toml"
    path.write_text(
        f'name = "test"\nring.capacity_bytes = {1 << 22}\nobjects.collect_bytes = {1 << 20}\n'
        "run.restart_first_ms = 20\nrun.restart_longest_ms = 50\nrun.drain_ms = 600_000\n"
        f'[[incremental.lines]]\nname = "A"\naddress = "127.0.0.1:{port}"\n'
    )
    return path


@pytest.fixture
def start(feed):
    """Return a function that starts `udpfast run`, or another verb, and kills it at the end."""
    processes = []

    def start(verb="run", **environment):
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "udpfast", verb, str(feed)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **environment},
            )
        )
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


class Ear:
    """A service manager's socket."""

    def __init__(self, address):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(address)
        self.sock.settimeout(PATIENCE_S)
        self.heard = []

    def hear(self, beginning):
        """Wait for a notice; return it."""
        while True:
            self.heard += self.sock.recv(4096).decode().splitlines()
            for line in self.heard:
                if line.startswith(beginning):
                    self.heard.remove(line)
                    return line


def test_run_tells_the_service_manager_how_it_goes(start, port, tmp_path):
    name = str(tmp_path / "notify")
    ear = Ear(name)
    process = start(NOTIFY_SOCKET=name, WATCHDOG_USEC="200000")
    ear.hear("READY=1")
    assert ear.hear("MAINPID=") == f"MAINPID={process.pid}"
    assert ear.hear("STATUS=") == "STATUS=running, 0 records, 0 readers"
    for _ in range(3):
        ear.hear("WATCHDOG=1")
    send(port, range(1, 8))
    while ear.hear("STATUS=") not in [f"STATUS=running, {n} records, 0 readers" for n in (8, 9)]:
        pass  # one may come in the middle of them
    process.terminate()
    ear.hear("STOPPING=1")
    assert process.wait(PATIENCE_S) == 0
    ear.sock.close()


@pytest.fixture
def relayed(feed):
    """Let the feed's file say where a relay sends, and no feed start one."""
    lines = '[[relay.lines]]\nname = "B"\nincremental = "127.0.0.1:9"\n'
    feed.write_text(feed.read_text() + lines)


@pytest.mark.usefixtures("relayed")
def test_relay_tells_the_service_manager_how_it_goes(start, port, tmp_path):
    name = str(tmp_path / "notify")
    ear = Ear(name)
    relay = start("relay", NOTIFY_SOCKET=name, WATCHDOG_USEC="200000")
    ear.hear("READY=1")  # a feed that is not there must not keep it from being up
    assert ear.hear("MAINPID=") == f"MAINPID={relay.pid}"
    assert ear.hear("STATUS=") == "STATUS=waits for the feed test"
    for _ in range(3):
        ear.hear("WATCHDOG=1")
    start()
    while not ear.hear("STATUS=").startswith("STATUS=relays "):
        pass
    ear.heard.clear()
    for _ in range(3):
        ear.hear("WATCHDOG=1")
    relay.terminate()
    ear.hear("STOPPING=1")
    assert relay.wait(PATIENCE_S) == 0
    ear.sock.close()


@pytest.mark.usefixtures("relayed")
def test_second_relay_beside_a_feed_ends_with_its_own_exit_code(start):
    assert "test at" in start().stdout.readline()
    first = start("relay")
    assert "relay of test" in first.stderr.readline()
    second = start("relay")
    assert second.wait(PATIENCE_S) == 3
    assert str(first.pid) in second.stderr.read()
    first.terminate()
    assert first.wait(PATIENCE_S) == 0


@pytest.mark.usefixtures("relayed")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_relay_that_was_killed_needs_attention_until_another_runs_and_a_stopped_one_does_not(
    start, how
):
    assert "test at" in start().stdout.readline()
    relay = start("relay")
    assert "relay of test" in relay.stderr.readline()
    assert gone_relays() == []
    relay.send_signal(how)
    assert relay.wait(PATIENCE_S) == (0 if how == signal.SIGTERM else -how)
    text = (
        f"feed test: its relay is gone: process {relay.pid} was killed or failed, and no other has "
        "begun since. What it sent is in doubt at the far end"
    )
    assert gone_relays() == ([] if how == signal.SIGTERM else [text])
    assert "relay of test" in start("relay").stderr.readline()
    assert gone_relays() == []


def gone_relays():
    return [each for each in feed_troubles("test", read_status("test")) if "relay" in each]


@pytest.mark.parametrize(
    ("environment", "watchdog_ns"),
    [
        ({}, 0),
        ({"WATCHDOG_USEC": "1000"}, 0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1000"}, 500_000),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}, 0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "soon"}, 0),
    ],
)
def test_service_knows_when_a_sign_of_life_is_due(environment, watchdog_ns):
    service = Service(environment)
    assert service.watchdog_ns == watchdog_ns
    service.ready()  # nobody is there: nothing fails
    service.alive(1, None)


def test_service_gives_a_sign_of_life_when_one_is_due_and_the_loop_has_turned():
    ear = Ear(f"\0udpfast-test-life-{os.getpid()}")
    service = Service(
        {"NOTIFY_SOCKET": f"@udpfast-test-life-{os.getpid()}", "WATCHDOG_USEC": "1000"}
    )
    given = []
    for now_ns, turns in [
        *((500_000, 7), (999_999, 8), (1_000_000, 7), (1_000_001, 8)),
        *((1_500_001, None), (2_000_001, None)),
    ]:
        service.alive(now_ns, turns)
        service.status(f"{now_ns}")
        given.append(ear.hear("") == "WATCHDOG=1")
        if given[-1]:
            ear.hear("STATUS=")
    assert given == [True, False, False, True, True, True]
    ear.sock.close()


def test_service_finds_an_abstract_socket():
    name = f"udpfast-test-{os.getpid()}"
    ear = Ear(f"\0{name}")
    service = Service({"NOTIFY_SOCKET": f"@{name}"})
    service.status("one")
    service.status("one")
    service.status("two")
    assert [ear.hear("STATUS=") for _ in range(2)] == ["STATUS=one", "STATUS=two"]
    ear.sock.close()


def test_run_of_a_running_instance_ends_with_its_own_exit_code(start):
    first = start()
    assert "test at" in first.stdout.readline()
    second = start()
    assert second.wait(PATIENCE_S) == 3
    assert str(first.pid) in second.stderr.read()
    first.terminate()
    assert first.wait(PATIENCE_S) == 0


def test_run_with_wrong_settings_ends_with_exit_code_2(start, feed):
    feed.write_text("name = 5")
    assert start().wait(PATIENCE_S) == 2


def test_run_without_its_port_ends_with_exit_code_1(start, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", port))
        process = start()
        assert process.wait(PATIENCE_S) == 1
        assert "cannot bind" in process.stderr.read()


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    """Return a library to preload that makes a network go away."""
    library = tmp_path_factory.mktemp("stub") / "libfailing.so"
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library), "-ldl"]
    try:
        subprocess.run(command, input=FAILING, text=True, check=True)
    except FileNotFoundError:
        pytest.skip("no C compiler to build a stub library with")
    return library


def test_run_opens_its_lines_again_when_the_network_is_back(start, port, tmp_path, failing):
    fault = tmp_path / "fault"
    process = start(LD_PRELOAD=str(failing), FAIL_WITH=str(fault))
    assert "test at" in process.stdout.readline()
    directory = tmp_path / "shm" / "test"
    with RingCursor.attach(directory, "begin", payload_hash=PAYLOAD_HASH) as cursor:
        kinds, seqnos = [], []

        def seen(count):
            for header in cursor.headers[: cursor.poll()]:
                kinds.append(Kind(header["kind"]))
                seqnos.extend([int(header["number"])] * bool(header["kind"] == Kind.MESSAGE))
            return len(seqnos) == count

        send(port, range(1, 101))
        wait_until(lambda: seen(100), "messages before")
        fault.write_text("100")  # ENETDOWN
        wait_until(lambda: read_roster(directory)[0].restarts >= 2, "attempts")
        assert "Network is down" in process.stderr.readline()
        with contextlib.suppress(ConnectionRefusedError):  # nobody is there
            send(port, range(101, 151))
        fault.unlink()
        wait_until(lambda: read_roster(directory)[0].state is AgentState.RUNNING, "running")
        send(port, range(151, 201))
        wait_until(lambda: seen(150), "messages after")
        assert seqnos == [*range(1, 101), *range(151, 201)]
        assert kinds.count(Kind.GAP) == 1
        assert Kind.RESTART not in kinds  # the same ring, the same state
        assert cursor.epoch == 1
    values = counters(str(directory))
    assert values["incremental"]["lost"] == 50
    assert values["incremental.A"]["kernel_drops"] == 0
    process.terminate()
    assert process.wait(PATIENCE_S) == 0


def test_readers_are_told_of_silence_while_the_lines_wait_to_be_opened(
    start, feed, port, tmp_path, failing
):
    text = (
        feed.read_text()
        .replace("_ms = 20\n", "_ms = 60000\n")
        .replace("_ms = 50\n", "_ms = 60000\n")
    )
    feed.write_text("session.inactivity_timeout_ms = 50\n" + text)
    fault = tmp_path / "fault"
    process = start(LD_PRELOAD=str(failing), FAIL_WITH=str(fault))
    assert "test at" in process.stdout.readline()
    directory = tmp_path / "shm" / "test"
    with RingCursor.attach(directory, "begin", payload_hash=PAYLOAD_HASH) as cursor:
        kinds = []

        def seen(kind):
            kinds.extend(Kind(header["kind"]) for header in cursor.headers[: cursor.poll()])
            return kind in kinds

        fault.write_text("100")  # ENETDOWN, before anything came: no time to say it
        with contextlib.suppress(ConnectionRefusedError):  # the first of them may close the lines
            send(port, range(1, 11))
        wait_until(lambda: read_roster(directory)[0].state is AgentState.WAITING, "the lines' end")
        wait_until(lambda: seen(Kind.CONNECTION), "the silence")
        assert read_roster(directory)[0].restarts == 0


def test_run_ends_when_an_error_is_not_the_networks(start, tmp_path, failing):
    fault = tmp_path / "fault"
    process = start(LD_PRELOAD=str(failing), FAIL_WITH=str(fault))
    assert "test at" in process.stdout.readline()
    fault.write_text("88")  # ENOTSOCK
    assert process.wait(PATIENCE_S) == 1
    assert "non-socket" in process.stderr.read()
    directory = tmp_path / "shm" / "test"
    with RingCursor.attach(directory, payload_hash=PAYLOAD_HASH) as cursor:
        assert (cursor.life, cursor.closed_by_writer) == ("failed", False)
    assert read_roster(directory)[0].state is AgentState.FAILED
    assert "FAILED" in CliRunner().invoke(cli, ["stat", str(directory)]).output


@pytest.mark.parametrize("output", ["ring", "store"])
def test_feed_that_fails_ends_its_agents_but_no_reader(
    start, feed, port, tmp_path, failing, output
):
    # What is beside it reads the rest and ends; who follows the feed goes on with the next one.
    zmq = f"ipc://{tmp_path}/zmq"
    kept = f'{{directory = "{tmp_path}/kept", segment_bytes = 262144'
    record = f"record = {kept}, enabled = true}}\n"
    if output == "store":
        record = f'output = "store"\nstore = {kept}}}\n'
    image = "image = {enabled = true, capacity_bytes = 65536, objects = 64}\n"
    settings = f'zmq.enabled = true\nzmq.addresses = ["{zmq}"]\n{image}{record}'
    feed.write_text(settings + feed.read_text())
    fault = tmp_path / "fault"
    process = start(LD_PRELOAD=str(failing), FAIL_WITH=str(fault))
    assert "test at" in process.stdout.readline()
    directory = tmp_path / "shm" / "test"
    addresses = [f"zmq:{zmq}"]
    addresses.append(f"ring:{directory}" if output == "ring" else f"store:{tmp_path}/kept")
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(Reader(each, timeout=PATIENCE_S)) for each in addresses]
        there = stack.enter_context(Reader(addresses[-1], timeout=PATIENCE_S))
        send(port, range(1, 4))
        assert any(record.number == 3 for record in there)  # the feed has received all of them
        assert all(reader.wait(PATIENCE_S) for reader in readers)
        wait_until(
            lambda: all(each.state is AgentState.RUNNING for each in read_roster(directory)),
            "the agents' start",
        )
        fault.write_text("88")  # ENOTSOCK
        assert process.wait(PATIENCE_S) == 1
        assert not any(each.failure for each in read_roster(directory)[1:])
        with Reader(f"journal:{tmp_path}/kept") as journal:
            messages = [record.number for record in journal if record.kind is Kind.MESSAGE]
            assert messages == [1, 2, 3]
            assert journal.state == "failed"
        found = [[], []]

        def read(*, until):
            for reader, kinds in zip(readers, found, strict=True):
                kinds.extend(reader.poll(timeout=0.05).headers["kind"].tolist())
            return all(until in kinds for kinds in found)

        read(until=None)
        wait_until(lambda: read(until=None) or {each.state for each in readers} == {"failed"})
        said = read_host().instances["test"]
        assert said.life == "failed"
        assert "has failed: OSError" in feed_troubles("test", said)[0]
        fault.unlink()
        process = start(LD_PRELOAD=str(failing), FAIL_WITH=str(fault))
        # The first of them has a RESTART only if it was back when the fan-out sent it.
        wait_until(lambda: read(until=None) or {each.state for each in readers} == {"alive"})
        wait_until(lambda: read(until=None) or Kind.RESTART in found[1], "the next feed")
        process.terminate()
        process.wait(PATIENCE_S)


def test_run_gives_up_after_so_many_restarts_in_a_row(start, feed, tmp_path, failing):
    feed.write_text("run.feed_restarts = 2\n" + feed.read_text())
    fault = tmp_path / "fault"
    process = start(LD_PRELOAD=str(failing), FAIL_WITH=str(fault))
    assert "test at" in process.stdout.readline()
    fault.write_text("100")
    assert process.wait(PATIENCE_S) == 1
    (feed_entry,) = read_roster(tmp_path / "shm" / "test")
    assert (feed_entry.state, feed_entry.restarts) == (AgentState.FAILED, 2)


def test_run_says_why_an_agent_beside_the_feed_failed(start, feed, tmp_path):
    with feed.open("a") as file:
        file.write(f'[record]\nenabled = true\ndirectory = "{feed}/no/directory"\n')
    process = start()
    line = process.stderr.readline()
    while "agent record failed" not in line:
        assert line, "the process ended"
        line = process.stderr.readline()
    assert str(feed) in line


def test_stat_shows_the_agents_of_a_dead_instance(start, tmp_path):
    process = start()
    assert "test at" in process.stdout.readline()
    process.kill()
    process.wait()
    directory = str(tmp_path / "shm" / "test")
    shown = CliRunner().invoke(cli, ["stat", directory]).output
    assert "DEAD" in shown
    assert "agent feed: was running" in shown
    (feed,) = json.loads(CliRunner().invoke(cli, ["stat", directory, "--json"]).output)["agents"]
    assert feed["pid"] == process.pid


def test_run_later_signal_does_not_wait_for_the_drain(start, feed, tmp_path):
    settings = 'run.processes = "each"\nimage.enabled = true\n'
    feed.write_text(settings + feed.read_text())
    process = start()
    assert "test at" in process.stdout.readline()
    directory = tmp_path / "shm" / "test"
    wait_until(lambda: read_roster(directory)[1].cycles, "a turn of the image keeper")
    keeper = read_roster(directory)[1].pid
    os.kill(keeper, signal.SIGSTOP)  # it will never have read what is left
    try:
        with RingCursor.attach(directory, payload_hash=PAYLOAD_HASH) as cursor:
            process.terminate()
            wait_until(lambda: cursor.closed_by_writer, "the end of the feed")
        # Those of the first second are the same wish; then one is another.
        wait_until(lambda: process.poll() is not None or process.terminate(), "the end")
        assert process.returncode == 1  # the agent did not finish
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(keeper, signal.SIGKILL)


def test_run_says_that_its_loop_stood_still_and_counts_it(start, tmp_path):
    process = start()
    assert "test at" in process.stdout.readline()
    # A loop that has not turned yet has not stood still.
    wait_until(lambda: read_roster(tmp_path / "shm" / "test")[0].cycles, "a turn of the loop")
    process.send_signal(signal.SIGSTOP)
    time.sleep(1.5)
    process.send_signal(signal.SIGCONT)
    assert "test: the loop stood still for " in process.stderr.readline()
    counted = counters(str(tmp_path / "shm" / "test"))["feed"]
    assert counted["stalls"] >= 1
    assert counted["stalled_ns"] >= 1_000_000_000


def test_feed_that_takes_over_from_a_killed_one_says_that_nobody_knows_what_is_missing(
    start, tmp_path
):
    first = start()
    assert "test at" in first.stdout.readline()
    directory = tmp_path / "shm" / "test"
    assert counters(str(directory))["feed"]["took_over"] == 0
    first.kill()
    first.wait(PATIENCE_S)
    second = start()
    said = second.stderr.readline()
    assert f"test: takes over from process {first.pid}, which was killed; " in said
    assert counters(str(directory))["feed"]["took_over"] == 1
    shown = CliRunner().invoke(cli, ["stat"]).output
    assert " 0 + ? " in shown
    assert "feed test was started again " in shown
    second.terminate()
    assert second.wait(PATIENCE_S) == 0
    third = start()
    assert "test at" in third.stdout.readline()
    assert counters(str(directory))["feed"]["took_over"] == 0  # the one before ended as it should


def test_feed_behind_a_host_that_stopped_says_so_by_its_journal(start, feed, port, tmp_path):
    journal = tmp_path / "journal"
    feed.write_text(feed.read_text() + f'[record]\nenabled = true\ndirectory = "{journal}"\n')
    first = start()
    assert "test at" in first.stdout.readline()
    send(port, range(1, 4))
    wait_until(lambda: (journal / "journal").exists() and journal_state(journal).index, "a record")
    for agent in reversed(read_roster(tmp_path / "shm" / "test")):  # the recorder first
        with contextlib.suppress(ProcessLookupError):
            os.kill(agent.pid, signal.SIGKILL)
    first.wait(PATIENCE_S)
    wait_until(lambda: not journal_state(journal).alive, "its end")
    shutil.rmtree(tmp_path / "shm" / "test")
    second = start()
    assert "test: its journal was not closed" in second.stderr.readline()
    assert counters(str(tmp_path / "shm" / "test"))["feed"]["took_over"] == 1
    wait_until(lambda: journal_state(journal).alive, "its recorder")
    second.terminate()
    assert second.wait(PATIENCE_S) == 0
    shutil.rmtree(tmp_path / "shm" / "test")
    third = start()
    assert "test at" in third.stdout.readline()
    assert counters(str(tmp_path / "shm" / "test"))["feed"]["took_over"] == 0


def test_feed_that_is_stopped_to_be_started_again_is_not_called_dead(start, capsys, monkeypatch):
    process = start()
    assert "test at" in process.stdout.readline()
    process.send_signal(signal.SIGUSR1)
    assert process.wait(PATIENCE_S) == 4
    status = read_status("test")
    assert (status.state, status.life, status.life_shown) == ("left", "paused", "paused")
    assert feed_troubles("test", status) == []
    shown = CliRunner().invoke(cli, ["stat", "test"])
    assert shown.exit_code == 0
    assert "test: stopped, to be started again, writer" in shown.output.splitlines()[0]
    assert gauge("udpfast_feed_ended") == 1
    assert gauge("udpfast_feed_up") == 0
    # It lasts.
    monkeypatch.setattr("udpfast.monitor.status.PAUSED_NS", 0)
    status = read_status("test")
    assert status.life_shown == "PAUSED"
    (text,) = feed_troubles("test", status)
    assert text.startswith("feed test was stopped, to be started again, 0 s ago")
    assert gauge("udpfast_feed_ended") == 0
    assert CliRunner().invoke(cli, ["stat", "test"]).exit_code == 1


def gauge(name):
    """Return a metric of the one feed."""
    return feed_registry(("test",)).get_sample_value(name, {"feed": "test"})


def test_feed_that_lost_its_supervisor_needs_attention_at_once(start):
    process = start()
    assert "test at" in process.stdout.readline()
    process.send_signal(signal.SIGUSR1)
    assert process.wait(PATIENCE_S) == 4
    directory = read_status("test").path
    with Roster(directory, 1) as roster:
        roster.publish()
        why = "its supervisor, process 7, has ended"
        roster.write([AgentEntry("feed", AgentState.FAILED, failure=why)], time.time_ns())
    assert feed_troubles("test", read_status("test")) == [f"feed test has ended: {why}"]
