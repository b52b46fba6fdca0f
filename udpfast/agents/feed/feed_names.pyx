"""The table of names that an engine interns into: a feed's own, or that of its store."""

from libc.stdint cimport uint64_t

from udpfast.core.keyed cimport Key
from udpfast.market.names cimport (
    names_attach, names_init, names_intern, names_is_exchange, names_memory_size)
from udpfast.shm.region cimport REGION_PAGE

from udpfast.errors import ConfigError, FormatError
from udpfast.shm.names import create_names, reopen_names

__all__ = []


cdef Region names_open(Names* names, path, int count, bint huge):
    # Ids outlive a restart of the writer: the ring still holds records that carry them. A table of
    # another size begins with the old one's names, in their order, and is the same by its key, too.
    cdef Region region
    cdef Key key
    cdef Py_ssize_t size = REGION_PAGE + names_memory_size(count)
    cdef list known = []
    cdef uint64_t i
    try:
        region = reopen_names(path, claim=False)
        if attach(names, region):
            if region.size_bytes == size:
                return region
            key = names.header.key
            for i in range(1, names.header.count + 1):
                entry = &names.entries[i]
                known.append((entry.text[:entry.size], names_is_exchange(names, i)))
        region.close()
    except (FileNotFoundError, FormatError):
        pass
    if len(known) > count:
        raise ConfigError(
            f"ring.names: expected at least {len(known)}, the number of names that the instance "
            f"has already, found {count}")
    region = create_names(path, size - REGION_PAGE, huge=huge)
    names_init(names, region.pointer + REGION_PAGE, size - REGION_PAGE, count)
    if known:
        names.header.key = key
    for name, exchange in known:
        names_intern(names, name, len(name), exchange)
    return region


cdef Region store_names_open(Names* names, log, int count):
    cdef Region region
    try:
        region = log.begin_names(count)
    except ValueError as problem:
        raise ConfigError(f"ring.names: expected {problem}, found {count}") from None
    attach(names, region)
    return region


cdef bint attach(Names* names, Region region):
    return names_attach(names, region.pointer + REGION_PAGE, region.size_bytes - REGION_PAGE)
