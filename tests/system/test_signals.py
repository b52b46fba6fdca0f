"""Any number of signals, at any moment, to every verb that runs long: it ends in order, once."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.system.feed_files import feed
from tests.waiting import PATIENCE_S, wait_until
from udpfast.core.stop import HURRY_NS, stop_signals
from udpfast.log.cursor import RingCursor
from udpfast.market.updates import PAYLOAD_HASH
from udpfast.net.ports import free_port

pytestmark = pytest.mark.system

ASKED = stop_signals()
#: Seconds between two signals: timeout(1) sends two within 0.2 ms.
GAPS_S = (0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)

#: By which NiceGUI finds that it is tested, and does not serve.
PYTEST = ("PYTEST_CURRENT_TEST", "PYTEST_VERSION")

#: What the interpreter says that Ctrl-C interrupts before it has read a line of udpfast.
NOT_BEGUN = "Fatal Python error: init_import_site"


class Trial:
    """One process of `udpfast`, and seeded signals.

    Parameters
    ----------
    arguments : list of str
    folder : Path
        Has what it prints.
    """

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self.log = folder / f"log-{time.monotonic_ns()}"
        # Whoever runs the tests may ignore hang-ups, as nohup does, and children inherit that.
        before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
        try:
            with self.log.open("w") as output:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "udpfast", *arguments],
                    stdout=output,
                    stderr=output,
                    env={key: value for key, value in os.environ.items() if key not in PYTEST},
                )
        finally:
            signal.signal(signal.SIGHUP, before)

    def strike(self, chance: random.Random) -> list[int]:
        """Send one to eight signals, as the seed says; return them."""
        sent: list[int] = []
        began_ns = time.monotonic_ns()
        for _ in range(chance.randint(1, 8)):
            if self.process.poll() is not None:
                break
            sent.append(chance.choice(ASKED))
            self.process.send_signal(sent[-1])
            # On a host that is held up, one that comes much later would be another wish.
            if time.monotonic_ns() - began_ns > HURRY_NS // 2:
                break
            time.sleep(chance.choice(GAPS_S))
        return sent

    def end(self, sent: list[int], what: str, codes: tuple[int, ...], begun: bool) -> None:
        """Expect the end by one of the codes, or, if it had not begun, by a signal."""
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        text = self.log.read_text()
        if not begun and signal.SIGINT in sent and code == 1 and text.startswith(NOT_BEGUN):
            return
        early = () if begun else (130, *(-number for number in sent))
        assert code in (*codes, *early), f"{what}: exit code {code}, after {sent}: {text}"
        assert "Fatal" not in text, f"{what}: {text}"
        assert not begun or "Traceback" not in text, f"{what}: {text}"


def listens(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has handlers of its own for all signals that are sent here."""
    if process.poll() is not None:
        return False
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return all(caught >> (number - 1) & 1 for number in ASKED)


def storm(
    folder: Path,
    seeds: range,
    arguments: Callable[[int], list[str]],
    codes: tuple[int, ...] = (0,),
    check: Callable[[int], None] = lambda seed: None,
    longest_s: float = 0.3,
) -> None:
    """Strike a process per seed: while it begins, or up to `longest_s` after it listens."""
    for seed in seeds:
        chance = random.Random(seed)
        trial = Trial(arguments(seed), folder)
        begun = chance.random() < 0.85
        if begun:
            wait_until(
                lambda trial=trial: listens(trial.process) or trial.process.poll() is not None
            )
            time.sleep(chance.uniform(0, longest_s) * chance.random())
        else:
            time.sleep(chance.uniform(0, 0.4))
        begun = begun or listens(trial.process)
        sent = trial.strike(chance)
        trial.end(sent, f"seed {seed}", codes, begun)
        if begun:
            check(seed)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the place of everything that a test writes."""
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "shm"))
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path / "journals"))
    return tmp_path


def test_run_ends_in_order_however_often_it_is_told_to(home: Path) -> None:
    # However long a busy host takes to start a recorder only to end it: it ends by itself.
    record = (
        "[run]\ndrain_ms = 300000\n"
        '[record]\nenabled = true\nwhat = "both"\nsegment_bytes = 262144\n'
        "[image]\nenabled = true\ncapacity_bytes = 65536\nobjects = 64\n"
    )
    files = {seed: feed(home, f"f{seed}", record if seed % 4 == 0 else "") for seed in range(8)}

    def check(seed: int) -> None:
        directory = home / "shm" / f"f{seed}"
        if (directory / "ring").exists():
            with RingCursor.attach(directory, payload_hash=PAYLOAD_HASH) as cursor:
                assert cursor.closed_by_writer, f"seed {seed}: the ring was not closed"

    storm(home, range(8), lambda seed: ["run", str(files[seed])], check=check)


def test_record_ends_in_order_however_often_it_is_told_to(home: Path) -> None:
    process = Trial(["run", str(feed(home, "f"))], home).process
    try:
        wait_until((home / "shm/f/ring").exists)
        storm(home, range(4), lambda seed: ["record", "f", f"{home}/j{seed}"])
    finally:
        process.terminate()
    assert process.wait(PATIENCE_S) == 0


def test_metrics_and_monitor_end_in_order_however_often_they_are_told_to(home: Path) -> None:
    # Not imported here, which takes half a second.
    if None in (find_spec("prometheus_client"), find_spec("nicegui")):
        pytest.skip("expected udpfast[monitor]")

    def arguments(seed: int) -> list[str]:
        return [("metrics", "monitor")[seed % 2], "--listen", f"127.0.0.1:{free_port()}"]

    storm(home, range(2), arguments, longest_s=1.5)


def test_bus_run_ends_in_order_however_often_it_is_told_to(home: Path) -> None:
    (home / "bus.toml").write_text(
        '[hosts]\nS = "127.0.0.1"\n[stores.orders]\nsequencer = "S"\nreplicas = []\n'
        f"port = {free_port()}\nsegment_bytes = 262144\n"
    )
    storm(
        home,
        range(4),
        lambda seed: ["bus", "run", f"{home}/bus.toml", "--host", "S", "--directory", f"{home}/S"],
    )


def test_replay_ends_once_by_the_first_of_many_signals(home: Path) -> None:
    record = "[record]\nenabled = true\nsegment_bytes = 262144\n"
    process = Trial(["run", str(feed(home, "f", record))], home).process
    wait_until((home / "journals/f").exists)
    process.terminate()
    assert process.wait(PATIENCE_S) == 0
    ended = tuple(128 + number for number in ASKED)
    storm(
        home,
        range(4),
        lambda seed: ["replay", "f", "--to", f"ring:r{seed}"],
        codes=(0, *ended),
        longest_s=0.2,
    )


def children(pid: int) -> list[int]:
    """Return the pids of a process's children."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in text.split()]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_demo_that_is_killed_leaves_no_process_behind(
    home: Path, monkeypatch: pytest.MonkeyPatch, how: int
) -> None:
    monkeypatch.setenv("TMPDIR", str(home))
    process = Trial(["demo", "--simulate", "--seconds", "60"], home).process
    wait_until(lambda: len(children(process.pid)) == 4, "the four processes")
    born = children(process.pid)
    process.send_signal(how)
    assert process.wait(PATIENCE_S) == (-9 if how == signal.SIGKILL else 128 + how)
    wait_until(lambda: not any(alive(pid) for pid in born), "the end of all of them")


def alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


LIBRARY = """
import random, signal, sys, time
from udpfast import Subscriber
from udpfast.log.cursor import RingCursor
from udpfast.market.updates import PAYLOAD_HASH

armed, struck = [], 0

def strike(*_):
    global struck
    if armed:
        struck += 1
        raise KeyboardInterrupt

def turns_of(subscriber):
    # A loop that runs on counts its turns.
    time.sleep(0.002)
    return (subscriber.directory / "counters").exists() and subscriber.counters()["feed"]["cycles"]

def attempt(seed):
    chance = random.Random(seed)
    lines = [{"name": "A", "address": "127.0.0.1:0"}]
    tables = {"name": f"s{seed}", "ring": {"capacity_bytes": 1 << 22},
              "objects": {"collect_bytes": 1 << 16}, "incremental": {"lines": lines},
              "image": {"enabled": seed % 2 == 0, "capacity_bytes": 1 << 16, "objects": 64}}
    subscriber = Subscriber(tables)
    try:
        try:
            armed.append(1)
            signal.setitimer(
                signal.ITIMER_REAL, chance.uniform(1e-4, 0.06), chance.uniform(2e-4, 3e-3))
            with subscriber:
                time.sleep(chance.uniform(0, 0.03))
        finally:
            armed.clear()
    except KeyboardInterrupt:
        armed.clear()
    subscriber.stop()  # for a strike just before the first step of `with`, which begins nothing
    signal.setitimer(signal.ITIMER_REAL, 0)
    turned = turns_of(subscriber)
    assert turned == turns_of(subscriber), seed
    if (subscriber.directory / "ring").exists():
        with RingCursor.attach(subscriber.directory, payload_hash=PAYLOAD_HASH) as cursor:
            assert cursor.closed_by_writer, seed

signal.signal(signal.SIGALRM, strike)
for seed in range(int(sys.argv[1]), int(sys.argv[2])):
    attempt(seed)
print("ended in order, struck:", struck > 0)
"""


def test_subscriber_of_a_program_that_is_interrupted_again_and_again_ends_in_order() -> None:
    command = [sys.executable, "-c", LIBRARY, "0", "8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout) == (0, "ended in order, struck: True\n"), done.stderr


WAITING = """
import sys
from udpfast import Subscriber
with Subscriber(sys.argv[1]) as subscriber:
    print("waits", flush=True)
    subscriber.join()
    sys.exit(3)  # after the signal, in the middle of which more of them come
"""


def test_program_that_waits_with_join_ends_in_order_by_two_signals(home: Path) -> None:
    for seed in range(4):
        path = feed(home, f"f{seed}")
        command = [sys.executable, "-c", WAITING, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "waits\n"
            wait_until(lambda process=process: listens(process))
            for _ in range(2):
                process.send_signal(signal.SIGTERM)
                time.sleep(1e-4 * seed)
            # A signal that comes when all has been stopped has its ordinary effect again.
            assert process.wait(PATIENCE_S) in (3, -signal.SIGTERM)
        with RingCursor.attach(home / f"shm/f{seed}", payload_hash=PAYLOAD_HASH) as cursor:
            assert cursor.closed_by_writer
