// Memory for random access: large pages if the system has them (misses in the page table would cost more than the access), and
// prefetching.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace bettersafe {

inline void prefetch(const void* place) {
#if defined(__GNUC__)
    __builtin_prefetch(place);
#else
    (void)place;
#endif
}

inline void prefetch_to_write(const void* place) {
#if defined(__GNUC__)
    __builtin_prefetch(place, 1);
#else
    (void)place;
#endif
}

template <typename T>
struct LargePages {
    using value_type = T;
    LargePages() = default;
    template <typename U>
    LargePages(const LargePages<U>&) {}
    T* allocate(std::size_t size) {
        constexpr std::size_t page = std::size_t{1} << 21;
        if (size > (std::numeric_limits<std::size_t>::max() - page) / sizeof(T)) throw std::bad_alloc();
        std::size_t bytes = size * sizeof(T);
        void* memory = nullptr;
#if defined(__linux__)
        if (bytes > page) bytes = (bytes + page - 1) / page * page;
        if (bytes > page && posix_memalign(&memory, page, bytes) == 0) {
            madvise(memory, bytes, MADV_HUGEPAGE);
            return static_cast<T*>(memory);
        }
#endif
        memory = std::malloc(bytes);
        if (memory == nullptr) throw std::bad_alloc();
        return static_cast<T*>(memory);
    }
    void deallocate(T* memory, std::size_t) { std::free(memory); }
    template <typename U>
    bool operator==(const LargePages<U>&) const { return true; }
    template <typename U>
    bool operator!=(const LargePages<U>&) const { return false; }
};

}  // namespace bettersafe
