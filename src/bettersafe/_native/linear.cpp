#include "linear.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <functional>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

namespace bettersafe {
namespace {

constexpr std::int64_t kMergeNonzeros = 2'000'000;  // up to here the rows of P_π are formed once: fewer, longer rows
constexpr std::int64_t kBlock = 2048;  // states per block; fixed, so that sums are the same on any number of threads

// Σ data_i in[index_i], in four lanes that are added in a fixed order
template <typename Index>
inline double gather(const double* data, const Index* index, std::int64_t size, const double* in) {
    double lane[4] = {0.0, 0.0, 0.0, 0.0};
    std::int64_t i = 0;
    for (; i + 4 <= size; i += 4) {
        lane[0] += data[i] * in[index[i]];
        lane[1] += data[i + 1] * in[index[i + 1]];
        lane[2] += data[i + 2] * in[index[i + 2]];
        lane[3] += data[i + 3] * in[index[i + 3]];
    }
    for (; i < size; ++i) lane[0] += data[i] * in[index[i]];
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

// A few threads that run the same job on every block; with one thread, a plain loop.
class Team {
public:
    explicit Team(int threads) {
        for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { serve(); });
    }
    ~Team() {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            stop_ = true;
            ++round_;
        }
        wake_.notify_all();
        for (auto& worker : workers_) worker.join();
    }
    void run(std::int64_t n_blocks, const std::function<void(std::int64_t)>& job) {
        if (workers_.empty() || n_blocks < 2) {
            for (std::int64_t b = 0; b < n_blocks; ++b) job(b);
            return;
        }
        {
            std::lock_guard<std::mutex> lock(mutex_);
            job_ = &job;
            n_blocks_ = n_blocks;
            next_ = 0;
            busy_ = static_cast<int>(workers_.size());
            ++round_;
        }
        wake_.notify_all();
        drain();
        std::unique_lock<std::mutex> lock(mutex_);
        done_.wait(lock, [this] { return busy_ == 0; });
    }

private:
    std::vector<std::thread> workers_;
    std::mutex mutex_;
    std::condition_variable wake_, done_;
    const std::function<void(std::int64_t)>* job_ = nullptr;
    std::int64_t n_blocks_ = 0;
    std::atomic<std::int64_t> next_{0};
    int busy_ = 0, round_ = 0;
    bool stop_ = false;

    void drain() {
        for (std::int64_t b = next_++; b < n_blocks_; b = next_++) (*job_)(b);
    }
    void serve() {
        int seen = 0;
        for (;;) {
            {
                std::unique_lock<std::mutex> lock(mutex_);
                wake_.wait(lock, [&] { return round_ != seen; });
                seen = round_;
                if (stop_) return;
            }
            drain();
            std::lock_guard<std::mutex> lock(mutex_);
            if (--busy_ == 0) done_.notify_one();
        }
    }
};

template <typename Index>
bool merges(const PolicyMatrix<Index>& matrix) {
    return matrix.indptr[matrix.ptr[matrix.n_states]] <= kMergeNonzeros;
}

template <typename Index>
class Solver {
public:
    Solver(const PolicyMatrix<Index>& matrix, int threads)
        : m_(matrix), n_(matrix.n_states), blocks_((n_ + kBlock - 1) / kBlock), team_(threads) {
        if (merges(m_)) merge();
    }

    SolveReport solve(const double* rhs, double* v, double tol, std::int64_t max_products) {
        std::vector<double> r(n_), shadow(n_), p(n_), s(n_), t(n_), ap(n_), hat(n_), scale(n_);
        diagonal(scale.data());
        const double rhs_size = largest(rhs);
        std::int64_t products = 0;
        double residual = 0.0, previous = std::numeric_limits<double>::infinity();
        // Each pass ends with the true residual; a pass that does not help ends the search.
        for (;;) {
            multiply(v, t.data());
            ++products;
            each([&](std::int64_t x) { r[x] = rhs[x] - t[x]; });
            const double size = rhs_size + 2.0 * largest(v);
            residual = size == 0.0 ? 0.0 : largest(r.data()) / size;  // NaN stays NaN
            if (residual <= tol || products >= max_products || !(residual < 0.5 * previous)) break;
            previous = residual;
            shadow = r;
            p = r;
            double rho = dot(r.data(), r.data());
            const double goal = 0.5 * tol * size;
            while (products < max_products) {
                each([&](std::int64_t x) { hat[x] = scale[x] * p[x]; });
                multiply(hat.data(), ap.data());
                ++products;
                const double denominator = dot(shadow.data(), ap.data());
                if (denominator == 0.0) break;
                const double alpha = rho / denominator;
                each([&](std::int64_t x) {
                    v[x] += alpha * hat[x];
                    s[x] = r[x] - alpha * ap[x];
                });
                if (largest(s.data()) <= goal) break;
                each([&](std::int64_t x) { hat[x] = scale[x] * s[x]; });
                multiply(hat.data(), t.data());
                ++products;
                const double tt = dot(t.data(), t.data());
                if (tt == 0.0) break;
                const double omega = dot(t.data(), s.data()) / tt;
                each([&](std::int64_t x) {
                    v[x] += omega * hat[x];
                    r[x] = s[x] - omega * t[x];
                });
                const double size_r = largest(r.data());
                if (size_r <= goal || !std::isfinite(size_r)) break;
                const double next = dot(shadow.data(), r.data());
                if (next == 0.0 || omega == 0.0) break;
                const double beta = (next / rho) * (alpha / omega);
                rho = next;
                each([&](std::int64_t x) { p[x] = r[x] + beta * (p[x] - omega * ap[x]); });
            }
        }
        if (!std::isfinite(residual)) residual = std::numeric_limits<double>::infinity();
        return {residual, products};
    }

private:
    const PolicyMatrix<Index>& m_;
    std::int64_t n_, blocks_;
    Team team_;
    std::vector<std::int64_t> row_;      // P_π as CSR, when merged; else empty
    std::vector<Index> column_;
    std::vector<double> probability_, stay_;

    void merge() {
        const std::size_t most = static_cast<std::size_t>(m_.indptr[m_.ptr[n_]]);
        row_.resize(n_ + 1);
        stay_.assign(n_, 0.0);
        column_.resize(most);
        probability_.resize(most);
        std::vector<std::int64_t> owner(n_, -1), slot(n_);  // which row last used a column, and where it stands there
        std::int64_t size = 0;
        for (std::int64_t x = 0; x < n_; ++x) {
            row_[x] = size;
            for (std::int64_t s = m_.ptr[x]; s < m_.ptr[x + 1]; ++s) {
                const double w = m_.weight[s];
                if (w == 0.0) continue;
                for (Index i = m_.indptr[s]; i < m_.indptr[s + 1]; ++i) {
                    const Index y = m_.indices[i];
                    if (y == x) stay_[x] += w * m_.data[i];
                    if (owner[y] == x) {
                        probability_[slot[y]] += w * m_.data[i];
                    } else {
                        owner[y] = x;
                        slot[y] = size;
                        column_[size] = y;
                        probability_[size++] = w * m_.data[i];
                    }
                }
            }
        }
        row_[n_] = size;
    }

    template <typename F>
    void each(F&& f) {
        for (std::int64_t x = 0; x < n_; ++x) f(x);
    }
    template <typename F>
    void by_block(F&& f) {
        team_.run(blocks_, [&](std::int64_t b) { f(b * kBlock, std::min(n_, (b + 1) * kBlock)); });
    }
    double dot(const double* a, const double* b) {
        double sum = 0.0;
        for (std::int64_t block = 0; block < blocks_; ++block) {
            // four lanes, added in a fixed order: quick without asking the compiler to reorder
            double lane[4] = {0.0, 0.0, 0.0, 0.0};
            std::int64_t x = block * kBlock;
            const std::int64_t end = std::min(n_, x + kBlock);
            for (; x + 4 <= end; x += 4) {
                for (int l = 0; l < 4; ++l) lane[l] += a[x + l] * b[x + l];
            }
            for (; x < end; ++x) lane[0] += a[x] * b[x];
            sum += (lane[0] + lane[1]) + (lane[2] + lane[3]);
        }
        return sum;
    }
    double largest(const double* a) {
        double most = 0.0, sum = 0.0;
        for (std::int64_t x = 0; x < n_; ++x) {
            most = std::max(most, std::abs(a[x]));
            sum += a[x];
        }
        return std::isnan(sum) ? sum : most;  // max() passes over a NaN, the sum does not
    }
    // out = (I − γ P_π) in
    void multiply(const double* in, double* out) {
        by_block([&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t x = begin; x < end; ++x) {
                double expected = 0.0;
                if (!row_.empty()) {
                    const std::int64_t first = row_[x];
                    expected = gather(probability_.data() + first, column_.data() + first, row_[x + 1] - first, in);
                } else {
                    for (std::int64_t s = m_.ptr[x]; s < m_.ptr[x + 1]; ++s) {
                        const std::int64_t first = m_.indptr[s];
                        if (m_.weight[s] == 0.0) continue;
                        expected += m_.weight[s] * gather(m_.data + first, m_.indices + first, m_.indptr[s + 1] - first, in);
                    }
                }
                out[x] = in[x] - m_.discount * expected;
            }
        });
    }
    // 1 / (1 − γ P_π(x, x))
    void diagonal(double* scale) {
        by_block([&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t x = begin; x < end; ++x) {
                scale[x] = 1.0 / (1.0 - m_.discount * (row_.empty() ? stays(x) : stay_[x]));
            }
        });
    }
    double stays(std::int64_t x) const {
        double sum = 0.0;
        for (std::int64_t s = m_.ptr[x]; s < m_.ptr[x + 1]; ++s) {
            const Index* first = m_.indices + m_.indptr[s];
            const Index* last = m_.indices + m_.indptr[s + 1];
            const Index* found = std::lower_bound(first, last, static_cast<Index>(x));
            if (found != last && *found == x) sum += m_.weight[s] * m_.data[found - m_.indices];
        }
        return sum;
    }
};

}  // namespace

template <typename Index>
SolveReport solve_values(const PolicyMatrix<Index>& matrix, std::int64_t n_rhs, const double* rhs, double* value,
                         double tol, std::int64_t max_products, int threads) {
    // Small matrices: one right-hand side per thread. Large ones: all threads on one product.
    const bool small = merges(matrix);
    Solver<Index> solver(matrix, small ? 1 : std::max(1, threads));
    std::vector<SolveReport> reports(n_rhs);
    std::atomic<std::int64_t> next{0};
    auto work = [&] {
        for (std::int64_t k = next++; k < n_rhs; k = next++) {
            const std::int64_t offset = k * matrix.n_states;
            reports[k] = solver.solve(rhs + offset, value + offset, tol, max_products);
        }
    };
    std::vector<std::thread> pool;
    for (std::int64_t i = 1; small && i < std::min<std::int64_t>(threads, n_rhs); ++i) pool.emplace_back(work);
    work();
    for (auto& thread : pool) thread.join();
    SolveReport worst{0.0, 0};
    for (const SolveReport& report : reports) {
        worst.residual = std::max(worst.residual, report.residual);
        worst.products += report.products;
    }
    return worst;
}

template SolveReport solve_values<std::int32_t>(const PolicyMatrix<std::int32_t>&, std::int64_t, const double*, double*,
                                                double, std::int64_t, int);
template SolveReport solve_values<std::int64_t>(const PolicyMatrix<std::int64_t>&, std::int64_t, const double*, double*,
                                                double, std::int64_t, int);

}  // namespace bettersafe
