// Threads of the kernel. Work is cut into blocks that do not depend on the number of threads, and sums of blocks are added in the
// order of the blocks, so results have equal bits on any number of threads.
#pragma once
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace bettersafe {

constexpr std::int64_t kBlock = 2048;  // maximum rows per block

inline std::int64_t blocks_of(std::int64_t n, std::int64_t size = kBlock) { return (n + size - 1) / size; }

// Threads that wait for work; the calling thread is worker 0. With one thread, a plain loop.
class Team {
public:
    // At most one thread per block; fewer if the system refuses to start more.
    explicit Team(std::int64_t threads, std::int64_t n_blocks) {
        const std::int64_t size = std::min(threads, n_blocks);
        if (size < 2) return;
        threads_.reserve(static_cast<std::size_t>(size - 1));
        try {
            for (std::int64_t i = 1; i < size; ++i) threads_.emplace_back([this, i] { serve(static_cast<int>(i)); });
        } catch (const std::system_error&) {
        }
    }
    ~Team() {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            stop_ = true;
            ++round_;
        }
        wake_.notify_all();
        for (auto& thread : threads_) thread.join();
    }
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int size() const { return static_cast<int>(threads_.size()) + 1; }

    // Calls job(block, worker) for every block, worker in [0, size()). An exception of a job is rethrown here after all workers have stopped.
    void run(std::int64_t n_blocks, const std::function<void(std::int64_t, int)>& job) {
        if (threads_.empty() || n_blocks < 2) {
            for (std::int64_t b = 0; b < n_blocks; ++b) job(b, 0);
            return;
        }
        {
            std::lock_guard<std::mutex> lock(mutex_);
            job_ = &job;
            n_blocks_ = n_blocks;
            next_ = 0;
            busy_ = static_cast<int>(threads_.size());
            ++round_;
        }
        wake_.notify_all();
        drain(0);
        std::unique_lock<std::mutex> lock(mutex_);
        done_.wait(lock, [this] { return busy_ == 0; });
        if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    }

private:
    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::condition_variable wake_, done_;
    const std::function<void(std::int64_t, int)>* job_ = nullptr;
    std::int64_t n_blocks_ = 0;
    std::atomic<std::int64_t> next_{0};
    int busy_ = 0;
    unsigned round_ = 0;
    bool stop_ = false;
    std::exception_ptr failure_;

    void drain(int worker) {
        try {
            for (std::int64_t b = next_++; b < n_blocks_; b = next_++) (*job_)(b, worker);
        } catch (...) {  // out of memory
            std::lock_guard<std::mutex> lock(mutex_);
            failure_ = std::current_exception();
            next_ = n_blocks_;
        }
    }
    void serve(int worker) {
        unsigned seen = 0;
        for (;;) {
            {
                std::unique_lock<std::mutex> lock(mutex_);
                wake_.wait(lock, [&] { return round_ != seen; });
                seen = round_;
                if (stop_) return;
            }
            drain(worker);
            std::lock_guard<std::mutex> lock(mutex_);
            if (--busy_ == 0) done_.notify_one();
        }
    }
};

}  // namespace bettersafe
