# The table of names that an engine interns into: opened where a feed's ring, or its store, has it.

from udpfast.market.names cimport Names
from udpfast.shm.region cimport Region

# `count`: room for so many. Raises ConfigError if there are more already.
cdef Region names_open(Names* names, path, int count)
cdef Region store_names_open(Names* names, log, int count)
