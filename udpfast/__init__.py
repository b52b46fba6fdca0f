"""Market data over UDP, for people who write Python: the public names and nothing else.

Each name is imported on first use (PEP 562), so that `import udpfast` is cheap and a process loads
only the modules that it uses: a strategy never loads the subscriber's sockets.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from udpfast.core.version import VERSION

if TYPE_CHECKING:
    from . import sbe
    from .agents.feed.subscriber import Subscriber
    from .client.app import App
    from .client.batch import Batch
    from .client.books import Books
    from .client.callbacks import Callbacks
    from .client.conflate import Latest
    from .client.counters import counters
    from .client.latency import latency
    from .client.publisher import Publisher
    from .client.reader import Reader
    from .client.record import ReadRecord
    from .core.include import get_include
    from .core.layout import Kind, RecordFlag
    from .errors import (
        ConfigError,
        FormatError,
        ImageError,
        NotReadyError,
        OutboxFullError,
        OutboxLostError,
        RegionError,
        RingClosedError,
        SupersededError,
        UdpfastError,
        WriterExistsError,
    )
    from .market.book import OrderBook

__version__ = VERSION

__all__ = [
    "App",
    "Batch",
    "Books",
    "Callbacks",
    "ConfigError",
    "FormatError",
    "ImageError",
    "Kind",
    "Latest",
    "NotReadyError",
    "OrderBook",
    "OutboxFullError",
    "OutboxLostError",
    "Publisher",
    "ReadRecord",
    "Reader",
    "RecordFlag",
    "RegionError",
    "RingClosedError",
    "Subscriber",
    "SupersededError",
    "UdpfastError",
    "WriterExistsError",
    "__version__",
    "counters",
    "get_include",
    "latency",
    "sbe",
]

_MODULES = ("sbe",)

_HOMES = {
    "App": "client.app",
    "Batch": "client.batch",
    "Books": "client.books",
    "Callbacks": "client.callbacks",
    "ConfigError": "errors",
    "FormatError": "errors",
    "ImageError": "errors",
    "Kind": "core.layout",
    "Latest": "client.conflate",
    "NotReadyError": "errors",
    "OrderBook": "market.book",
    "OutboxFullError": "errors",
    "OutboxLostError": "errors",
    "Publisher": "client.publisher",
    "ReadRecord": "client.record",
    "Reader": "client.reader",
    "RecordFlag": "core.layout",
    "RegionError": "errors",
    "RingClosedError": "errors",
    "Subscriber": "agents.feed.subscriber",
    "SupersededError": "errors",
    "UdpfastError": "errors",
    "WriterExistsError": "errors",
    "counters": "client.counters",
    "get_include": "core.include",
    "latency": "client.latency",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    home = _HOMES.get(name)
    if home is None:
        from .errors import did_you_mean

        hint = "" if name.startswith("_") else did_you_mean(name, __all__)
        # Without `obj`, since Python would add a suggestion of its own.
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}", name=name)
    try:
        value = getattr(import_module(f"{__name__}.{home}"), name)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(f"{__name__}."):
            raise
        raise ImportError(
            f"{error.name} is not compiled in {__path__[0]}: start the program outside of this "
            "folder to use an installed udpfast, or compile it here (make build)",
            name=error.name,
        ) from None
    globals()[name] = value  # the next use finds it without this function
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
