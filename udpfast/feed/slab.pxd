# The memory of windows: cells of one fragment each, given out and taken back in any order, and
# the carving of one block into the arrays that a window needs. Nothing here is allocated while a
# feed runs; the block may lie in a shared-memory region that was pre-faulted.

from libc.stdint cimport uint8_t, uint32_t, uintptr_t

cdef enum:
    CELL_NONE = 0x7FFFFFFF       # no cell: an empty payload, or none was free
    CELL_SCRATCH = 0x7FFFFFFE    # at its place in the window's scratch
    CARVE_ALIGN = 64             # a cache line

cdef struct Slab:
    uint8_t* cells
    uint32_t* free               # a stack: the cell that was used last is still in the cache
    uint32_t free_count
    uint32_t fresh               # cells [fresh, capacity) were not used since the last reset
    uint32_t capacity
    uint32_t cell_size


cdef inline void* carve(uint8_t* memory, size_t* used, size_t size) noexcept nogil:
    # The next `size` bytes of a block; with memory = NULL it only measures.
    cdef size_t start = used[0]
    used[0] = start + ((size + CARVE_ALIGN - 1) & ~<size_t>(CARVE_ALIGN - 1))
    return NULL if memory == NULL else <void*>(memory + start)


cdef inline void slab_reset(Slab* slab) noexcept nogil:
    # Takes the same time whatever the capacity: a forged session must not cost more than others.
    slab.free_count = 0
    slab.fresh = 0


cdef inline uint32_t slab_take(Slab* slab) noexcept nogil:
    if slab.free_count:
        slab.free_count -= 1
        return slab.free[slab.free_count]
    if slab.fresh == slab.capacity:
        return CELL_NONE
    slab.fresh += 1
    return slab.fresh - 1


cdef inline void slab_give(Slab* slab, uint32_t cell) noexcept nogil:
    if cell < slab.capacity:     # neither CELL_NONE nor CELL_SCRATCH
        slab.free[slab.free_count] = cell
        slab.free_count += 1


cdef inline uint8_t* slab_cell(Slab* slab, uint32_t cell) noexcept nogil:
    return slab.cells + <size_t>cell * slab.cell_size
