"""Filters that decide which records a strategy gets: by kind, by exchange, by symbol."""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.string cimport memset

from udpfast.core.layout cimport (
    KIND_BUS, KIND_GAP, KIND_LAPPED, KIND_MESSAGE, KIND_RECOVERED, KIND_ROLLBACK, KIND_STALE,
    KIND_UPDATES)
from udpfast.market.name_ids cimport NameIds, record_name_ids

from udpfast.client.kinds import kinds_of
from udpfast.core.layout import Kind
from udpfast.errors import ConfigError, did_you_mean, similar

__all__ = ["Filter", "NameFilter"]

cdef int NAMES_SHOWN = 10  # most known names that the message about an unknown name lists
cdef double NAMES_ALIKE = 0.2  # least similarity of the names listed first; 1: equal


@cython.final
cdef class NameFilter:
    """A set of names that pass; each id is looked up once.

    Parameters
    ----------
    wanted : str, or iterable of str, or None
        The names that pass; None: any name passes.
    """

    def __init__(self, wanted: str | Iterable[str] | None = None):
        if wanted is not None:
            single = isinstance(wanted, str) or not hasattr(wanted, "__iter__")
            wanted = frozenset([wanted] if single else wanted)
            if not wanted or not all(isinstance(name, str) for name in wanted):
                raise ConfigError(
                    "exchanges and symbols must be a name or a non-empty list of names, was "
                    f"{set(wanted) or '{}'}")
        self._wanted = wanted
        self.forget()

    cdef forget(self):
        # Forget the ids looked up: they have another meaning from now on.
        self._states = bytearray()
        self._known_size = 0

    def unknown(self, known: Iterable[str]) -> list[str]:
        """Return the wanted names that are not among the known ones."""
        return [] if self._wanted is None else sorted(self._wanted - set(known))

    cdef bint passes(self, uint32_t name_id, NameCache names) except -1:
        if self._wanted is None:
            return True
        if name_id < self._known_size and self._known[name_id] != NAME_UNKNOWN:
            return self._known[name_id] == NAME_WANTED
        name = names.name(name_id)
        if name is None:  # absent, or not published yet: look it up again next time
            return False
        wanted = name in self._wanted
        if name_id >= self._known_size:
            self._states.extend(bytes(max(64, name_id + 1)))
            self._known = <uint8_t*> PyByteArray_AS_STRING(self._states)
            self._known_size = len(self._states)
        self._known[name_id] = NAME_WANTED if wanted else NAME_UNWANTED
        return wanted


@cython.final
cdef class Filter:
    """Passes the records that a strategy wants, and every doubt about them.

    GAP, SESSION, RESTART, LAPPED, ROLLBACK, CONNECTION and DISAGREEMENT always pass; STALE and
    RECOVERED pass unless they are of an exchange or symbol that is not wanted.

    Parameters
    ----------
    kinds : Kind or its name, or iterable of these, or None
        Kinds that pass; None: all.
    exchanges, symbols : str, or iterable of str, or None
        Names that pass; None: all. An update without a name does not pass a filter by name.
    """

    def __init__(
            self, kinds: Kind | str | Iterable[Kind | str] | None = None,
            exchanges: str | Iterable[str] | None = None,
            symbols: str | Iterable[str] | None = None):
        memset(self._kinds, kinds is None, sizeof(self._kinds))
        for kind in () if kinds is None else kinds_of(kinds):
            if kind is Kind.PAD:
                raise ConfigError("kinds must be kinds that readers get, had PAD")
            self._kinds[<int> int(kind)] = True
        for kind in range(KIND_GAP, KIND_LAPPED + 1):
            self._kinds[<int> kind] = True
        self._kinds[KIND_ROLLBACK] = True
        self._exchanges = NameFilter(exchanges)
        self._symbols = NameFilter(symbols)

    def describe_unknown(self, exchanges: set[str], symbols: set[str]) -> str | None:
        """Return sentences about wanted names that were not published; None: all were.

        Parameters
        ----------
        exchanges, symbols : set of str
            Names published so far; if empty, nothing can be compared with them.
        """
        said = [
            _describe_unknown("exchange", self._exchanges.unknown(exchanges), exchanges,
                              "symbol", symbols),
            _describe_unknown("symbol", self._symbols.unknown(symbols), symbols,
                              "exchange", exchanges)]
        return ". ".join(each for each in said if each) or None

    cdef int64_t select(
            self, Record* headers, uint64_t* offsets, const uint8_t* payloads, int64_t first,
            int64_t end, NameCache names) except -1:
        cdef int64_t i, kept = first
        if names is not self._names:
            self._exchanges.forget()
            self._symbols.forget()
            self._names = names
        for i in range(first, end):
            if self._passes(headers + i, payloads + offsets[i]):
                if kept != i:
                    headers[kept] = headers[i]
                    offsets[kept] = offsets[i]
                kept += 1
        return kept - first

    cdef bint _passes(self, const Record* header, const uint8_t* payload) except -1:
        cdef const NameIds* ids = record_name_ids(header, payload)
        cdef uint32_t exchange_id = 0, symbol_id = 0
        if header.kind >= FILTER_KINDS or not self._kinds[header.kind]:
            return False
        if ids != NULL:
            exchange_id, symbol_id = ids.exchange_id, ids.symbol_id
        if header.kind == KIND_STALE or header.kind == KIND_RECOVERED:
            if exchange_id == 0 or symbol_id == 0:
                return True  # its object has no name yet
        elif header.kind != KIND_MESSAGE and not KIND_UPDATES <= header.kind < KIND_BUS:
            return True
        return (self._exchanges.passes(exchange_id, self._names)
                and self._symbols.passes(symbol_id, self._names))


def _describe_unknown(what, unknown, known, other, others):
    # A sentence about unknown names, and those that are known of this sort; "": there is nothing to
    # say. `others` are the names of the other sort.
    if not known or not unknown:
        return ""
    # List the most similar names first. The low limit finds exchanges, whose names are short.
    near = [each for name in unknown for each in similar(name, known, NAMES_SHOWN, NAMES_ALIKE)]
    shown = list(dict.fromkeys([*near, *sorted(known)]))[:NAMES_SHOWN]
    more = f" and {len(known) - NAMES_SHOWN} more" if len(known) > NAMES_SHOWN else ""
    article = "an" if other == "exchange" else "a"
    hints = dict.fromkeys(
        f"; {name!r} is {article} {other}" if name in others else did_you_mean(name, known)
        for name in unknown)
    return (
        f"{what}{'s' * (len(unknown) > 1)} not published so far: "
        f"{', '.join(map(repr, unknown))}; published are {', '.join(shown)}{more}"
        f"{''.join(hints)}")
