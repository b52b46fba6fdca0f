# The table of names that an engine interns into: opened where a feed's ring, or its store, has it.

from udpfast.market.names cimport Names
from udpfast.shm.region cimport Region

# `count`: room for so many. Raises ConfigError if there are more already. `huge`: a new one shall
# have pages of 2 MiB.
cdef Region names_open(Names* names, path, int count, bint huge)
cdef Region store_names_open(Names* names, log, int count)
