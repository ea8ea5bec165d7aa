#include "mean_process.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "bicgstab.hpp"
#include "memory.hpp"
#include "parallel.hpp"
#include "prior.hpp"

namespace bettersafe {
namespace {

constexpr std::int64_t kChunks = 8;            // partial sums of a transposed product
constexpr std::int64_t kTerms = 65536;         // numbers per block of log_rising
constexpr double kTiny = 1e-9;                 // replaces an α that is 0 up to rounding
constexpr std::int64_t kFloatStates = 60'000;  // states from which directions are floats
constexpr std::int64_t kAhead = 16;            // entries to prefetch ahead

using Doubles = std::vector<double, LargePages<double>>;

// log Γ(x) for x > 0 to about 1e-14: the recurrence up to 10, then Stirling's series.
double log_gamma(double x) {
    double product = 1.0;
    while (x < 10.0) {
        product *= x;
        x += 1.0;
    }
    const double inverse = 1.0 / x, square = inverse * inverse;
    const double series =
        inverse * (1.0 / 12 - square * (1.0 / 360 - square * (1.0 / 1260 - square * (1.0 / 1680 - square / 1188))));
    return (x - 0.5) * std::log(x) - x + 0.91893853320467274178 + series - std::log(product);
}

// Sum of logarithms: factors are multiplied while the product fits in a double, which saves most of the logarithms.
struct LogProduct {
    double sum = 0.0, product = 1.0;
    void times(double factor) {
        product *= factor;
        if (!(product < 1e200) || !(product > 1e-200)) flush();
    }
    void flush() {
        sum += std::log(product);
        product = 1.0;
    }
    void rising(double alpha, double count) {
        alpha = std::max(alpha, kTiny);
        if (count > 16.0) {
            sum += log_gamma(alpha + count) - log_gamma(alpha);
            return;
        }
        for (double i = 0.0; i < count - 0.5; i += 1.0) times(alpha + i);
    }
};

constexpr std::uint64_t kAllMarked = 0x0303030303030303;  // eight counted entries, each the first of its outcome

// Calls both(e) for pairs of entries if the next eight are all marked, else single(e) for each: most rows have only new outcomes.
template <typename Both, typename Single, typename Ahead>
void entries(const std::uint8_t* flag, std::int64_t e, std::int64_t end, std::int64_t all, const Both& both, const Single& single,
             const Ahead& ahead) {
    for (; e + 8 <= end; e += 8) {
        if (e + kAhead + 8 <= all)
            for (std::int64_t i = e + kAhead; i < e + kAhead + 8; ++i) ahead(i);
        std::uint64_t marks;
        std::memcpy(&marks, flag + e, sizeof marks);
        if (marks == kAllMarked)
            for (std::int64_t i = e; i < e + 8; i += 2) both(i);
        else
            for (std::int64_t i = e; i < e + 8; ++i) single(i);
    }
    for (; e < end; ++e) single(e);
}

// P itself. A product is computed in `prepare`, so that its sums stay in registers.
template <int K, typename Index>
class MeanRows {
public:
    MeanRows(const MeanMatrix<Index>& matrix, Team& team)
        : a_(matrix), team_(team), product_(static_cast<std::size_t>(matrix.outcomes.n_states * K)) {}

    template <typename V>
    void prepare(const V* in) {
        const auto& s = a_.outcomes;
        const std::int64_t all = s.indptr[s.ptr[s.n_states]];
        team_.run(blocks_of(s.n_states), [&](std::int64_t block, int) {
            const std::int64_t end = std::min(s.n_states, (block + 1) * kBlock);
            for (std::int64_t x = block * kBlock; x < end; ++x) {
                double total[K] = {}, other[K] = {};  // two sums, to hide the latency of the additions
                const double even = a_.even[x];
                for (std::int64_t p = s.ptr[x]; p < s.ptr[x + 1]; ++p) {
                    const double weight = a_.weight[p];
                    entries(
                        s.flag, s.indptr[p], s.indptr[p + 1], all,
                        [&](std::int64_t e) {
                            const V* one = in + static_cast<std::int64_t>(s.indices[e]) * K;
                            const V* two = in + static_cast<std::int64_t>(s.indices[e + 1]) * K;
                            const double of_one = weight * s.data[e] + even, of_two = weight * s.data[e + 1] + even;
                            for (int k = 0; k < K; ++k) total[k] += of_one * static_cast<double>(one[k]);
                            for (int k = 0; k < K; ++k) other[k] += of_two * static_cast<double>(two[k]);
                        },
                        [&](std::int64_t e) {
                            const V* from = in + static_cast<std::int64_t>(s.indices[e]) * K;
                            const double part = (s.flag[e] & kCounted) ? weight * s.data[e] : 0.0;
                            const double share = part + ((s.flag[e] & kFirst) ? even : 0.0);
                            for (int k = 0; k < K; ++k) total[k] += share * static_cast<double>(from[k]);
                        },
                        [&](std::int64_t e) { prefetch(in + static_cast<std::int64_t>(s.indices[e]) * K); });
                }
                for (int k = 0; k < K; ++k) {
                    total[k] += other[k];
                    if (a_.worst[x] >= 0) total[k] += a_.extra[x] * static_cast<double>(in[a_.worst[x] * K + k]);
                    product_[static_cast<std::size_t>(x * K + k)] = total[k];
                }
            }
        });
    }
    template <int, typename V>
    void expected(std::int64_t x, const V*, double* e) const {
        std::copy_n(product_.data() + x * K, K, e);
    }

private:
    const MeanMatrix<Index>& a_;
    Team& team_;
    std::vector<double> product_;  // [X, K]
};

// Pᵀ, for one vector at a time. A product is computed in `prepare`, as a fixed number of partial sums over ranges of states.
template <typename Index>
class MeanColumns {
public:
    MeanColumns(const MeanMatrix<Index>& matrix, Team& team)
        : a_(matrix), team_(team), product_(static_cast<std::size_t>(matrix.outcomes.n_states)), sums_(product_.size() * kChunks) {}

    void prepare(const double* in) {
        const auto& s = a_.outcomes;
        const std::int64_t n = s.n_states, size = blocks_of(n, kChunks), all = s.indptr[s.ptr[n]];
        team_.run(kChunks, [&](std::int64_t chunk, int) {
            double* out = sums_.data() + chunk * n;
            std::fill(out, out + n, 0.0);
            const std::int64_t end = std::min(n, (chunk + 1) * size);
            for (std::int64_t x = chunk * size; x < end; ++x) {
                if (in[x] == 0.0) continue;
                const double even = a_.even[x] * in[x];
                for (std::int64_t p = s.ptr[x]; p < s.ptr[x + 1]; ++p) {
                    const double weight = a_.weight[p] * in[x];
                    entries(
                        s.flag, s.indptr[p], s.indptr[p + 1], all,
                        [&](std::int64_t i) {
                            out[s.indices[i]] += weight * s.data[i] + even;
                            out[s.indices[i + 1]] += weight * s.data[i + 1] + even;
                        },
                        [&](std::int64_t i) {
                            const double part = (s.flag[i] & kCounted) ? weight * s.data[i] : 0.0;
                            out[s.indices[i]] += part + ((s.flag[i] & kFirst) ? even : 0.0);
                        },
                        [&](std::int64_t i) { prefetch(out + s.indices[i]); });
                }
                if (a_.worst[x] >= 0) out[a_.worst[x]] += a_.extra[x] * in[x];
            }
        });
        team_.run(blocks_of(n), [&](std::int64_t block, int) {
            const std::int64_t end = std::min(n, (block + 1) * kBlock);
            for (std::int64_t x = block * kBlock; x < end; ++x) {
                double total = 0.0;
                for (std::int64_t chunk = 0; chunk < kChunks; ++chunk) total += sums_[static_cast<std::size_t>(chunk * n + x)];
                product_[static_cast<std::size_t>(x)] = total;
            }
        });
    }
    template <int>
    void expected(std::int64_t x, const double*, double* e) const {
        e[0] = product_[static_cast<std::size_t>(x)];
    }

private:
    const MeanMatrix<Index>& a_;
    Team& team_;
    std::vector<double> product_;
    Doubles sums_;  // [chunks, X]
};

// 1 / (1 − γ P(x, x)) of every state
template <typename Index>
std::vector<double> inverse_diagonal(const MeanMatrix<Index>& a, Team& team) {
    const auto& s = a.outcomes;
    std::vector<double> found(static_cast<std::size_t>(s.n_states));
    team.run(blocks_of(s.n_states), [&](std::int64_t block, int) {
        const std::int64_t end = std::min(s.n_states, (block + 1) * kBlock);
        for (std::int64_t x = block * kBlock; x < end; ++x) {
            double own = a.worst[x] == x ? a.extra[x] : 0.0;
            for (std::int64_t p = s.ptr[x]; p < s.ptr[x + 1]; ++p) {
                const Index* last = s.indices + s.indptr[p + 1];
                const Index* at = std::lower_bound(s.indices + s.indptr[p], last, static_cast<Index>(x));
                if (at == last || *at != static_cast<Index>(x)) continue;
                const std::int64_t e = at - s.indices;
                if (s.flag[e] & kCounted) own += a.weight[p] * s.data[e];
                if (s.flag[e] & kFirst) own += a.even[x];
            }
            found[static_cast<std::size_t>(x)] = 1.0 / std::max(1.0 - a.discount * own, 1e-3);
        }
    });
    return found;
}

// All right-hand sides are iterated until the largest ‖r‖∞ / (‖b‖∞ + 2‖v‖∞) is at most tol. A search that breaks down restarts from
// the true residual; if it can't start, a plain step follows, which is always possible.
template <int K>
class AllTogether {
public:
    static constexpr bool kEndsHalfway = false, kWatchesValues = true;

    AllTogether(double tol, std::int64_t max_products) : tol_(tol), max_products_(max_products) {}

    double error() const { return error_; }

    bool done(const Sums<K>& found, std::int64_t products) {
        std::copy(found.rhs, found.rhs + K, rhs_);
        error_ = largest(found);
        return error_ <= tol_ || products >= max_products_;
    }
    void begin(const Sums<K>&, Coefficients<K>& c) {
        std::fill(c.active, c.active + K, true);
        begun_ = stuck_ = false;
    }
    bool set_alpha(const Sums<K>& one, Coefficients<K>& c) {
        bool broken = false;
        for (int k = 0; k < K; ++k) {
            c.alpha[k] = c.rho[k] == 0.0 ? 0.0 : c.rho[k] / one.a[k];
            broken = broken || !std::isfinite(c.alpha[k]);
        }
        stuck_ = broken && !begun_;
        begun_ = true;
        return !broken;
    }
    void set_omega(const Sums<K>& two, Coefficients<K>& c) const {
        for (int k = 0; k < K; ++k) c.omega[k] = two.b[k] == 0.0 ? 0.0 : two.a[k] / two.b[k];
    }
    bool set_beta(const Sums<K>& full, Coefficients<K>& c) const {
        if (largest(full) <= 0.5 * tol_) return false;
        bool broken = false;
        for (int k = 0; k < K; ++k) {
            if (c.omega[k] == 0.0) c.omega[k] = 1.0;  // this right-hand side is solved to the last bit
            c.beta[k] = full.a[k] == 0.0 ? 0.0 : (full.a[k] / c.rho[k]) * (c.alpha[k] / c.omega[k]);
            // a residual that is orthogonal to the shadow but not small would never change again: restart from it
            broken = broken || !std::isfinite(c.beta[k]) || (full.a[k] == 0.0 && error_of(full, k) > 0.5 * tol_);
            c.rho[k] = full.a[k];
        }
        return !broken;
    }
    bool plain_step() const { return stuck_; }

private:
    double tol_;
    std::int64_t max_products_;
    double error_ = 1.0, rhs_[K] = {};
    bool begun_ = false, stuck_ = false;

    double largest(const Sums<K>& sums) const {
        double worst = 0.0;
        for (int k = 0; k < K; ++k) worst = std::max(worst, error_of(sums, k));
        return worst;
    }
    double error_of(const Sums<K>& sums, int k) const {
        const double whole = rhs_[k] + 2.0 * sums.v[k];
        return std::isfinite(sums.most[k]) ? (whole > 0.0 ? sums.most[k] / whole : 0.0) : 1.0;
    }
};

// Largest backward error of K right-hand sides.
template <int K, typename Direction, typename Matrix>
double solve_in_step(Matrix& matrix, double discount, const std::vector<double>& scale, Team& team, const double* rhs, double* value,
                     double tol, std::int64_t max_products) {
    AllTogether<K> rule(tol, max_products);
    Bicgstab<K, Direction, Matrix>(matrix, discount, scale, kBlock, team).solve(rhs, value, max_products, rule);
    return rule.error();
}

template <int K, typename Index>
double solve_group(const MeanMatrix<Index>& a, const std::vector<double>& scale, Team& team, const double* rhs, double* value,
                   double tol, std::int64_t max_products) {
    MeanRows<K, Index> rows(a, team);
    if (a.outcomes.n_states > kFloatStates) {
        const std::int64_t most = std::min(max_products, kFloatProducts);
        const double error = solve_in_step<K, float>(rows, a.discount, scale, team, rhs, value, tol, most);
        if (error <= tol) return error;
    }
    return solve_in_step<K, double>(rows, a.discount, scale, team, rhs, value, tol, max_products);
}

// Moments for the covariance of one pair's row, for n numbers D: sums over outcomes by shares, and by the pair's own counts.
struct Moments {
    const double *share1, *share2;  // Σ share D [n], Σ share D Dᵀ [n, n] lower
    const double *own1, *own2;      // Σ count D, Σ count D Dᵀ by its own counts; null if it was never tried
    const double *worst, *end;      // D of the worst outcome and of the end [n]
    double share_on, on, extra_on, share_end, ended, extra_end, going, others, end_others;
};

template <typename Index>
class Covariance {
public:
    explicit Covariance(const Gains<Index>& gains) : g_(gains) {}

    // Adds the covariance of Σ p D to out [n, n], lower.
    void add(int n, const Moments& m, double* out) {
        first_.assign(static_cast<std::size_t>(n), 0.0);
        onward_.assign(static_cast<std::size_t>(n), 0.0);
        double going_squared = 0.0;
        for (std::int64_t b = 0; b < g_.n_end; ++b) {
            const auto [scale, own] = strengths_of(g_.end_concentration[b], m.end_others);
            const double going = scale * m.going + own * m.on + m.extra_on;
            const double total = scale * m.share_end + own * m.ended + m.extra_end + going;
            going_squared += g_.end_weight[b] * going * (going + 1.0) / (total * (total + 1.0));
        }
        for (std::int64_t b = 0; b < g_.n_on; ++b) {
            const auto [scale, own] = strengths_of(g_.on_concentration[b], m.others);
            double total = scale * m.share_on + own * m.on + m.extra_on;
            if (!(total > 0.0)) total = 1.0;
            const double second = g_.on_weight[b] * going_squared / (total * (total + 1.0));
            for (int k = 0; k < n; ++k) {
                first_[k] = scale * m.share1[k] + m.extra_on * m.worst[k] + (m.own1 ? own * m.own1[k] : 0.0);
                onward_[k] += g_.on_weight[b] * first_[k] / total;
            }
            for (int k = 0, i = 0; k < n; ++k)
                for (int l = 0; l <= k; ++l, ++i) {
                    const double both =
                        scale * m.share2[i] + m.extra_on * m.worst[k] * m.worst[l] + (m.own2 ? own * m.own2[i] : 0.0);
                    out[i] += second * (both - first_[k] * first_[l] / total);
                }
        }
        for (std::int64_t b = 0; b < g_.n_end; ++b) {
            const auto [scale, own] = strengths_of(g_.end_concentration[b], m.end_others);
            const double going = scale * m.going + own * m.on + m.extra_on;
            const double end = scale * m.share_end + own * m.ended + m.extra_end;
            const double total = end + going, second = g_.end_weight[b] / (total * (total + 1.0));
            for (int k = 0; k < n; ++k) first_[k] = end * m.end[k] + going * onward_[k];
            for (int k = 0, i = 0; k < n; ++k)
                for (int l = 0; l <= k; ++l, ++i)
                    out[i] += second * (end * m.end[k] * m.end[l] + going * onward_[k] * onward_[l] - first_[k] * first_[l] / total);
        }
    }

private:
    const Gains<Index>& g_;
    std::vector<double> first_, onward_;

    Strengths strengths_of(double concentration, double others) const {
        return g_.hierarchical ? strengths(concentration, others) : Strengths{concentration, 1.0};
    }
};

std::size_t lower(std::int64_t n) { return static_cast<std::size_t>(n * (n + 1) / 2); }

// Adds Σ weight z [n] and Σ weight z zᵀ [n, n], lower, of rows z [rows, n]; N is n if that is known when compiled, else 0.
template <int N>
void add_moments(int size, std::int64_t rows, const double* weight, const double* z, double* first, double* second) {
    const int n = N ? N : size;
    for (int k = 0; k < n; ++k, second += k) {
        if constexpr (N > 0) {  // one whole row of the result at a time, which stays in registers
            double sums[N] = {}, sum = first[k];
            for (int l = 0; l <= k; ++l) sums[l] = second[l];
            for (std::int64_t i = 0; i < rows; ++i) {
                const double* row = z + i * N;
                const double weighted = weight[i] * row[k];
                sum += weighted;
                for (int l = 0; l < N; ++l) sums[l] += weighted * row[l];
            }
            first[k] = sum;
            for (int l = 0; l <= k; ++l) second[l] = sums[l];
        } else {
            for (std::int64_t i = 0; i < rows; ++i) {
                const double* row = z + i * n;
                const double weighted = weight[i] * row[k];
                first[k] += weighted;
                for (int l = 0; l <= k; ++l) second[l] += weighted * row[l];
            }
        }
    }
}

// Adds the lower part of the covariance over states first to end; N is n if that is known when compiled, else 0.
//
// With a = ν^π (γ v^π(next) − v^π) − b, b = ν^b (γ v^b(next) − v^b) of an outcome, D = π a + (π − π_b) b of a pair.
template <int N, typename Index>
void add_states(const Gains<Index>& g, std::int64_t first, std::int64_t last, double* out) {
    const auto& s = g.outcomes;
    const int n = N ? N : static_cast<int>(g.n), both = 2 * n;
    Covariance<Index> covariance(g);
    std::vector<double> share1(both), share2(lower(both)), worst(both), end(both), wide(lower(both));
    std::vector<double> own, d1(n), d2(lower(n)), dw(n), de(n);
    std::vector<double> count, share, z, d;  // of the entries of a pair
    const std::size_t room = static_cast<std::size_t>(n) + lower(n);
    const std::int64_t all = s.indptr[s.ptr[last]];
    for (std::int64_t x = first; x < last; ++x) {
        const double* v = g.value + x * both;
        const double* nu = g.state_visits + x * both;
        bool visited = false;
        for (int i = 0; i < both; ++i) visited = visited || nu[i] != 0.0;
        if (!visited || !(g.share_on[x] + g.share_end[x] > 0.0)) continue;
        const auto outcome = [&](const double* after, double* to) {  // [a, b] of an outcome; null: the end
            for (int k = 0; k < n; ++k) {
                const double mine = after ? g.discount[k] * after[2 * k] : 0.0;
                const double theirs = after ? g.discount[k] * after[2 * k + 1] : 0.0;
                to[n + k] = nu[2 * k + 1] * (theirs - v[2 * k + 1]);
                to[k] = nu[2 * k] * (mine - v[2 * k]) - to[n + k];
            }
        };
        std::fill(share1.begin(), share1.end(), 0.0);
        std::fill(share2.begin(), share2.end(), 0.0);
        const std::int64_t begin = s.ptr[x], stop = s.ptr[x + 1];
        own.assign(room * static_cast<std::size_t>(stop - begin), 0.0);
        for (std::int64_t p = begin; p < stop; ++p) {
            double* own1 = own.data() + room * static_cast<std::size_t>(p - begin);
            const std::size_t entries = static_cast<std::size_t>(s.indptr[p + 1] - s.indptr[p]);
            if (count.size() < entries) {
                count.resize(entries);
                share.resize(entries);
                z.resize(entries * static_cast<std::size_t>(both));
                d.resize(entries * static_cast<std::size_t>(n));
            }
            std::int64_t rows = 0;
            for (std::int64_t e = s.indptr[p]; e < s.indptr[p + 1]; ++e) {
                if (e + kAhead < all) {  // random reads with much work in between: the processor does not prefetch them itself
                    const double* next = g.value + static_cast<std::int64_t>(s.indices[e + kAhead]) * both;
                    prefetch(next);
                    prefetch(next + both - 1);
                }
                if (!(s.flag[e] & kCounted)) continue;
                double* to = z.data() + rows * both;
                outcome(g.value + static_cast<std::int64_t>(s.indices[e]) * both, to);
                count[static_cast<std::size_t>(rows)] = s.data[e] * s.visits[p];
                share[static_cast<std::size_t>(rows)] =
                    g.counted * count[static_cast<std::size_t>(rows)] + ((s.flag[e] & kFirst) ? g.even[x] : 0.0);
                for (int k = 0; k < n; ++k) d[static_cast<std::size_t>(rows * n + k)] = g.policy[p] * to[k] + g.moved[p] * to[n + k];
                ++rows;
            }
            add_moments<2 * N>(both, rows, share.data(), z.data(), share1.data(), share2.data());
            if (g.policy[p] != 0.0 || g.moved[p] != 0.0) add_moments<N>(n, rows, count.data(), d.data(), own1, own1 + n);
        }
        outcome(nullptr, end.data());
        const double extra_on = g.worst[x] >= 0 ? g.pessimism : 0.0, extra_end = g.worst[x] == -1 ? g.pessimism : 0.0;
        if (extra_on > 0.0)
            outcome(g.value + g.worst[x] * both, worst.data());
        else
            std::fill(worst.begin(), worst.end(), 0.0);
        Moments m{};
        m.share_on = g.share_on[x];
        m.extra_on = extra_on;
        m.share_end = g.share_end[x];
        m.extra_end = extra_end;
        m.going = g.going[x];
        const auto at = [](int k, int l) { return k >= l ? k * (k + 1) / 2 + l : l * (l + 1) / 2 + k; };
        for (std::int64_t p = begin; p < stop; ++p) {
            const double pi = g.policy[p], tau = g.moved[p];
            if (pi == 0.0 && tau == 0.0) continue;
            for (int k = 0, i = 0; k < n; ++k) {
                d1[k] = pi * share1[k] + tau * share1[n + k];
                dw[k] = pi * worst[k] + tau * worst[n + k];
                de[k] = pi * end[k] + tau * end[n + k];
                for (int l = 0; l <= k; ++l, ++i)
                    d2[i] = pi * pi * share2[at(k, l)] + pi * tau * (share2[at(n + k, l)] + share2[at(n + l, k)]) +
                            tau * tau * share2[at(n + k, n + l)];
            }
            m.share1 = d1.data();
            m.share2 = d2.data();
            m.own1 = own.data() + room * static_cast<std::size_t>(p - begin);
            m.own2 = m.own1 + n;
            m.worst = dw.data();
            m.end = de.data();
            m.on = g.on[p];
            m.ended = g.ended[p];
            m.others = g.others[p];
            m.end_others = g.end_others[p];
            covariance.add(n, m, out);
        }
        const double* q = g.untried + 3 * x;
        if (q[0] == 0.0 && q[2] == 0.0) continue;
        std::fill(wide.begin(), wide.end(), 0.0);  // pairs never tried have equal rows, but different π
        m.share1 = share1.data();
        m.share2 = share2.data();
        m.own1 = m.own2 = nullptr;
        m.worst = worst.data();
        m.end = end.data();
        m.on = m.ended = 0.0;
        m.others = g.share_on[x];
        m.end_others = g.share_end[x] + g.going[x];
        covariance.add(both, m, wide.data());
        for (int k = 0, i = 0; k < n; ++k)
            for (int l = 0; l <= k; ++l, ++i)
                out[i] += q[0] * wide[at(k, l)] + q[1] * (wide[at(n + k, l)] + wide[at(n + l, k)]) + q[2] * wide[at(n + k, n + l)];
    }
}

}  // namespace

template <typename Index>
void mark_outcomes(const CountedOutcomes<Index>& s, const std::uint8_t* acted, std::uint8_t* flag, double* distinct, double* on, int threads) {
    Team team(threads, blocks_of(s.n_states));
    std::vector<std::vector<std::int64_t>> seen(static_cast<std::size_t>(team.size()));
    team.run(blocks_of(s.n_states), [&](std::int64_t block, int worker) {
        auto& last = seen[static_cast<std::size_t>(worker)];  // the last state with this successor
        if (last.empty()) last.assign(static_cast<std::size_t>(s.n_states), -1);
        const std::int64_t end = std::min(s.n_states, (block + 1) * kBlock);
        for (std::int64_t x = block * kBlock; x < end; ++x) {
            distinct[x] = 0.0;
            for (std::int64_t p = s.ptr[x]; p < s.ptr[x + 1]; ++p) {
                double share = 0.0;
                for (std::int64_t e = s.indptr[p]; e < s.indptr[p + 1]; ++e) {
                    const std::size_t next = static_cast<std::size_t>(s.indices[e]);
                    flag[e] = acted[next] && s.data[e] > 0.0 ? kCounted : 0;
                    if (!flag[e]) continue;
                    share += std::nearbyint(s.data[e] * s.visits[p]);
                    if (last[next] != x) {
                        last[next] = x;
                        flag[e] |= kFirst;
                        distinct[x] += 1.0;
                    }
                }
                on[p] = share;
            }
        }
    });
}

double log_rising(std::int64_t size, const double* alpha, const double* count, int threads) {
    const std::int64_t n_blocks = blocks_of(size, kTerms);
    std::vector<double> sums(static_cast<std::size_t>(n_blocks));
    Team(threads, n_blocks).run(n_blocks, [&](std::int64_t block, int) {
        LogProduct terms;
        const std::int64_t end = std::min(size, (block + 1) * kTerms);
        for (std::int64_t i = block * kTerms; i < end; ++i) terms.rising(alpha[i], count[i]);
        terms.flush();
        sums[static_cast<std::size_t>(block)] = terms.sum;
    });
    double total = 0.0;
    for (const double sum : sums) total += sum;
    return total;
}

template <typename Index>
void successor_likelihood(const CountedOutcomes<Index>& s, const double* even, const double* others, std::int64_t n_grid, const double* grid,
                         double* out, int threads) {
    const std::int64_t n_blocks = blocks_of(s.n_states);
    Team team(threads, n_blocks);
    std::vector<double> sums(static_cast<std::size_t>(n_blocks * n_grid));
    std::vector<std::vector<double>> rooms(static_cast<std::size_t>(team.size()));
    team.run(n_blocks, [&](std::int64_t block, int worker) {
        auto& seen = rooms[static_cast<std::size_t>(worker)];
        if (seen.empty()) seen.assign(static_cast<std::size_t>(s.n_states), 0.0);
        std::vector<LogProduct> terms(static_cast<std::size_t>(n_grid));
        std::vector<double> scale(static_cast<std::size_t>(n_grid));
        const std::int64_t end = std::min(s.n_states, (block + 1) * kBlock);
        for (std::int64_t x = block * kBlock; x < end; ++x) {
            for (std::int64_t p = s.ptr[x]; p < s.ptr[x + 1]; ++p)
                for (std::int64_t e = s.indptr[p]; e < s.indptr[p + 1]; ++e)
                    if (s.flag[e] & kCounted) seen[static_cast<std::size_t>(s.indices[e])] += std::nearbyint(s.data[e] * s.visits[p]);
            for (std::int64_t p = s.ptr[x]; p < s.ptr[x + 1]; ++p) {
                for (std::int64_t c = 0; c < n_grid; ++c) scale[static_cast<std::size_t>(c)] = strengths(grid[c], others[p]).prior;
                for (std::int64_t e = s.indptr[p]; e < s.indptr[p + 1]; ++e) {
                    if (!(s.flag[e] & kCounted)) continue;
                    const double count = std::nearbyint(s.data[e] * s.visits[p]);
                    const double left = seen[static_cast<std::size_t>(s.indices[e])] - count + even[x];
                    for (std::int64_t c = 0; c < n_grid; ++c)
                        terms[static_cast<std::size_t>(c)].rising(scale[static_cast<std::size_t>(c)] * left, count);
                }
            }
            for (std::int64_t p = s.ptr[x]; p < s.ptr[x + 1]; ++p)
                for (std::int64_t e = s.indptr[p]; e < s.indptr[p + 1]; ++e) seen[static_cast<std::size_t>(s.indices[e])] = 0.0;
        }
        for (std::int64_t c = 0; c < n_grid; ++c) {
            terms[static_cast<std::size_t>(c)].flush();
            sums[static_cast<std::size_t>(block * n_grid + c)] = terms[static_cast<std::size_t>(c)].sum;
        }
    });
    std::fill(out, out + n_grid, 0.0);
    for (std::int64_t i = 0; i < n_blocks * n_grid; ++i) out[i % n_grid] += sums[static_cast<std::size_t>(i)];
}

template <typename Index>
void worst_outcomes(const CountedOutcomes<Index>& s, const std::uint8_t* ended, const double* value, std::int64_t* worst, int threads) {
    const std::int64_t n_blocks = blocks_of(s.n_states);
    Team(threads, n_blocks).run(n_blocks, [&](std::int64_t block, int) {
        const std::int64_t end = std::min(s.n_states, (block + 1) * kBlock);
        for (std::int64_t x = block * kBlock; x < end; ++x) {
            std::int64_t place = ended[x] ? -1 : -2;
            double least = ended[x] ? 0.0 : std::numeric_limits<double>::infinity();
            for (std::int64_t p = s.ptr[x]; p < s.ptr[x + 1]; ++p)
                for (std::int64_t e = s.indptr[p]; e < s.indptr[p + 1]; ++e) {
                    const std::int64_t next = static_cast<std::int64_t>(s.indices[e]);
                    if (!(s.flag[e] & kFirst) || value[next] > least) continue;
                    if (value[next] < least || (place >= 0 && next < place)) {
                        place = next;
                        least = value[next];
                    }
                }
            worst[x] = place;
        }
    });
}

template <typename Index>
double solve_mean(const MeanMatrix<Index>& a, bool transposed, std::int64_t n_rhs, const double* rhs, double* value, double tol,
                  std::int64_t max_products, int threads) {
    const std::int64_t n = a.outcomes.n_states;
    Team team(threads, std::max(blocks_of(n), transposed ? kChunks : 1));
    const std::vector<double> scale = inverse_diagonal(a, team);
    double error = 0.0;
    std::int64_t k = 0;
    if (transposed) {
        MeanColumns<Index> columns(a, team);
        for (; k < n_rhs; ++k)
            error = std::max(error, solve_in_step<1, double>(columns, a.discount, scale, team, rhs + k * n, value + k * n, tol, max_products));
        return error;
    }
    const auto next = [&](auto width) {
        constexpr int K = decltype(width)::value;
        error = std::max(error, solve_group<K>(a, scale, team, rhs + k * n, value + k * n, tol, max_products));
        k += K;
    };
    while (k + 4 <= n_rhs) next(std::integral_constant<int, 4>());
    while (k + 2 <= n_rhs) next(std::integral_constant<int, 2>());
    while (k < n_rhs) next(std::integral_constant<int, 1>());
    return error;
}

template <typename Index>
void gains_covariance(const Gains<Index>& g, double* out, int threads) {
    const std::int64_t n_blocks = blocks_of(g.outcomes.n_states);
    const std::size_t size = lower(g.n);
    std::vector<double> sums(static_cast<std::size_t>(n_blocks) * size, 0.0);
    Team(threads, n_blocks).run(n_blocks, [&](std::int64_t block, int) {
        double* to = sums.data() + static_cast<std::size_t>(block) * size;
        const std::int64_t first = block * kBlock, last = std::min(g.outcomes.n_states, (block + 1) * kBlock);
        switch (g.n) {
            case 1: add_states<1>(g, first, last, to); break;
            case 2: add_states<2>(g, first, last, to); break;
            case 3: add_states<3>(g, first, last, to); break;
            case 4: add_states<4>(g, first, last, to); break;
            default: add_states<0>(g, first, last, to);
        }
    });
    std::vector<double> total(size, 0.0);
    for (std::size_t i = 0; i < sums.size(); ++i) total[i % size] += sums[i];
    for (std::int64_t k = 0, i = 0; k < g.n; ++k)
        for (std::int64_t l = 0; l <= k; ++l, ++i) out[k * g.n + l] = out[l * g.n + k] = total[static_cast<std::size_t>(i)];
}

#define BETTERSAFE_FOR(Index)                                                                                                   \
    template void mark_outcomes(const CountedOutcomes<Index>&, const std::uint8_t*, std::uint8_t*, double*, double*, int);                   \
    template void successor_likelihood(const CountedOutcomes<Index>&, const double*, const double*, std::int64_t, const double*, double*,  \
                                      int);                                                                                     \
    template void worst_outcomes(const CountedOutcomes<Index>&, const std::uint8_t*, const double*, std::int64_t*, int);                  \
    template double solve_mean(const MeanMatrix<Index>&, bool, std::int64_t, const double*, double*, double, std::int64_t, int); \
    template void gains_covariance(const Gains<Index>&, double*, int);
BETTERSAFE_FOR(std::int32_t)
BETTERSAFE_FOR(std::int64_t)
#undef BETTERSAFE_FOR

}  // namespace bettersafe
