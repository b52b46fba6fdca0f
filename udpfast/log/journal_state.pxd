# What other modules of a journal ask of its file `journal`.

from udpfast.log.marks cimport JournalHeader
from udpfast.shm.region cimport Region

cdef bytes header_identity(const JournalHeader* header, path)
cdef region_state(Region region)
