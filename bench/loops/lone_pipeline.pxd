# LonePipeline: a pipeline in memory of its own, with counters that nobody reads: what loops measure
# that need neither sockets nor a ring.

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from posix.stdlib cimport posix_memalign

from udpfast.core.counter cimport Counters
from udpfast.core.layout cimport LINES_MAX
from udpfast.feed.pipeline_state cimport (
    Pipeline, PipelineSettings, pipeline_init, pipeline_memory_size)

cdef enum:
    LONE_SCOPE = 128             # counters of a scope, at most

cdef struct LonePipeline:
    Pipeline* pipeline
    int64_t* counted
    void* memory


cdef inline bint lone_open(
    LonePipeline* lone, const PipelineSettings* settings,
) noexcept nogil:
    # False: no memory. Either way it has to be closed.
    cdef Counters counters
    cdef int channel, line
    lone.memory = NULL
    lone.pipeline = <Pipeline*>calloc(1, sizeof(Pipeline))
    lone.counted = <int64_t*>calloc((3 + 2 * LINES_MAX) * LONE_SCOPE, sizeof(int64_t))
    if lone.pipeline == NULL or lone.counted == NULL or posix_memalign(
            &lone.memory, 64, pipeline_memory_size(settings)):
        return False
    counters.feed = lone.counted
    for channel in range(2):
        counters.channel[channel] = lone.counted + (1 + channel) * LONE_SCOPE
        for line in range(LINES_MAX):
            counters.line[channel][line] = (
                lone.counted + (3 + channel * LINES_MAX + line) * LONE_SCOPE)
    pipeline_init(
        lone.pipeline, settings, lone.memory, pipeline_memory_size(settings), &counters)
    return True


cdef inline void lone_close(LonePipeline* lone) noexcept nogil:
    free(lone.memory)
    free(lone.counted)
    free(lone.pipeline)
