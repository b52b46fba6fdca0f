# The compiler's atomics, each named once. 64-bit loads and stores are single instructions on x86-64
# and AArch64 (32 bits are for rings shared with the kernel). The names give the memory order; each
# call says who reads on the other side.

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    static inline uint64_t udpfast_load_acquire(const uint64_t *p) {
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);
    }
    static inline uint64_t udpfast_load_relaxed(const uint64_t *p) {
        return __atomic_load_n(p, __ATOMIC_RELAXED);
    }
    static inline void udpfast_store_release(uint64_t *p, uint64_t v) {
        __atomic_store_n(p, v, __ATOMIC_RELEASE);
    }
    static inline void udpfast_store_relaxed(uint64_t *p, uint64_t v) {
        __atomic_store_n(p, v, __ATOMIC_RELAXED);
    }
    static inline uint32_t udpfast_load_acquire_32(const uint32_t *p) {
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);
    }
    static inline void udpfast_store_release_32(uint32_t *p, uint32_t v) {
        __atomic_store_n(p, v, __ATOMIC_RELEASE);
    }
    static inline void udpfast_fence_acquire(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
    static inline void udpfast_fence_release(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
    static inline void udpfast_fence_full(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
    /* A counter has one writer: a relaxed load and store are enough, and cost what += costs. */
    static inline void udpfast_counter_add(int64_t *p, int64_t n) {
        __atomic_store_n(p, __atomic_load_n(p, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
    }
    static inline void udpfast_prefetch_read(const void *p) { __builtin_prefetch(p, 0, 3); }
    #if defined(__x86_64__)
    static inline void udpfast_relax(void) { __builtin_ia32_pause(); }
    /* GCC's builtin prefetches for reading only, unless it may assume a processor with prefetchw.
       On a processor without it, the instruction does nothing. */
    static inline void udpfast_prefetch_write(const void *p) {
        __asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
    }
    #elif defined(__aarch64__)
    static inline void udpfast_relax(void) { __asm__ volatile("yield"); }
    static inline void udpfast_prefetch_write(const void *p) { __builtin_prefetch(p, 1, 3); }
    #else
    static inline void udpfast_relax(void) { }
    static inline void udpfast_prefetch_write(const void *p) { __builtin_prefetch(p, 1, 3); }
    #endif
    """
    uint64_t load_acquire "udpfast_load_acquire" (const uint64_t* p) noexcept nogil
    uint64_t load_relaxed "udpfast_load_relaxed" (const uint64_t* p) noexcept nogil
    void store_release "udpfast_store_release" (uint64_t* p, uint64_t value) noexcept nogil
    void store_relaxed "udpfast_store_relaxed" (uint64_t* p, uint64_t value) noexcept nogil
    uint32_t load_acquire_32 "udpfast_load_acquire_32" (const uint32_t* p) noexcept nogil
    void store_release_32 "udpfast_store_release_32" (uint32_t* p, uint32_t value) noexcept nogil
    void fence_acquire "udpfast_fence_acquire" () noexcept nogil
    void fence_release "udpfast_fence_release" () noexcept nogil
    void fence_full "udpfast_fence_full" () noexcept nogil
    void counter_add "udpfast_counter_add" (int64_t* p, int64_t n) noexcept nogil
    void cpu_relax "udpfast_relax" () noexcept nogil
    void prefetch_read "udpfast_prefetch_read" (const void* p) noexcept nogil
    void prefetch_write "udpfast_prefetch_write" (const void* p) noexcept nogil
