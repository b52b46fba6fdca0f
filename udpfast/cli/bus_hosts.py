"""Daemons of a bus as processes of this host, each with a loopback address of its own."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from msgspec import Struct, field

from udpfast.archive.bus_files import Live, LiveState, read_description
from udpfast.archive.store import StoreView
from udpfast.cli.child import child_command
from udpfast.client.app import App
from udpfast.core.layout import Kind
from udpfast.errors import NotReadyError, UdpfastError

__all__ = ["PATIENCE_S", "STORE", "BusCopy", "BusHosts"]

#: The one store that they have.
STORE = "orders"
#: Seconds after which what did not happen never will: a whole trial takes 130 where twenty programs
#: share each core.
PATIENCE_S = 300.0


class BusCopy(Struct):
    """What one host's copy of the store has.

    Attributes
    ----------
    sha256 : str
        Of all records.
    records : int
    numbers : dict
        (number of a sender, incarnation) -> numbers of its messages, in the order of the stream.
    """

    sha256: str = ""
    records: int = 0
    numbers: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    @property
    def messages(self) -> int:
        """How many there are."""
        return sum(map(len, self.numbers.values()))

    @property
    def twice(self) -> int:
        """How many of them were there before."""
        return self.messages - sum(len(set(each)) for each in self.numbers.values())

    @property
    def in_order(self) -> bool:
        """Whether of each sender there are 1 to n, each once, in order."""
        return all(each == list(range(1, len(each) + 1)) for each in self.numbers.values())


class BusHosts:
    """Hosts of a bus, and their daemons. Its store is `orders`, unless another one is named.

    Parameters
    ----------
    folder : pathlib.Path
        Files of settings, stores and logs go here.
    hosts : mapping
        Name -> address.
    settings : str
        Lines of the store's table, but for its port.
    port : int
    options : sequence of str
        Of each daemon.
    sees : mapping, optional
        Host -> addresses by which it goes where they are others than the real ones.
    tables : str
        Of further stores and composites.
    """

    def __init__(
        self,
        folder: Path,
        hosts: Mapping[str, str],
        settings: str,
        port: int,
        *,
        options: Sequence[str] = (),
        sees: Mapping[str, Mapping[str, str]] | None = None,
        tables: str = "",
    ) -> None:
        self.folder = folder
        self.hosts = dict(hosts)
        self.port = port
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._options = tuple(options)
        for host in hosts:
            known = {**hosts, **((sees or {}).get(host) or {})}
            lines = "\n".join(f'{name} = "{address}"' for name, address in known.items())
            self.file(host).write_text(
                f"[hosts]\n{lines}\n\n[stores.{STORE}]\nport = {port}\n{settings}\n{tables}"
            )

    def file(self, host: str) -> Path:
        """Return the settings of a host."""
        return self.folder / f"{host}.toml"

    def path(self, host: str, store: str = STORE) -> Path:
        """Return the directory of its copy."""
        return self.folder / host / store

    def start(self, host: str, *options: str) -> None:
        """Start its daemon."""
        with (self.folder / f"{host}.log").open("ab") as log:
            self.daemons[host] = subprocess.Popen(
                child_command("bus", "run", str(self.file(host)), "--host", host, "--directory",
                              str(self.folder / host), *self._options, *options),
                stdout=log, stderr=log,
            )  # fmt: skip

    def kill(self, host: str, how: int = signal.SIGKILL) -> None:
        """End its daemon."""
        self.daemons[host].send_signal(how)
        self.daemons[host].wait()

    def promote(self, host: str) -> None:
        """Make it the writer."""
        subprocess.run(
            [sys.executable, "-m", "udpfast", "bus", "promote", str(self.file(host)), STORE,
             "--host", host, "--directory", str(self.folder / host), "--wait", str(PATIENCE_S)],
            check=True, stdout=subprocess.DEVNULL)  # fmt: skip

    def close(self) -> None:
        """End what runs."""
        for daemon in self.daemons.values():
            if daemon.poll() is None:
                daemon.kill()
                daemon.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def until(
        self,
        holds: Callable[[], object],
        what: str,
        meanwhile: Callable[[], object] = lambda: None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Wait until something holds.

        Raises
        ------
        UdpfastError
            It never did, or not before a process failed; the message has `what`, and the end of
            each one's log.
        """
        deadline = time.monotonic() + patience_s
        failed = ""
        while not holds():
            # Asked once more first: a process that failed may be what is waited for.
            if failed or time.monotonic() > deadline:
                logs = "".join(f"\n{path.name}: {path.read_text(errors='replace')[-800:]}"
                               for path in self.folder.glob("*.log"))  # fmt: skip
                raise UdpfastError(
                    f"{failed or 'waited too long'} for {what}; see the logs: {self.folder}{logs}"
                )
            meanwhile()
            time.sleep(0.001)
            failed = self._failed()

    def processes(self) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
        """Iterate over all that should run, by its name."""
        yield from self.daemons.items()

    def _failed(self) -> str:
        # What failed by itself. 0 and SIGKILL: it was told to end.
        ended = [f"{name} ended with status {code}" for name, process in self.processes()
                 if (code := process.poll()) not in (None, 0, -signal.SIGKILL)]  # fmt: skip
        return f"{', '.join(ended)} in a wait" if ended else ""

    def app(self, host: str, name: str, store: str = STORE, **options: Any) -> App:
        """Return an app of a host, as soon as its daemon has run."""
        found: list[App] = []

        def ready() -> bool:
            try:
                found.append(App(f"store:{self.path(host, store)}", name, **options))
            except (NotReadyError, FileNotFoundError):
                return False
            return True

        self.until(ready, f"the daemon of {host}")
        return found[0]

    def state(self, host: str) -> dict[str, Any]:
        """Return what its daemon said last, for tools."""
        return read_description(self.path(host))

    def lives(self, host: str, store: str = STORE) -> LiveState:
        """Return what its daemon said last, to apps."""
        return Live(self.path(host, store)).read()

    def is_writer(self, host: str) -> bool | None:
        """Say whether a host's daemon says so; None: the one that runs said nothing so far."""
        state = self.state(host)
        return bool(state["writer"]) if state["pid"] == self.daemons[host].pid else None

    def are_equal(self, store: str = STORE) -> bool:
        """Whether all copies end at the same position, in the same epoch."""
        states = [self.lives(host, store) for host in self.hosts]
        return len({(state.end, state.epoch) for state in states}) == 1

    def copy(self, host: str, first: int = 0, store: str = STORE) -> BusCopy:
        """Read the copy of a host, from a position on if it has more."""
        found = BusCopy()
        digest = hashlib.sha256()
        view = StoreView(self.path(host, store))
        for record in view.records(max(view.first()[0], first), self.lives(host, store).end):
            digest.update(record)
            found.records += 1
            if record[4] == Kind.BUS:
                sender = (int.from_bytes(record[48:50], "little"),
                          int.from_bytes(record[52:56], "little"))  # fmt: skip
                number = int.from_bytes(record[40:48], "little")
                found.numbers.setdefault(sender, []).append(number)
        found.sha256 = digest.hexdigest()
        return found
