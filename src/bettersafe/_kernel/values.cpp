#include "values.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "memory.hpp"

namespace bettersafe {
namespace {

constexpr std::int64_t kSmallNonzeros = 300'000;     // up to here a product is over before a thread has woken: each takes a right-hand side
constexpr std::int64_t kFormedNonzeros = 2'000'000;  // up to here the rows of P_π are formed once: fewer, longer rows
constexpr std::int64_t kBlock = 2048;                // rows per block, at most
constexpr std::int64_t kSerial = 20'000;             // numbers up to which one thread adds vectors sooner than two
constexpr std::int64_t kWideStates = 250'000;        // up to here four directions of doubles stay in a cache; above it, two of floats
constexpr std::int64_t kFloatProducts = 48;          // by then floats have done it, or rounded directions make it last longer

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

template <typename V>
inline Two two(V first, V second) {
    return Two{static_cast<double>(first), static_cast<double>(second)};
}

// Ask for what a row of a few pairs on will read: reading at random beside it keeps the processor from seeing that the matrix
// itself is read in order.
template <typename Index>
inline void prefetch_ahead(const double* data, const Index* index, std::int64_t size) {
#if defined(__GNUC__)
    constexpr std::int64_t ahead = 160, line = 64;
    for (std::int64_t i = 0; i < size; i += line / static_cast<std::int64_t>(sizeof(double))) __builtin_prefetch(data + i + ahead);
    for (std::int64_t i = 0; i < size; i += line / static_cast<std::int64_t>(sizeof(Index))) __builtin_prefetch(index + i + ahead);
#endif
}

// Σ data_i in[index_i], in four lanes that are added in a fixed order
template <typename Index, typename V>
inline double gather(const double* data, const Index* index, std::int64_t size, const V* in) {
    Two low = {0.0, 0.0}, high = {0.0, 0.0}, a, b;
    std::int64_t i = 0;
    for (; i + 4 <= size; i += 4) {
        std::memcpy(&a, data + i, sizeof a);
        std::memcpy(&b, data + i + 2, sizeof b);
        low += a * two(in[index[i]], in[index[i + 1]]);
        high += b * two(in[index[i + 2]], in[index[i + 3]]);
    }
    double first = low[0];
    for (; i < size; ++i) first += data[i] * in[index[i]];
    return (first + low[1]) + (high[0] + high[1]);
}

// The same of K vectors that stand side by side, entry k of state x at x K + k: e_k += weight Σ data_i in[index_i K + k]
template <int K, typename Index, typename V>
inline void gather_in_step(const double* data, const Index* index, std::int64_t size, const V* in, double weight, double* e) {
    if constexpr (K == 1) {
        e[0] += weight * gather(data, index, size, in);
    } else {
        constexpr int lanes = K == 2 ? 4 : 2;
        Two sum[lanes][K / 2] = {};
        const auto add = [&](std::int64_t i, int lane) {
            const V* from = in + static_cast<std::int64_t>(index[i]) * K;
            const Two share = {data[i], data[i]};
            for (int h = 0; h < K / 2; ++h) sum[lane][h] += share * two(from[2 * h], from[2 * h + 1]);
        };
        std::int64_t i = 0;
        for (; i + lanes <= size; i += lanes) {
            for (int lane = 0; lane < lanes; ++lane) add(i + lane, lane);
        }
        for (; i < size; ++i) add(i, 0);
        for (int h = 0; h < K / 2; ++h) {
            Two all = sum[0][h];
            for (int lane = 1; lane < lanes; ++lane) all += sum[lane][h];
            e[2 * h] += weight * all[0];
            e[2 * h + 1] += weight * all[1];
        }
    }
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
        if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
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
    std::exception_ptr failure_;

    void drain() {
        try {
            for (std::int64_t b = next_++; b < n_blocks_; b = next_++) (*job_)(b);
        } catch (...) {  // for want of memory; said when all have stopped
            std::lock_guard<std::mutex> lock(mutex_);
            failure_ = std::current_exception();
            next_ = n_blocks_;
        }
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

// The rows of P_π as they are stored: those of the pairs, with their weights.
template <typename Index>
class Stored {
public:
    explicit Stored(const PolicyMatrix<Index>& matrix) : m_(matrix) {}

    // e_k = row x of P_π times vector k of in
    template <int K, typename V>
    void expected(std::int64_t x, const V* in, double* e) const {
        std::fill(e, e + K, 0.0);
        for (std::int64_t s = m_.ptr[x]; s < m_.ptr[x + 1]; ++s) {
            if (m_.weight[s] == 0.0) continue;
            const std::int64_t first = m_.indptr[s], size = m_.indptr[s + 1] - first;
            prefetch_ahead(m_.data + first, m_.indices + first, size);
            gather_in_step<K>(m_.data + first, m_.indices + first, size, in, m_.weight[s], e);
        }
    }

private:
    const PolicyMatrix<Index>& m_;
};

// P_π itself: fewer, longer rows, and no weights.
template <typename Index>
class Formed {
public:
    Formed(const PolicyMatrix<Index>& matrix, std::int64_t nonzeros)
        : m_(matrix), n_(matrix.n_states), row_(n_ + 1), column_(new Index[nonzeros]), probability_(new double[nonzeros]) {
        row_[n_] = rows_overlap() ? merge() : append();
    }

    template <int K, typename V>
    void expected(std::int64_t x, const V* in, double* e) const {
        const std::int64_t first = row_[x];
        std::fill(e, e + K, 0.0);
        gather_in_step<K>(probability_.get() + first, column_.get() + first, row_[x + 1] - first, in, 1.0, e);
    }

private:
    const PolicyMatrix<Index>& m_;
    std::int64_t n_;
    std::vector<std::int64_t> row_;
    std::unique_ptr<Index[]> column_;  // not vectors: they would first be filled with zeros
    std::unique_ptr<double[]> probability_;

    // Whether the pairs of a state lead to the same states so often that it pays to find out which; asked of a few states.
    bool rows_overlap() const {
        constexpr std::int64_t asked = 32;
        std::vector<Index> columns;
        std::size_t all = 0, different = 0;
        for (std::int64_t x = 0; x < n_; x += std::max<std::int64_t>(n_ / asked, 1)) {
            columns.clear();
            for (std::int64_t s = m_.ptr[x]; s < m_.ptr[x + 1]; ++s) {
                if (m_.weight[s] != 0.0) columns.insert(columns.end(), m_.indices + m_.indptr[s], m_.indices + m_.indptr[s + 1]);
            }
            all += columns.size();
            std::sort(columns.begin(), columns.end());
            different += static_cast<std::size_t>(std::unique(columns.begin(), columns.end()) - columns.begin());
        }
        return 4 * different < 3 * all;
    }

    // The rows of a state's pairs, one after the other; a column may stand in a row more than once. Returns the nonzeros.
    std::int64_t append() {
        std::int64_t size = 0;
        for (std::int64_t x = 0; x < n_; ++x) {
            row_[x] = size;
            for (std::int64_t s = m_.ptr[x]; s < m_.ptr[x + 1]; ++s) {
                const double w = m_.weight[s];
                if (w == 0.0) continue;
                const std::int64_t first = m_.indptr[s], length = m_.indptr[s + 1] - first;
                const Index* from = m_.indices + first;
                const double* share = m_.data + first;
                Index* column = column_.get() + size;
                double* probability = probability_.get() + size;
                for (std::int64_t i = 0; i < length; ++i) {
                    column[i] = from[i];
                    probability[i] = w * share[i];
                }
                size += length;
            }
        }
        return size;
    }

    // The same with every column once in a row.
    std::int64_t merge() {
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
        }
        return size;
    }
};

// States per block: it follows from their number alone, so that sums are the same on any number of threads.
std::int64_t block_of(std::int64_t n_states) { return std::clamp<std::int64_t>(n_states / 1024 * 64, 256, kBlock); }

// 1 / (1 − γ P_π(x, x)) of every state
template <typename Index>
std::vector<double> inverse_diagonal(const PolicyMatrix<Index>& m, Team& team) {
    std::vector<double> scale(m.n_states);
    team.run((m.n_states + kBlock - 1) / kBlock, [&](std::int64_t b) {
        const std::int64_t end = std::min(m.n_states, (b + 1) * kBlock);
        for (std::int64_t x = b * kBlock; x < end; ++x) {
            double stays = 0.0;
            for (std::int64_t s = m.ptr[x]; s < m.ptr[x + 1]; ++s) {
                const Index* first = m.indices + m.indptr[s];
                const Index* last = m.indices + m.indptr[s + 1];
                const auto self = static_cast<Index>(x);
                // of a short row all are looked at: nothing could predict the branches of a search
                const Index* found = last - first <= 64 ? first + std::count_if(first, last, [&](Index y) { return y < self; })
                                                        : std::lower_bound(first, last, self);
                if (found != last && *found == self) stays += m.weight[s] * m.data[found - m.indices];
            }
            scale[x] = 1.0 / (1.0 - m.discount * stays);
        }
    });
    return scale;
}

// K right-hand sides in step, so that one pass over the rows of p serves all of them. Entry k of state x
// stands at x K + k. Every right-hand side has its own search.
//
// What a product of the search reads at random is a vector of directions. As floats, half as much of it misses the cache, for
// a few products more. No digit is lost: v and the residual both move by the rounded direction, and all sums are double.
// Where hundreds of products are needed, as with jumps to near states only, rounding makes it a third more: then doubles.
template <typename Rows, int K, typename Direction>
class Solver {
public:
    Solver(const Rows& rows, double discount, const std::vector<double>& scale, Team& team)
        : rows_(rows), discount_(discount), scale_(scale), n_(static_cast<std::int64_t>(scale.size())), block_(block_of(n_)),
          blocks_((n_ + block_ - 1) / block_), team_(team), parts_(blocks_) {}

    // rhs and value are K rows [X]; one report each.
    void solve(const double* rhs, double* value, double tol, std::int64_t max_products, SolveReport* reports) {
        const std::size_t size = static_cast<std::size_t>(n_) * K;
        v_.resize(size);
        hat_.resize(size);
        for (auto* vector : {&r_, &shadow_, &p_, &ap_, &t_}) vector->resize(size);
        const Part start = by_block([&](std::int64_t begin, std::int64_t end, Part& part) {
            for (std::int64_t x = begin; x < end; ++x) {
                for (int k = 0; k < K; ++k) {
                    v_[x * K + k] = value[k * n_ + x];
                    part.v[k] = larger(part.v[k], std::abs(v_[x * K + k]));
                }
            }
        });
        bool from_zero = std::all_of(start.v, start.v + K, [](double size) { return size == 0.0; });
        std::int64_t products = 0;
        bool done[K] = {};
        double previous[K];
        std::fill(previous, previous + K, std::numeric_limits<double>::infinity());
        // Each pass ends with the true residual; a pass that does not help ends the search.
        for (;;) {
            const Part found = residual(rhs, from_zero);
            products += from_zero ? 0 : 1;
            from_zero = false;
            double goal[K] = {};
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
    const Rows& rows_;
    double discount_;
    const std::vector<double>& scale_;  // preconditioner: 1 / (1 − γ P_π(x, x))
    std::int64_t n_, block_, blocks_;
    Team& team_;
    std::vector<Part> parts_;
    std::vector<double, LargePages<double>> v_;
    std::vector<Direction, LargePages<Direction>> hat_;
    std::vector<double> r_, shadow_, p_, ap_, t_;

    // f of every block of states; on one thread where it does little with few of them
    template <typename F>
    Part by_block(F&& f, bool little = true) {
        const auto one = [&](std::int64_t b) {
            Part part;  // its own, not parts_[b]: it can stay in registers
            f(b * block_, std::min(n_, (b + 1) * block_), part);
            parts_[b] = part;
        };
        if (little && n_ * K <= kSerial) {
            for (std::int64_t b = 0; b < blocks_; ++b) one(b);
        } else {
            team_.run(blocks_, one);
        }
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

    // r = rhs − (I − γ P_π) v, with the largest entries of r, v and rhs; of v = 0 the product is known
    Part residual(const double* rhs, bool from_zero) {
        return by_block([&](std::int64_t begin, std::int64_t end, Part& part) {
            double e[K] = {};
            for (std::int64_t x = begin; x < end; ++x) {
                if (!from_zero) rows_.template expected<K>(x, v_.data(), e);
                for (int k = 0; k < K; ++k) {
                    const double v = v_[x * K + k], target = rhs[k * n_ + x];
                    const double r = target - (v - discount_ * e[k]);
                    r_[x * K + k] = r;
                    part.a[k] += r * r;
                    part.most[k] = larger(part.most[k], std::abs(r));
                    part.v[k] = larger(part.v[k], std::abs(v));
                    part.rhs[k] = larger(part.rhs[k], std::abs(target));
                }
            }
        }, false);
    }

    // out = (I − γ P_π) hat / unit, with a = Σ left·out and b = Σ out·out. The unit, a power of two, keeps hat in range;
    // shrunk is 1 / unit.
    Part multiply(const double* shrunk, const double* left, double* out) {
        return by_block([&](std::int64_t begin, std::int64_t end, Part& part) {
            double e[K];
            for (std::int64_t x = begin; x < end; ++x) {
                rows_.template expected<K>(x, hat_.data(), e);
                for (int k = 0; k < K; ++k) {
                    const double y = (static_cast<double>(hat_[x * K + k]) - discount_ * e[k]) * shrunk[k];
                    out[x * K + k] = y;
                    part.a[k] += left[x * K + k] * y;
                    part.b[k] += y * y;
                }
            }
        }, false);
    }

    // BiCGSTAB from the residual in r until every right-hand side has reached its goal, or can get no further.
    void search(const Part& found, const double* goal, const bool* done, std::int64_t* products, std::int64_t max_products) {
        bool active[K];
        double rho[K], alpha[K] = {}, omega[K] = {}, beta[K] = {}, unit[K], shrunk[K];
        for (int k = 0; k < K; ++k) {
            active[k] = !done[k] && found.most[k] > 0.0;
            rho[k] = found.a[k];
            unit[k] = active[k] ? unit_of(found.most[k]) : 1.0;
            shrunk[k] = 1.0 / unit[k];
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
            const Part one = multiply(shrunk, shadow_.data(), ap_.data());
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
                        v_[i] += alpha[k] * (static_cast<double>(hat_[i]) * shrunk[k]);
                        const double s = r_[i] - alpha[k] * ap_[i];
                        r_[i] = s;
                        hat_[i] = active[k] ? static_cast<Direction>(scale_[x] * s * unit[k]) : Direction{0};
                        part.most[k] = larger(part.most[k], std::abs(s));
                    }
                }
            });
            for (int k = 0; k < K; ++k) active[k] = active[k] && half.most[k] > goal[k];
            if (!any()) break;
            const Part two = multiply(shrunk, r_.data(), t_.data());
            ++*products;
            for (int k = 0; k < K; ++k) {
                active[k] = active[k] && two.b[k] != 0.0;
                omega[k] = active[k] ? two.a[k] / two.b[k] : 0.0;
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
                shrunk[k] = 1.0 / unit[k];
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
};

// Right-hand sides, where their values go, and how well they are to be solved.
struct Sides {
    std::int64_t n;
    const double* rhs;  // [n, X], like value
    double* value;
    double tol;
    std::int64_t max_products;
    SolveReport* reports;  // [n]
};

// K of them in step, from `first` on
template <int K, typename Direction, typename Rows>
void solve_in_step(const Rows& rows, double discount, const std::vector<double>& scale, Team& team, const Sides& sides,
                   std::int64_t first) {
    const std::size_t n_states = scale.size();
    const double* rhs = sides.rhs + first * n_states;
    double* value = sides.value + first * n_states;
    SolveReport* found = sides.reports + first;
    std::int64_t spent = 0;
    if constexpr (std::is_same<Direction, float>::value) {
        Solver<Rows, K, float>(rows, discount, scale, team)
            .solve(rhs, value, sides.tol, std::min(sides.max_products, kFloatProducts), found);
        bool solved = true;
        for (int k = 0; k < K; ++k) {
            if (!std::isfinite(found[k].residual)) std::fill(value + k * n_states, value + (k + 1) * n_states, 0.0);
            solved = solved && found[k].residual <= sides.tol;
            spent = std::max(spent, found[k].products);
        }
        if (solved || spent >= sides.max_products) return;
    }
    Solver<Rows, K, double>(rows, discount, scale, team).solve(rhs, value, sides.tol, sides.max_products - spent, found);
    for (int k = 0; k < K; ++k) found[k].products += spent;
}

template <typename Rows>
void solve_all(const Rows& rows, double discount, const std::vector<double>& scale, Team& team, const Sides& sides) {
    const auto n_states = static_cast<std::int64_t>(scale.size());
    std::int64_t first = 0;
    if (n_states <= kWideStates) {
        for (; first + 4 <= sides.n; first += 4) solve_in_step<4, double>(rows, discount, scale, team, sides, first);
        for (; first + 2 <= sides.n; first += 2) solve_in_step<2, double>(rows, discount, scale, team, sides, first);
        for (; first < sides.n; ++first) solve_in_step<1, double>(rows, discount, scale, team, sides, first);
    } else {
        for (; first + 2 <= sides.n; first += 2) solve_in_step<2, float>(rows, discount, scale, team, sides, first);
        for (; first < sides.n; ++first) solve_in_step<1, float>(rows, discount, scale, team, sides, first);
    }
}

}  // namespace

template <typename Index>
SolveReport solve_values(const PolicyMatrix<Index>& matrix, std::int64_t n_rhs, const double* rhs, double* value,
                         double tol, std::int64_t max_products, int threads) {
    std::vector<SolveReport> reports(n_rhs);
    const Sides sides{n_rhs, rhs, value, tol, max_products, reports.data()};
    const std::int64_t nonzeros = played_nonzeros(matrix);
    if (nonzeros <= kSmallNonzeros) {
        Team alone(1);
        const std::vector<double> scale = inverse_diagonal(matrix, alone);
        const Formed<Index> rows(matrix, nonzeros);
        Team each(static_cast<int>(std::min<std::int64_t>(threads, n_rhs)));
        each.run(n_rhs, [&](std::int64_t k) { solve_in_step<1, double>(rows, matrix.discount, scale, alone, sides, k); });
    } else {
        Team team(threads);
        const std::vector<double> scale = inverse_diagonal(matrix, team);
        if (nonzeros <= kFormedNonzeros) {
            solve_all(Formed<Index>(matrix, nonzeros), matrix.discount, scale, team, sides);
        } else {
            solve_all(Stored<Index>(matrix), matrix.discount, scale, team, sides);
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
                prefetch_ahead(rows.data + rows.indptr[s], rows.indices + rows.indptr[s], rows.indptr[s + 1] - rows.indptr[s]);
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
    if (rows.n_states <= kWideStates) {  // above it two of them would leave the cache: a pass for each is quicker
        for (; first + 2 <= n_values; first += 2) pass(first, std::integral_constant<int, 2>());
    }
    for (; first < n_values; ++first) pass(first, std::integral_constant<int, 1>());
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
