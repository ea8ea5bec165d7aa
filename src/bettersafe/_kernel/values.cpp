#include "values.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include "bicgstab.hpp"
#include "memory.hpp"
#include "parallel.hpp"

namespace bettersafe {
namespace {

constexpr std::int64_t kSmallNonzeros = 300'000;     // up to here a product is shorter than waking a thread: one right-hand side per thread
constexpr std::int64_t kFormedNonzeros = 2'000'000;  // up to here the rows of P_π are formed once: fewer, longer rows
constexpr std::int64_t kWideStates = 250'000;        // up to here four directions of doubles stay in a cache; above it, two of floats

// Two doubles in one register: compilers do not vectorise a gather in this way, and it saves a seventh of a product.
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

// Prefetches entries of the matrix: beside random reads, the processor does not detect that they are read in order.
template <typename Index>
inline void prefetch_ahead(const double* data, const Index* index, std::int64_t size) {
    constexpr std::int64_t ahead = 160, line = 64;
    for (std::int64_t i = 0; i < size; i += line / static_cast<std::int64_t>(sizeof(double))) prefetch(data + i + ahead);
    for (std::int64_t i = 0; i < size; i += line / static_cast<std::int64_t>(sizeof(Index))) prefetch(index + i + ahead);
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

// As above for K interleaved vectors, entry k of state x at x K + k: e_k += weight Σ data_i in[index_i K + k]
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

// Nonzeros in the rows of pairs with positive weight: few, if the policy plays one of many actions.
template <typename Index>
std::int64_t played_nonzeros(const PolicyMatrix<Index>& matrix) {
    std::int64_t found = 0;
    for (std::int64_t s = 0; s < matrix.ptr[matrix.n_states]; ++s)
        found += matrix.weight[s] != 0.0 ? matrix.indptr[s + 1] - matrix.indptr[s] : 0;
    return found;
}

// P_π as stored: the rows of the pairs, with their weights.
template <typename Index>
class Stored {
public:
    explicit Stored(const PolicyMatrix<Index>& matrix) : m_(matrix) {}

    template <typename V>
    void prepare(const V*) const {}
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

    template <typename V>
    void prepare(const V*) const {}
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
    std::unique_ptr<Index[]> column_;  // not vectors, which would be filled with zeros first
    std::unique_ptr<double[]> probability_;

    // Whether the pairs of a state share so many successors that merging them pays; checked on a sample of states.
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

    // Concatenates the rows of a state's pairs; a column may occur in a row more than once. Returns the nonzeros.
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

    // Merges the rows of a state's pairs, with every column once. Returns the nonzeros.
    std::int64_t merge() {
        std::vector<std::int64_t> slot(n_, -1);  // last position of a column; in this row if not before its start
        std::int64_t size = 0;
        for (std::int64_t x = 0; x < n_; ++x) {
            const std::int64_t first = row_[x] = size;
            for (std::int64_t s = m_.ptr[x]; s < m_.ptr[x + 1]; ++s) {
                const double w = m_.weight[s];
                if (w == 0.0) continue;
                for (Index i = m_.indptr[s]; i < m_.indptr[s + 1]; ++i) {  // no branch, which would be unpredictable
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

// States per block: depends on their number alone, so that sums are equal on any number of threads.
std::int64_t block_of(std::int64_t n_states) { return std::clamp<std::int64_t>(n_states / 1024 * 64, 256, kBlock); }

// 1 / (1 − γ P_π(x, x)) of every state, for the preconditioner
template <typename Index>
std::vector<double> inverse_diagonal(const PolicyMatrix<Index>& m, Team& team) {
    std::vector<double> scale(m.n_states);
    team.run(blocks_of(m.n_states), [&](std::int64_t b, int) {
        const std::int64_t end = std::min(m.n_states, (b + 1) * kBlock);
        for (std::int64_t x = b * kBlock; x < end; ++x) {
            double stays = 0.0;
            for (std::int64_t s = m.ptr[x]; s < m.ptr[x + 1]; ++s) {
                const Index* first = m.indices + m.indptr[s];
                const Index* last = m.indices + m.indptr[s + 1];
                const auto self = static_cast<Index>(x);
                // scan short rows: the branches of a search would be unpredictable
                const Index* found = last - first <= 64 ? first + std::count_if(first, last, [&](Index y) { return y < self; })
                                                        : std::lower_bound(first, last, self);
                if (found != last && *found == self) stays += m.weight[s] * m.data[found - m.indices];
            }
            const double leaves = 1.0 - m.discount * stays;
            scale[x] = leaves > 0.0 ? 1.0 / leaves : 1.0;  // 0 only if γ = 1, in a state that is never left
        }
    });
    return scale;
}

// Every right-hand side has its own search. It ends if ‖r‖∞ / (‖b‖∞ + 2‖v‖∞) is at most tol, or does not halve from one true residual
// to the next.
template <int K>
class EachToItsGoal {
public:
    static constexpr bool kEndsHalfway = true, kWatchesValues = false;

    EachToItsGoal(double tol, std::int64_t max_products, SolveReport* reports)
        : tol_(tol), max_products_(max_products), reports_(reports) {
        std::fill(previous_, previous_ + K, std::numeric_limits<double>::infinity());
    }

    bool done(const Sums<K>& found, std::int64_t products) {
        bool all = true;
        for (int k = 0; k < K; ++k) {
            goal_[k] = 0.0;
            if (done_[k]) continue;
            const double whole = found.rhs[k] + 2.0 * found.v[k];
            const double relative = whole == 0.0 ? 0.0 : found.most[k] / whole;  // NaN stays NaN
            reports_[k] = {std::isfinite(relative) ? relative : std::numeric_limits<double>::infinity(), products};
            done_[k] = relative <= tol_ || products >= max_products_ || !(relative < 0.5 * previous_[k]);
            previous_[k] = relative;
            goal_[k] = 0.5 * tol_ * whole;
            all = all && done_[k];
        }
        return all;
    }
    void begin(const Sums<K>& found, Coefficients<K>& c) const {
        for (int k = 0; k < K; ++k) c.active[k] = !done_[k] && found.most[k] > 0.0;
    }
    bool set_alpha(const Sums<K>& one, Coefficients<K>& c) const {
        for (int k = 0; k < K; ++k) {
            c.active[k] = c.active[k] && one.a[k] != 0.0;
            c.alpha[k] = c.active[k] ? c.rho[k] / one.a[k] : 0.0;
        }
        return true;
    }
    bool halfway(const Sums<K>& half, Coefficients<K>& c) const {
        for (int k = 0; k < K; ++k) c.active[k] = c.active[k] && half.most[k] > goal_[k];
        return c.any();
    }
    void set_omega(const Sums<K>& two, Coefficients<K>& c) const {
        for (int k = 0; k < K; ++k) {
            c.active[k] = c.active[k] && two.b[k] != 0.0;
            c.omega[k] = c.active[k] ? two.a[k] / two.b[k] : 0.0;
        }
    }
    bool set_beta(const Sums<K>& full, Coefficients<K>& c) const {
        for (int k = 0; k < K; ++k) {
            c.active[k] = c.active[k] && full.most[k] > goal_[k] && std::isfinite(full.a[k]) && full.a[k] != 0.0 && c.omega[k] != 0.0;
            c.beta[k] = c.active[k] ? (full.a[k] / c.rho[k]) * (c.alpha[k] / c.omega[k]) : 0.0;
            c.rho[k] = full.a[k];
        }
        return c.any();
    }
    bool plain_step() const { return false; }

private:
    double tol_;
    std::int64_t max_products_;
    SolveReport* reports_;  // [K]
    bool done_[K] = {};
    double previous_[K], goal_[K] = {};
};

// Right-hand sides, their values, and the accuracy of the solution.
struct Sides {
    std::int64_t n;
    const double* rhs;  // [n, X], like value
    double* value;
    double tol;
    std::int64_t max_products;
    SolveReport* reports;  // [n]
};

// Solves K of them together, from `first` on
template <int K, typename Direction, typename Rows>
void solve_in_step(const Rows& rows, double discount, const std::vector<double>& scale, Team& team, const Sides& sides,
                   std::int64_t first) {
    const std::size_t n_states = scale.size();
    const double* rhs = sides.rhs + first * n_states;
    double* value = sides.value + first * n_states;
    SolveReport* found = sides.reports + first;
    std::int64_t spent = 0;
    const std::int64_t block = block_of(static_cast<std::int64_t>(n_states));
    if constexpr (std::is_same<Direction, float>::value) {
        const std::int64_t most = std::min(sides.max_products, kFloatProducts);
        EachToItsGoal<K> rule(sides.tol, most, found);
        Bicgstab<K, float, const Rows>(rows, discount, scale, block, team).solve(rhs, value, most, rule);
        bool solved = true;
        for (int k = 0; k < K; ++k) {
            if (!std::isfinite(found[k].residual)) std::fill(value + k * n_states, value + (k + 1) * n_states, 0.0);
            solved = solved && found[k].residual <= sides.tol;
            spent = std::max(spent, found[k].products);
        }
        if (solved || spent >= sides.max_products) return;
    }
    const std::int64_t most = sides.max_products - spent;
    EachToItsGoal<K> rule(sides.tol, most, found);
    Bicgstab<K, double, const Rows>(rows, discount, scale, block, team).solve(rhs, value, most, rule);
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
        Team alone(1, 1);
        const std::vector<double> scale = inverse_diagonal(matrix, alone);
        const Formed<Index> rows(matrix, nonzeros);
        Team each(threads, n_rhs);
        each.run(n_rhs, [&](std::int64_t k, int) { solve_in_step<1, double>(rows, matrix.discount, scale, alone, sides, k); });
    } else {
        Team team(threads, blocks_of(matrix.n_states, block_of(matrix.n_states)));
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
    const std::int64_t blocks = blocks_of(rows.n_pairs);
    Team team(threads, blocks);
    const auto pass = [&](std::int64_t first, auto width) {
        constexpr int K = decltype(width)::value;
        std::vector<double, LargePages<double>> in(static_cast<std::size_t>(rows.n_states) * K);
        for (std::int64_t x = 0; x < rows.n_states; ++x) {
            for (int k = 0; k < K; ++k) in[x * K + k] = v[(first + k) * rows.n_states + x];
        }
        team.run(blocks, [&](std::int64_t b, int) {
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
    if (rows.n_states <= kWideStates) {  // above, two vectors exceed the cache, and one pass each is faster
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
