"""Sockets of the ZeroMQ fan-out: XPUB, with bounded queues, and CURVE if configured.

Unix sockets and TCP use separate sockets: CURVE protects TCP, file modes protect Unix sockets.
"""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from udpfast.config import ZmqConfig
from udpfast.errors import ConfigError
from udpfast.net.envelope import TOPIC_SIZE_MAX

__all__ = ["Outlets", "try_outlets"]

#: Milliseconds for which queued messages may still be sent when the fan-out ends.
LINGER_MS = 500


class Outlets:
    """The sockets that a fan-out sends on.

    Parameters
    ----------
    config : ZmqConfig
        Settings of the fan-out.
    directory : Path
        Directory of the instance, in which "ipc" is bound.

    Attributes
    ----------
    sockets : list of zmq.Socket
        One for Unix sockets, one for TCP, as configured.
    addresses : list of str
        Endpoints that they are bound to, with the port that "tcp://...:*" got.

    Raises
    ------
    ConfigError
        An address cannot be bound, or a key cannot be used.
    """

    def __init__(self, config: ZmqConfig, directory: Path) -> None:
        import zmq

        self.sockets: list[Any] = []
        self.addresses: list[str] = []
        self._authenticator: Any = None
        # Its own context, with one thread: nothing else in this process depends on it.
        self._context = zmq.Context(1)
        self._ipc: list[tuple[Path, int]] = []  # Unix sockets, with their inodes
        try:
            self._open(config, directory)
        except BaseException:
            self.close(linger_ms=0)
            raise

    def _open(self, config: ZmqConfig, directory: Path) -> None:
        local = [f"ipc://{directory}/zmq" if a == "ipc" else a for a in config.addresses]
        for scheme in ("ipc", "tcp"):
            addresses = [a for a in local if a.startswith(f"{scheme}://")]
            if not addresses:
                continue
            socket = self._socket(config)
            if scheme == "tcp" and config.curve_key:
                self._guard(socket, config)
            for address in addresses:
                self._bind(socket, address)

    def _socket(self, config: ZmqConfig) -> Any:
        import zmq

        socket = self._context.socket(zmq.XPUB)
        self.sockets.append(socket)
        # Most messages queued for a slow subscriber; it misses those beyond.
        socket.setsockopt(zmq.SNDHWM, max(2, config.queue_bytes // config.batch_bytes))
        socket.setsockopt(zmq.XPUB_MANUAL, 1)
        # Subscribers send only topics; one that sends a longer message is disconnected.
        socket.setsockopt(zmq.MAXMSGSIZE, TOPIC_SIZE_MAX + 64)
        socket.setsockopt(zmq.LINGER, LINGER_MS)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        # Drop peers that disappeared without closing, and the messages queued for them.
        socket.setsockopt(zmq.HEARTBEAT_IVL, 5_000)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 30_000)
        return socket

    def _bind(self, socket: Any, address: str) -> None:
        import zmq

        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            raise ConfigError(
                f"zmq.addresses: expected an address to bind to, cannot bind to {address!r}: "
                f"{error.strerror}"
            ) from None
        bound = socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.addresses.append(bound)
        if bound.startswith("ipc://"):
            path = Path(bound.removeprefix("ipc://"))
            # Connecting needs the right to write: grant it to users who may read the instance.
            shared = path.parent.stat().st_mode & stat.S_ISGID
            path.chmod(0o660 if shared else 0o600)
            self._ipc.append((path, path.stat().st_ino))

    def _guard(self, socket: Any, config: ZmqConfig) -> None:
        # A thread of pyzmq admits clients whose keys are in a directory.
        import zmq
        from zmq.auth.thread import ThreadAuthenticator

        public, secret = load_secret(config.curve_key, "zmq.curve_key")
        socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, public)
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        self._authenticator = ThreadAuthenticator(self._context)
        self._authenticator.start()
        if not config.curve_clients:
            self._authenticator.configure_curve(domain="*", location=zmq.auth.CURVE_ALLOW_ANY)
            return
        if not Path(config.curve_clients).is_dir():
            raise ConfigError(
                "zmq.curve_clients: expected a directory of public keys, found "
                f"{config.curve_clients!r}"
            )
        self._authenticator.configure_curve_callback("*", Clients(config.curve_clients))

    def close(self, linger_ms: int = LINGER_MS) -> None:
        """Close all sockets; queued messages are sent for up to `linger_ms`. Idempotent."""
        for socket in self.sockets:
            socket.close(linger=linger_ms)
        self.sockets = []
        if self._authenticator is not None:
            self._authenticator.stop()
            self._authenticator = None
        self._context.term()
        for path, inode in self._ipc:
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_ino == inode:  # another fan-out may have bound it meanwhile
                    path.unlink()
        self._ipc = []


def try_outlets(config: ZmqConfig) -> None:
    """Bind for a moment what `Outlets` would bind outside the instance; raise what it would.

    Whoever binds a Unix socket takes it from the process that has it, so another one beside it is
    bound, which its directory must allow as well.
    """
    wanted = dict.fromkeys(
        f"ipc://{Path(each.removeprefix('ipc://')).parent / '.udpfast'}"
        if each.startswith("ipc://")
        else each
        for each in config.addresses
        if each != "ipc"
    )
    Outlets(replace(config, addresses=tuple(wanted)), Path()).close(linger_ms=0)


class Clients:
    """Admits clients whose key is in a directory at the time they connect.

    Parameters
    ----------
    directory : str
        Directory of public keys, as `zmq.auth.create_certificates` makes them.
    """

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    def callback(self, domain: str, key: bytes) -> bool:
        """Return whether a client with this key may connect; called by the authenticator."""
        import zmq.auth

        # An unreadable key must not lock out the other clients.
        for path in self._directory.glob("*.key"):
            with contextlib.suppress(OSError, ValueError):
                if zmq.auth.load_certificate(path)[0] == key:
                    return True
        return False


def load_secret(path: str, key: str) -> tuple[bytes, bytes]:
    """Return the public and secret key of a file that `zmq.auth.create_certificates` made.

    Raises
    ------
    ConfigError
        The file is unreadable, has no secret key, or other users may read it.
    """
    import zmq.auth

    try:
        mode = stat.S_IMODE(Path(path).stat().st_mode)
        public, secret = zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{key}: expected a CURVE key file, cannot read {path!r}: {error}"
        ) from None
    if secret is None:
        raise ConfigError(f"{key}: expected a file with a secret key, found none in {path!r}")
    if mode & 0o077:
        raise ConfigError(
            f"{key}: expected {path!r} to be readable only by its owner (chmod 600), found mode "
            f"{mode:04o}"
        )
    return public, secret
