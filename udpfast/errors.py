"""The exceptions of udpfast: one root, so that a caller can catch them all."""

from collections.abc import Iterable

__all__ = [
    "ConfigError",
    "FormatError",
    "ImageError",
    "NotReadyError",
    "OutboxFullError",
    "OutboxLostError",
    "RangeError",
    "RegionError",
    "RingClosedError",
    "SupersededError",
    "UdpfastError",
    "WriterExistsError",
    "did_you_mean",
    "sentence",
    "shown",
    "unexpected_keyword",
]

#: Characters of a value in an error.
_SHOWN_MAX = 200


class UdpfastError(Exception):
    """The root of every exception that udpfast raises by name.

    Errors of the operating system stay `OSError` (see `core.oserr`): the errno says more.
    """


class ConfigError(UdpfastError, ValueError):
    """A setting is unknown or wrong; names file, key, what was expected and what was found."""


class FormatError(UdpfastError, ValueError):
    """Bytes that are not what they should be: a file, a capture, a region of another layout."""


class RangeError(UdpfastError, ValueError, OverflowError):
    """A number does not fit its field; names the field, its range, and the number."""


class RegionError(FormatError):
    """A shared-memory file was refused: wrong magic, version, layout, size, owner or mode."""


class NotReadyError(RegionError):
    """Its writer has not made it, or not finished: try again when it runs, or in a moment."""


class ImageError(UdpfastError):
    """There is no image that a late reader could begin with; says why."""


class OutboxFullError(UdpfastError):
    """So much is on its way that no more can be accepted; nothing was dropped."""


class OutboxLostError(UdpfastError):
    """Messages that were let go are not in the stream any more: several hosts lost their power."""


class RingClosedError(UdpfastError):
    """The ring's writer closed it, and nothing more will come."""


class SupersededError(UdpfastError):
    """Another process sends under this name; says how many messages are not in the stream."""


class WriterExistsError(UdpfastError):
    """Another live process already writes this region: one writer per thing."""


def shown(value: object) -> str:
    """Return a value as an error shows it: never longer than a few lines."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits, perhaps inside
        return f"<{type(value).__name__} too long to print>"
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def sentence(error: Exception) -> str:
    """Return what an error says: of one of the system's the file and the reason, and no number."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of an error, which names what is like a word that is not known, or nothing."""
    import difflib

    near = difflib.get_close_matches(word, known)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def unexpected_keyword(called: type, unknown: Iterable[str]) -> TypeError:
    """Return the error of a class that was called with a keyword that it does not have."""
    import inspect

    known = list(inspect.signature(called).parameters)
    word = next(iter(unknown))
    hint = did_you_mean(word, known) or f"; it has {', '.join(known)}"
    return TypeError(f"{called.__name__}() has no keyword {word!r}{hint}")
