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

#: Characters of a value in an error.
_SHOWN_MAX = 200


class UdpfastError(Exception):
    """The base class of all exceptions that udpfast defines.

    Errors of the operating system stay `OSError` (see `core.oserr`), because the errno says more.
    """


class ConfigError(UdpfastError, ValueError):
    """A setting or argument is unknown or wrong; names it, and what was expected and found."""


class ExtraError(ConfigError, ImportError):
    """A package that an extra of udpfast brings is not installed; says how to install it."""


class FormatError(UdpfastError, ValueError):
    """Bytes are not what they should be: a file, a capture, or a region of another layout."""


class RangeError(UdpfastError, ValueError, OverflowError):
    """A number does not fit its field; names the field, its range, and the number."""


class RegionError(FormatError):
    """A shared-memory file was refused: wrong magic, version, layout, size, owner or mode."""


class NotReadyError(RegionError):
    """The writer has not made this yet: start the writer, or try again in a moment."""


class ImageError(UdpfastError):
    """There is no image for a late reader to begin with; says why."""


class OutboxFullError(UdpfastError):
    """The outbox is full, so this message was not accepted; no message was dropped."""


class OutboxLostError(UdpfastError):
    """The stream lost messages that it already had, because several hosts lost their power."""


class RingClosedError(UdpfastError):
    """The ring's writer closed it, and nothing more will come."""


class SupersededError(UdpfastError):
    """Another process now sends under this name; says how many messages were not delivered."""


class WriterExistsError(UdpfastError):
    """Another live process already writes this: only one writer is possible.

    Attributes
    ----------
    pid : int
        Of that process; 0: not known.
    """

    def __init__(self, text: str = "", pid: int = 0) -> None:
        super().__init__(text)
        self.pid = pid


def shown(value: object) -> str:
    """Return a value as an error shows it: never longer than a few lines."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits, perhaps inside
        return f"<{type(value).__name__} too long to print>"
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def sentence(error: Exception) -> str:
    """Return an error's text; of an error of the system, the file and reason without the errno."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def similar(word: str, known: Iterable[str], count: int = 3, least: float = 0.6) -> list[str]:
    """Return known words that are similar to one, whatever their case, the nearest first.

    Parameters
    ----------
    count : int
        So many at most.
    least : float
        How similar: 1 is the same, 0 is anything.
    """
    import difflib

    words = {each.casefold(): each for each in known}
    near = difflib.get_close_matches(word.casefold(), words, count, least)
    return [words[each] for each in near]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of an error that suggests known words similar to an unknown one, or ""."""
    near = similar(word, known)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def unexpected_keyword(called: type, unknown: Iterable[str]) -> TypeError:
    """Return the error for a class that was called with an unknown keyword."""
    import inspect

    known = list(inspect.signature(called).parameters)
    word = next(iter(unknown))
    hint = did_you_mean(word, known) or f"; it has {', '.join(known)}"
    return TypeError(f"{called.__name__}() has no keyword {word!r}{hint}")
