// Memory for what is read at random, on large pages where the system has them: small ones would cost more than the reading.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <new>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace bettersafe {

template <typename T>
struct LargePages {
    using value_type = T;
    LargePages() = default;
    template <typename U>
    LargePages(const LargePages<U>&) {}
    T* allocate(std::size_t size) {
        constexpr std::size_t page = std::size_t{1} << 21;
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
