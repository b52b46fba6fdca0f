"""The exceptions of udpfast: one root, so that a caller can catch them all."""

from collections.abc import Iterable

__all__ = [
    "ConfigError",
    "ExtraError",
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
    "similar",
    "unexpected_keyword",
]

#: Most characters of a value in an error message.
_SHOWN_MAX = 200


class UdpfastError(Exception):
    """The base class of all exceptions that udpfast defines.

    Errors of the operating system stay `OSError` (see `core.oserr`), as callers need the errno.
    """


class ConfigError(UdpfastError, ValueError):
    """A setting or argument is unknown or wrong; states its name, the expected and found value."""


class ExtraError(ConfigError, ImportError):
    """A package of an optional extra of udpfast is not installed; states how to install it."""


class FormatError(UdpfastError, ValueError):
    """Bytes do not have the expected format: a file, a capture, or a region of another layout."""


class RangeError(UdpfastError, ValueError, OverflowError):
    """A number does not fit its field; states the field, its range, and the number."""


class RegionError(FormatError):
    """A shared-memory file was refused: wrong magic, version, layout, size, owner or mode."""


class NotReadyError(RegionError):
    """The writer has not created this yet: start the writer, or try again in a moment."""


class ImageError(UdpfastError):
    """There is no usable image for a reader that joins late; states why."""


class OutboxFullError(UdpfastError):
    """The outbox is full, so this message was not accepted; no other message was dropped."""


class OutboxLostError(UdpfastError):
    """The stream lost messages that it already had, because several hosts lost their power."""


class RingClosedError(UdpfastError):
    """The ring's writer closed it, and no more records will come."""


class SupersededError(UdpfastError):
    """Another process now sends under this name; states how many messages were not delivered."""


class WriterExistsError(UdpfastError):
    """Another live process already writes this; there can be only one writer.

    Attributes
    ----------
    pid : int
        Id of that process; 0: not known.
    """

    def __init__(self, text: str = "", pid: int = 0) -> None:
        super().__init__(text)
        self.pid = pid


def shown(value: object) -> str:
    """Return the text of a value for an error message, cut after 200 characters."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits, perhaps inside a container
        return f"<{type(value).__name__} too long to print>"
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def sentence(error: Exception) -> str:
    """Return an error's text; for an OSError the file and the reason, without the errno."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def similar(word: str, known: Iterable[str], count: int = 3, least: float = 0.6) -> list[str]:
    """Return known words that are similar to `word`, ignoring case, the most similar first.

    Parameters
    ----------
    count : int
        Most words to return.
    least : float
        Least similarity: 1 is equal, 0 is anything.
    """
    import difflib

    words = {each.casefold(): each for each in known}
    near = difflib.get_close_matches(word.casefold(), words, count, least)
    return [words[each] for each in near]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of an error message that suggests similar known words, or ""."""
    near = similar(word, known)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def unexpected_keyword(called: type, unknown: Iterable[str]) -> TypeError:
    """Return the TypeError for a class that was called with an unknown keyword."""
    import inspect

    known = list(inspect.signature(called).parameters)
    word = next(iter(unknown))
    hint = did_you_mean(word, known) or f"; it has {', '.join(known)}"
    return TypeError(f"{called.__name__}() has no keyword {word!r}{hint}")
