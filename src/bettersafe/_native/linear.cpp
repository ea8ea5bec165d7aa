#include "linear.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <limits>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "pages.hpp"

namespace bettersafe {
namespace {

constexpr std::int64_t kMergeNonzeros = 2'000'000;  // up to here the rows of P_π are formed once: fewer, longer rows
constexpr std::int64_t kBlock = 2048;  // states per block; fixed, so that sums are the same on any number of threads
constexpr std::int64_t kWideStates = 250'000;  // up to here four directions of doubles stay in a cache; above it, one of floats
constexpr std::int64_t kFloatProducts = 48;    // by then floats have done it, or rounded directions make it last longer

// Two doubles in one register: compilers do not find this in a gather by themselves, and it saves a seventh of a product.
#if defined(__GNUC__)
typedef double Two __attribute__((vector_size(16)));
#else
struct Two {
    double v[2];
    double operator[](int i) const { return v[i]; }
    Two operator*(Two o) const { return {v[0] * o.v[0], v[1] * o.v[1]}; }
    void operator+=(Two o) { v[0] += o.v[0], v[1] += o.v[1]; }
};
#endif

// Σ data_i in[index_i], in four lanes that are added in a fixed order
template <typename Index>
inline double gather(const double* data, const Index* index, std::int64_t size, const double* in) {
    Two low = {0.0, 0.0}, high = {0.0, 0.0}, a, b;
    std::int64_t i = 0;
    for (; i + 4 <= size; i += 4) {
        std::memcpy(&a, data + i, sizeof a);
        std::memcpy(&b, data + i + 2, sizeof b);
        low += a * Two{in[index[i]], in[index[i + 1]]};
        high += b * Two{in[index[i + 2]], in[index[i + 3]]};
    }
    double first = low[0];
    for (; i < size; ++i) first += data[i] * in[index[i]];
    return (first + low[1]) + (high[0] + high[1]);
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

// Nonzeros in the rows of pairs that are played: of a policy that plays one of many actions, few.
template <typename Index>
std::int64_t played_nonzeros(const PolicyMatrix<Index>& matrix) {
    std::int64_t found = 0;
    for (std::int64_t s = 0; s < matrix.ptr[matrix.n_states]; ++s)
        found += matrix.weight[s] != 0.0 ? matrix.indptr[s + 1] - matrix.indptr[s] : 0;
    return found;
}

// Small matrices: P_π is formed, and one right-hand side solved at a time.
template <typename Index>
class Solver {
public:
    explicit Solver(const PolicyMatrix<Index>& matrix)
        : m_(matrix), n_(matrix.n_states), blocks_((n_ + kBlock - 1) / kBlock) {
        merge();
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
    std::vector<std::int64_t> row_;      // P_π as CSR
    std::vector<Index> column_;
    std::vector<double> probability_, stay_;

    void merge() {
        const auto most = static_cast<std::size_t>(played_nonzeros(m_));
        row_.resize(n_ + 1);
        stay_.assign(n_, 0.0);
        column_.resize(most);
        probability_.resize(most);
        std::vector<std::int64_t> slot(n_, -1);  // where a column was last put: in this row, if not before its beginning
        std::int64_t size = 0;
        for (std::int64_t x = 0; x < n_; ++x) {
            const std::int64_t first = row_[x] = size;
            for (std::int64_t s = m_.ptr[x]; s < m_.ptr[x + 1]; ++s) {
                const double w = m_.weight[s];
                if (w == 0.0) continue;
                for (Index i = m_.indptr[s]; i < m_.indptr[s + 1]; ++i) {  // no branch: nothing could predict it
                    const Index y = m_.indices[i];
                    const bool fresh = slot[y] < first;
                    const std::int64_t place = fresh ? size : slot[y];
                    const double before = fresh ? 0.0 : probability_[place];
                    slot[y] = place;
                    column_[place] = y;
                    probability_[place] = before + w * m_.data[i];
                    size += fresh;
                }
            }
            if (slot[x] >= first) stay_[x] = probability_[slot[x]];
        }
        row_[n_] = size;
    }

    template <typename F>
    void each(F&& f) {
        for (std::int64_t x = 0; x < n_; ++x) f(x);
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
        double most[4] = {}, sum[4] = {};  // in four lanes: the additions of one would wait for each other
        std::int64_t x = 0;
        for (; x + 4 <= n_; x += 4) {
            for (int l = 0; l < 4; ++l) {
                const double size = std::abs(a[x + l]);
                most[l] = size > most[l] ? size : most[l];
                sum[l] += size;
            }
        }
        for (; x < n_; ++x) {
            most[0] = std::max(most[0], std::abs(a[x]));
            sum[0] += std::abs(a[x]);
        }
        const double all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        // max() passes over a NaN, the sum does not
        return std::isnan(all) ? all : std::max(std::max(most[0], most[1]), std::max(most[2], most[3]));
    }
    // out = (I − γ P_π) in
    void multiply(const double* in, double* out) {
        for (std::int64_t x = 0; x < n_; ++x) {
            const std::int64_t first = row_[x];
            out[x] = in[x] - m_.discount *
                                 gather(probability_.data() + first, column_.data() + first, row_[x + 1] - first, in);
        }
    }
    // 1 / (1 − γ P_π(x, x))
    void diagonal(double* scale) {
        for (std::int64_t x = 0; x < n_; ++x) scale[x] = 1.0 / (1.0 - m_.discount * stay_[x]);
    }
};

// Large matrices: K right-hand sides in step, so that one pass over the rows of p serves all of them. Entry k of state x
// stands at x K + k. Every right-hand side has its own search.
//
// What a product of the search reads at random is a vector of directions. As floats, half as much of it misses the cache, for
// a few products more. No digit is lost: v and the residual both move by the rounded direction, and all sums are double.
// Where hundreds of products are needed, as with jumps to near states only, rounding makes it a third more: then doubles.
template <typename Index, int K, typename Direction>
class WideSolver {
public:
    WideSolver(const PolicyMatrix<Index>& matrix, Team& team)
        : m_(matrix), n_(matrix.n_states), blocks_((n_ + kBlock - 1) / kBlock), team_(team), parts_(blocks_) {}

    // rhs and value are K rows [X]; one report each.
    void solve(const double* rhs, double* value, double tol, std::int64_t max_products, SolveReport* reports) {
        const std::size_t size = static_cast<std::size_t>(n_) * K;
        v_.resize(size);
        hat_.resize(size);
        for (auto* vector : {&r_, &shadow_, &p_, &ap_, &t_}) vector->resize(size);
        scale_.resize(n_);
        by_block([&](std::int64_t begin, std::int64_t end, Part&) {
            for (std::int64_t x = begin; x < end; ++x) {
                scale_[x] = 1.0 / (1.0 - m_.discount * stays(x));
                for (int k = 0; k < K; ++k) v_[x * K + k] = value[k * n_ + x];
            }
        });
        std::int64_t products = 0;
        bool done[K] = {};
        double previous[K];
        std::fill(previous, previous + K, std::numeric_limits<double>::infinity());
        // Each pass ends with the true residual; a pass that does not help ends the search.
        for (;;) {
            const Part found = residual(rhs);
            ++products;
            double goal[K];
            bool any = false;
            for (int k = 0; k < K; ++k) {
                if (done[k]) continue;
                const double whole = found.rhs[k] + 2.0 * found.v[k];
                const double relative = whole == 0.0 ? 0.0 : found.most[k] / whole;  // NaN stays NaN
                reports[k] = {std::isfinite(relative) ? relative : std::numeric_limits<double>::infinity(), products};
                done[k] = relative <= tol || products >= max_products || !(relative < 0.5 * previous[k]);
                previous[k] = relative;
                goal[k] = 0.5 * tol * whole;
                any = any || !done[k];
            }
            if (!any) break;
            search(found, goal, done, &products, max_products);
        }
        by_block([&](std::int64_t begin, std::int64_t end, Part&) {
            for (std::int64_t x = begin; x < end; ++x) {
                for (int k = 0; k < K; ++k) value[k * n_ + x] = v_[x * K + k];
            }
        });
    }

private:
    // What a block of states adds to sums and maxima; added up in the order of the blocks.
    struct Part {
        double a[K] = {}, b[K] = {}, most[K] = {}, v[K] = {}, rhs[K] = {};
    };
    const PolicyMatrix<Index>& m_;
    std::int64_t n_, blocks_;
    Team& team_;
    std::vector<Part> parts_;
    std::vector<double, LargePages<double>> v_;
    std::vector<Direction, LargePages<Direction>> hat_;
    std::vector<double> r_, shadow_, p_, ap_, t_, scale_;

    template <typename F>
    Part by_block(F&& f) {
        team_.run(blocks_, [&](std::int64_t b) {
            parts_[b] = Part();
            f(b * kBlock, std::min(n_, (b + 1) * kBlock), parts_[b]);
        });
        Part all;
        for (const Part& part : parts_) {
            for (int k = 0; k < K; ++k) {
                all.a[k] += part.a[k];
                all.b[k] += part.b[k];
                all.most[k] = larger(all.most[k], part.most[k]);
                all.v[k] = larger(all.v[k], part.v[k]);
                all.rhs[k] = larger(all.rhs[k], part.rhs[k]);
            }
        }
        return all;
    }
    // the larger one; NaN once there is one
    static double larger(double a, double b) { return a >= b || std::isnan(a) ? a : b; }

    // e[K] = row x of P_π times in
    template <typename V>
    void expected(std::int64_t x, const V* in, double* e) const {
        for (int k = 0; k < K; ++k) e[k] = 0.0;
        for (std::int64_t s = m_.ptr[x]; s < m_.ptr[x + 1]; ++s) {
            const double weight = m_.weight[s];
            if (weight == 0.0) continue;
            double even[K] = {}, odd[K] = {};
            std::int64_t i = m_.indptr[s];
            const std::int64_t end = m_.indptr[s + 1];
            for (; i + 2 <= end; i += 2) {
                const V* first = in + static_cast<std::int64_t>(m_.indices[i]) * K;
                const V* second = in + static_cast<std::int64_t>(m_.indices[i + 1]) * K;
                for (int k = 0; k < K; ++k) even[k] += m_.data[i] * static_cast<double>(first[k]);
                for (int k = 0; k < K; ++k) odd[k] += m_.data[i + 1] * static_cast<double>(second[k]);
            }
            if (i < end) {
                const V* last = in + static_cast<std::int64_t>(m_.indices[i]) * K;
                for (int k = 0; k < K; ++k) even[k] += m_.data[i] * static_cast<double>(last[k]);
            }
            for (int k = 0; k < K; ++k) e[k] += weight * (even[k] + odd[k]);
        }
    }

    // r = rhs − (I − γ P_π) v, with the largest entries of r, v and rhs
    Part residual(const double* rhs) {
        return by_block([&](std::int64_t begin, std::int64_t end, Part& part) {
            double e[K];
            for (std::int64_t x = begin; x < end; ++x) {
                expected(x, v_.data(), e);
                for (int k = 0; k < K; ++k) {
                    const double v = v_[x * K + k], target = rhs[k * n_ + x];
                    const double r = target - (v - m_.discount * e[k]);
                    r_[x * K + k] = r;
                    part.a[k] += r * r;
                    part.most[k] = larger(part.most[k], std::abs(r));
                    part.v[k] = larger(part.v[k], std::abs(v));
                    part.rhs[k] = larger(part.rhs[k], std::abs(target));
                }
            }
        });
    }

    // out = (I − γ P_π) hat / unit, with a = Σ left·out and b = Σ out·out. The unit, a power of two, keeps hat in range.
    Part multiply(const double* unit, const double* left, double* out) {
        return by_block([&](std::int64_t begin, std::int64_t end, Part& part) {
            double e[K];
            for (std::int64_t x = begin; x < end; ++x) {
                expected(x, hat_.data(), e);
                for (int k = 0; k < K; ++k) {
                    const double y = (static_cast<double>(hat_[x * K + k]) - m_.discount * e[k]) / unit[k];
                    out[x * K + k] = y;
                    part.a[k] += left[x * K + k] * y;
                    part.b[k] += y * y;
                }
            }
        });
    }

    // BiCGSTAB from the residual in r until every right-hand side has reached its goal, or can get no further.
    void search(const Part& found, const double* goal, const bool* done, std::int64_t* products, std::int64_t max_products) {
        bool active[K];
        double rho[K], alpha[K] = {}, omega[K] = {}, beta[K] = {}, unit[K];
        for (int k = 0; k < K; ++k) {
            active[k] = !done[k] && found.most[k] > 0.0;
            rho[k] = found.a[k];
            unit[k] = active[k] ? unit_of(found.most[k]) : 1.0;
        }
        by_block([&](std::int64_t begin, std::int64_t end, Part&) {
            for (std::int64_t i = begin * K; i < end * K; ++i) {
                const int k = static_cast<int>(i % K);
                shadow_[i] = p_[i] = r_[i];
                hat_[i] = active[k] ? static_cast<Direction>(scale_[i / K] * r_[i] * unit[k]) : Direction{0};
            }
        });
        const auto any = [&] { return std::any_of(active, active + K, [](bool a) { return a; }); };
        while (*products < max_products && any()) {
            const Part one = multiply(unit, shadow_.data(), ap_.data());
            ++*products;
            for (int k = 0; k < K; ++k) {
                active[k] = active[k] && one.a[k] != 0.0;
                alpha[k] = active[k] ? rho[k] / one.a[k] : 0.0;
            }
            // v, and s in the place of r; what is not active stays as it is
            const Part half = by_block([&](std::int64_t begin, std::int64_t end, Part& part) {
                for (std::int64_t x = begin; x < end; ++x) {
                    for (int k = 0; k < K; ++k) {
                        const std::int64_t i = x * K + k;
                        v_[i] += alpha[k] * (static_cast<double>(hat_[i]) / unit[k]);
                        const double s = r_[i] - alpha[k] * ap_[i];
                        r_[i] = s;
                        hat_[i] = active[k] ? static_cast<Direction>(scale_[x] * s * unit[k]) : Direction{0};
                        part.most[k] = larger(part.most[k], std::abs(s));
                    }
                }
            });
            for (int k = 0; k < K; ++k) active[k] = active[k] && half.most[k] > goal[k];
            if (!any()) break;
            const Part two = multiply(unit, r_.data(), t_.data());
            ++*products;
            double shrunk[K];
            for (int k = 0; k < K; ++k) {
                active[k] = active[k] && two.b[k] != 0.0;
                omega[k] = active[k] ? two.a[k] / two.b[k] : 0.0;
                shrunk[k] = 1.0 / unit[k];
            }
            const Part full = by_block([&](std::int64_t begin, std::int64_t end, Part& part) {
                for (std::int64_t i = begin * K; i < end * K; i += K) {
                    for (int k = 0; k < K; ++k) {
                        v_[i + k] += omega[k] * (static_cast<double>(hat_[i + k]) * shrunk[k]);
                        const double r = r_[i + k] - omega[k] * t_[i + k];
                        r_[i + k] = r;
                        part.a[k] += shadow_[i + k] * r;
                        part.most[k] = larger(part.most[k], std::abs(r));
                    }
                }
            });
            for (int k = 0; k < K; ++k) {
                active[k] = active[k] && full.most[k] > goal[k] && std::isfinite(full.a[k]) && full.a[k] != 0.0 && omega[k] != 0.0;
                beta[k] = active[k] ? (full.a[k] / rho[k]) * (alpha[k] / omega[k]) : 0.0;
                rho[k] = full.a[k];
                if (active[k]) unit[k] = unit_of(full.most[k]);
            }
            by_block([&](std::int64_t begin, std::int64_t end, Part&) {
                for (std::int64_t x = begin; x < end; ++x) {
                    for (int k = 0; k < K; ++k) {
                        const std::int64_t i = x * K + k;
                        p_[i] = r_[i] + beta[k] * (p_[i] - omega[k] * ap_[i]);
                        hat_[i] = active[k] ? static_cast<Direction>(scale_[x] * p_[i] * unit[k]) : Direction{0};
                    }
                }
            });
        }
    }

    // the power of two that brings a size to about 1
    static double unit_of(double size) { return std::ldexp(1.0, std::clamp(-std::ilogb(size), -1000, 1000)); }

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

template <typename Index>
void solve_small(const PolicyMatrix<Index>& matrix, std::int64_t n_rhs, const double* rhs, double* value, double tol,
                 std::int64_t max_products, int threads, SolveReport* reports) {
    Solver<Index> solver(matrix);
    std::atomic<std::int64_t> next{0};
    auto work = [&] {
        for (std::int64_t k = next++; k < n_rhs; k = next++) {
            const std::int64_t offset = k * matrix.n_states;
            reports[k] = solver.solve(rhs + offset, value + offset, tol, max_products);
        }
    };
    std::vector<std::thread> pool;
    for (std::int64_t i = 1; i < std::min<std::int64_t>(threads, n_rhs); ++i) pool.emplace_back(work);
    work();
    for (auto& thread : pool) thread.join();
}

template <int K, typename Direction, typename Index>
void solve_wide(const PolicyMatrix<Index>& matrix, Team& team, std::int64_t* first, std::int64_t n_rhs, const double* rhs,
                double* value, double tol, std::int64_t max_products, SolveReport* reports) {
    for (; *first + K <= n_rhs; *first += K) {
        const std::int64_t offset = *first * matrix.n_states;
        SolveReport* found = reports + *first;
        std::int64_t spent = 0;
        if (std::is_same<Direction, float>::value) {
            WideSolver<Index, K, float>(matrix, team)
                .solve(rhs + offset, value + offset, tol, std::min(max_products, kFloatProducts), found);
            bool solved = true;
            for (int k = 0; k < K; ++k) {
                double* v = value + offset + k * matrix.n_states;
                if (!std::isfinite(found[k].residual)) std::fill(v, v + matrix.n_states, 0.0);
                solved = solved && found[k].residual <= tol;
                spent = std::max(spent, found[k].products);
            }
            if (solved || spent >= max_products) continue;
        }
        WideSolver<Index, K, double>(matrix, team).solve(rhs + offset, value + offset, tol, max_products - spent, found);
        for (int k = 0; k < K; ++k) found[k].products += spent;
    }
}

}  // namespace

template <typename Index>
SolveReport solve_values(const PolicyMatrix<Index>& matrix, std::int64_t n_rhs, const double* rhs, double* value,
                         double tol, std::int64_t max_products, int threads) {
    std::vector<SolveReport> reports(n_rhs);
    if (played_nonzeros(matrix) <= kMergeNonzeros) {
        solve_small(matrix, n_rhs, rhs, value, tol, max_products, threads, reports.data());
    } else {
        Team team(std::max(1, threads));
        std::int64_t first = 0;
        const auto with = [&](auto solve) { solve(matrix, team, &first, n_rhs, rhs, value, tol, max_products, reports.data()); };
        if (matrix.n_states <= kWideStates) {
            with(solve_wide<4, double, Index>);
            with(solve_wide<2, double, Index>);
            with(solve_wide<1, double, Index>);
        } else {
            with(solve_wide<1, float, Index>);  // two in step were slower than one after the other
        }
    }
    SolveReport worst{0.0, 0};
    for (const SolveReport& report : reports) {
        worst.residual = std::max(worst.residual, report.residual);
        worst.products += report.products;
    }
    return worst;
}

template <typename Index>
void pair_values(const PairRows<Index>& rows, std::int64_t n_values, const double* discount, const double* reward,
                 const double* v, double* q, int threads) {
    Team team(std::max(1, threads));
    const std::int64_t blocks = (rows.n_pairs + kBlock - 1) / kBlock;
    const auto pass = [&](std::int64_t first, auto width) {
        constexpr int K = decltype(width)::value;
        std::vector<double, LargePages<double>> in(static_cast<std::size_t>(rows.n_states) * K);
        for (std::int64_t x = 0; x < rows.n_states; ++x) {
            for (int k = 0; k < K; ++k) in[x * K + k] = v[(first + k) * rows.n_states + x];
        }
        team.run(blocks, [&](std::int64_t b) {
            const std::int64_t end = std::min(rows.n_pairs, (b + 1) * kBlock);
            for (std::int64_t s = b * kBlock; s < end; ++s) {
                double sum[K] = {};
                for (std::int64_t i = rows.indptr[s]; i < rows.indptr[s + 1]; ++i) {
                    const double* next = in.data() + static_cast<std::int64_t>(rows.indices[i]) * K;
                    for (int k = 0; k < K; ++k) sum[k] += rows.data[i] * next[k];
                }
                for (int k = 0; k < K; ++k) {
                    const std::int64_t place = (first + k) * rows.n_pairs + s;
                    q[place] = reward[place] + discount[first + k] * sum[k];
                }
            }
        });
    };
    std::int64_t first = 0;
    for (; first + 2 <= n_values; first += 2) pass(first, std::integral_constant<int, 2>());
    if (first < n_values) pass(first, std::integral_constant<int, 1>());
}

template SolveReport solve_values<std::int32_t>(const PolicyMatrix<std::int32_t>&, std::int64_t, const double*, double*,
                                                double, std::int64_t, int);
template SolveReport solve_values<std::int64_t>(const PolicyMatrix<std::int64_t>&, std::int64_t, const double*, double*,
                                                double, std::int64_t, int);
template void pair_values<std::int32_t>(const PairRows<std::int32_t>&, std::int64_t, const double*, const double*,
                                        const double*, double*, int);
template void pair_values<std::int64_t>(const PairRows<std::int64_t>&, std::int64_t, const double*, const double*,
                                        const double*, double*, int);

}  // namespace bettersafe
