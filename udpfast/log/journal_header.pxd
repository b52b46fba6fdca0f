# The file `journal`, for the writer that opens it.

from udpfast.log.marks cimport KeptMark, WrittenMark
from udpfast.shm.region cimport Region

cdef Region take_header(
    directory, WrittenMark* written, KeptMark* kept, bint* made, list notes, bytes identity)
