#include "linearised.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>
#include <vector>

namespace bettersafe {
namespace {

constexpr std::int64_t kBlock = 2048;   // states per block
constexpr std::int64_t kChunks = 8;     // sums that a transposed product is made of
constexpr std::int64_t kTerms = 65536;  // numbers per block of log_rising
constexpr double kTiny = 1e-9;          // α that is 0 but for rounding

// Runs job(block, worker) on all blocks.
void parallel(std::int64_t n_blocks, int threads, const std::function<void(std::int64_t, int)>& job) {
    const int n = static_cast<int>(std::max<std::int64_t>(1, std::min<std::int64_t>(threads, n_blocks)));
    std::atomic<std::int64_t> next{0};
    const auto serve = [&](int worker) {
        for (std::int64_t b = next++; b < n_blocks; b = next++) job(b, worker);
    };
    std::vector<std::thread> team;
    for (int i = 1; i < n; ++i) team.emplace_back(serve, i);
    serve(0);
    for (auto& thread : team) thread.join();
}

std::int64_t blocks_of(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

// log Γ(x) for x > 0: up to 10 by its recurrence, then Stirling's series, to about 1e-14.
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

// A sum of logarithms: factors are multiplied as long as they fit, which spares most of the logarithms.
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

double scale_of(double concentration, double others, bool hierarchical) {
    if (!hierarchical || others <= 0.0) return concentration;
    return (1.0 / (1.0 / (concentration + 1.0) + concentration / ((concentration + 1.0) * (others + 1.0))) - 1.0) / others;
}

// y = P x for M right-hand sides, interleaved [X, M].
template <int M, typename Index>
void product(const MeanMatrix<Index>& a, const double* x, double* y, int threads) {
    const auto& s = a.steps;
    parallel(blocks_of(s.n_states, kBlock), threads, [&](std::int64_t block, int) {
        const std::int64_t end = std::min(s.n_states, (block + 1) * kBlock);
        for (std::int64_t state = block * kBlock; state < end; ++state) {
            double total[M] = {}, even[M] = {};
            for (std::int64_t p = s.ptr[state]; p < s.ptr[state + 1]; ++p) {
                double row[M] = {};
                for (std::int64_t e = s.indptr[p]; e < s.indptr[p + 1]; ++e) {
                    const double* from = x + static_cast<std::int64_t>(s.indices[e]) * M;
                    const double part = (s.flag[e] & kCounted) ? s.data[e] : 0.0;
                    const double first = (s.flag[e] & kFirst) ? 1.0 : 0.0;
                    for (int k = 0; k < M; ++k) {
                        row[k] += part * from[k];
                        even[k] += first * from[k];
                    }
                }
                for (int k = 0; k < M; ++k) total[k] += a.weight[p] * row[k];
            }
            for (int k = 0; k < M; ++k) {
                total[k] += a.even[state] * even[k];
                if (a.worst[state] >= 0) total[k] += a.extra[state] * x[a.worst[state] * M + k];
                y[state * M + k] = total[k];
            }
        }
    });
}

// y = Pᵀ x, in a fixed number of sums over ranges of states.
template <typename Index>
void product_transposed(const MeanMatrix<Index>& a, const double* x, double* y, std::vector<double>& room, int threads) {
    const auto& s = a.steps;
    const std::int64_t n = s.n_states, size = blocks_of(n, kChunks);
    room.assign(static_cast<std::size_t>(n * kChunks), 0.0);
    parallel(kChunks, threads, [&](std::int64_t chunk, int) {
        double* out = room.data() + chunk * n;
        const std::int64_t end = std::min(n, (chunk + 1) * size);
        for (std::int64_t state = chunk * size; state < end; ++state) {
            if (x[state] == 0.0) continue;
            const double even = a.even[state] * x[state];
            for (std::int64_t p = s.ptr[state]; p < s.ptr[state + 1]; ++p) {
                const double weight = a.weight[p] * x[state];
                for (std::int64_t e = s.indptr[p]; e < s.indptr[p + 1]; ++e) {
                    const double part = (s.flag[e] & kCounted) ? weight * s.data[e] : 0.0;
                    out[s.indices[e]] += part + ((s.flag[e] & kFirst) ? even : 0.0);
                }
            }
            if (a.worst[state] >= 0) out[a.worst[state]] += a.extra[state] * x[state];
        }
    });
    parallel(blocks_of(n, kBlock), threads, [&](std::int64_t block, int) {
        const std::int64_t end = std::min(n, (block + 1) * kBlock);
        for (std::int64_t state = block * kBlock; state < end; ++state) {
            double total = 0.0;
            for (std::int64_t chunk = 0; chunk < kChunks; ++chunk) total += room[static_cast<std::size_t>(chunk * n + state)];
            y[state] = total;
        }
    });
}

// 1 / (1 − γ P_xx): what the iteration is preconditioned with.
template <typename Index>
std::vector<double> inverse_diagonal(const MeanMatrix<Index>& a) {
    const auto& s = a.steps;
    std::vector<double> found(static_cast<std::size_t>(s.n_states));
    for (std::int64_t state = 0; state < s.n_states; ++state) {
        double own = a.worst[state] == state ? a.extra[state] : 0.0;
        for (std::int64_t p = s.ptr[state]; p < s.ptr[state + 1]; ++p)
            for (std::int64_t e = s.indptr[p]; e < s.indptr[p + 1]; ++e)
                if (static_cast<std::int64_t>(s.indices[e]) == state) {
                    if (s.flag[e] & kCounted) own += a.weight[p] * s.data[e];
                    if (s.flag[e] & kFirst) own += a.even[state];
                }
        found[static_cast<std::size_t>(state)] = 1.0 / std::max(1.0 - a.discount * own, 1e-3);
    }
    return found;
}

// BiCGSTAB on M interleaved right-hand sides [X, M] at once; value holds the guess. Returns the largest backward error.
template <int M>
double bicgstab(std::int64_t n, const double* rhs, double* value, const std::vector<double>& precondition, double discount,
                double tol, std::int64_t max_products, const std::function<void(const double*, double*)>& times) {
    const std::size_t size = static_cast<std::size_t>(n * M);
    std::vector<double> r(size), shadow(size), p(size, 0.0), v(size, 0.0), hat(size), t(size);
    const auto apply = [&](const double* x, double* y) {  // (I − γP) x
        times(x, y);
        for (std::size_t i = 0; i < size; ++i) y[i] = x[i] - discount * y[i];
    };
    const auto dots = [&](const std::vector<double>& a, const std::vector<double>& b, double* out) {
        std::fill(out, out + M, 0.0);
        for (std::size_t i = 0; i < size; ++i) out[i % M] += a[i] * b[i];
    };
    const auto error = [&] {  // of r, beside rhs and value
        double worst = 0.0;
        for (int k = 0; k < M; ++k) {
            double left = 0.0, of_rhs = 0.0, of_value = 0.0;
            for (std::int64_t i = k; i < n * M; i += M) {
                left = std::max(left, std::abs(r[static_cast<std::size_t>(i)]));
                of_rhs = std::max(of_rhs, std::abs(rhs[i]));
                of_value = std::max(of_value, std::abs(value[i]));
            }
            const double scale = of_rhs + 2.0 * of_value;
            worst = std::max(worst, std::isfinite(left) ? (scale > 0.0 ? left / scale : 0.0) : 1.0);
        }
        return worst;
    };
    std::int64_t products = 0;
    double found = 1.0;
    while (true) {  // begun again, from the true residual, whenever it breaks down or thinks that it is done
        apply(value, r.data());
        ++products;
        for (std::size_t i = 0; i < size; ++i) r[i] = rhs[i] - r[i];
        found = error();
        if (found <= tol || products >= max_products) return found;
        shadow = r;
        std::fill(p.begin(), p.end(), 0.0);
        std::fill(v.begin(), v.end(), 0.0);
        double rho[M], alpha[M], omega[M];
        std::fill(rho, rho + M, 1.0);
        std::fill(alpha, alpha + M, 1.0);
        std::fill(omega, omega + M, 1.0);
        const std::int64_t first = products;
        while (products < max_products) {
            double next[M], beta[M], below[M], above[M];
            dots(shadow, r, next);
            bool broken = false;
            for (int k = 0; k < M; ++k) {
                beta[k] = next[k] == 0.0 ? 0.0 : (next[k] / rho[k]) * (alpha[k] / omega[k]);
                if (!std::isfinite(beta[k])) broken = true;
                rho[k] = next[k];
            }
            if (broken) break;
            for (std::size_t i = 0; i < size; ++i) {
                const std::size_t k = i % M;
                p[i] = r[i] + beta[k] * (p[i] - omega[k] * v[i]);
                hat[i] = precondition[i / M] * p[i];
            }
            apply(hat.data(), v.data());
            dots(shadow, v, below);
            for (int k = 0; k < M; ++k) {
                alpha[k] = rho[k] == 0.0 ? 0.0 : rho[k] / below[k];
                if (!std::isfinite(alpha[k])) broken = true;
            }
            if (broken) break;
            for (std::size_t i = 0; i < size; ++i) {
                value[i] += alpha[i % M] * hat[i];
                r[i] -= alpha[i % M] * v[i];
                hat[i] = precondition[i / M] * r[i];
            }
            apply(hat.data(), t.data());
            products += 2;
            dots(t, r, above);
            dots(t, t, below);
            for (int k = 0; k < M; ++k) omega[k] = below[k] == 0.0 ? 0.0 : above[k] / below[k];
            for (std::size_t i = 0; i < size; ++i) {
                value[i] += omega[i % M] * hat[i];
                r[i] -= omega[i % M] * t[i];
            }
            for (int k = 0; k < M; ++k)
                if (omega[k] == 0.0) omega[k] = 1.0;  // a right-hand side that is solved to the last bit
            if (error() <= 0.5 * tol) break;
        }
        if (products == first) {  // it broke down at once: one plain step, which never does
            apply(value, r.data());
            ++products;
            for (std::size_t i = 0; i < size; ++i) value[i] += rhs[i] - r[i];
        }
    }
}

template <int M, typename Index>
double solve_group(const MeanMatrix<Index>& a, const std::vector<double>& diagonal, const double* rhs, double* value, double tol,
                   std::int64_t max_products, int threads) {
    const std::int64_t n = a.steps.n_states;
    std::vector<double> right(static_cast<std::size_t>(n * M)), found(right.size());
    for (std::int64_t i = 0; i < n; ++i)
        for (int k = 0; k < M; ++k) {
            right[static_cast<std::size_t>(i * M + k)] = rhs[k * n + i];
            found[static_cast<std::size_t>(i * M + k)] = value[k * n + i];
        }
    const double error =
        bicgstab<M>(n, right.data(), found.data(), diagonal, a.discount, tol, max_products,
                    [&](const double* x, double* y) { product<M>(a, x, y, threads); });
    for (std::int64_t i = 0; i < n; ++i)
        for (int k = 0; k < M; ++k) value[k * n + i] = found[static_cast<std::size_t>(i * M + k)];
    return error;
}

// What the covariance of one pair's rows needs, of n numbers D: sums over outcomes by shares, and over its own counts.
struct Moments {
    const double *share1, *share2;  // Σ share D [n], Σ share D Dᵀ [n, n] lower
    const double *own1, *own2;      // the same by its own counts; null where it was never tried
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
            const auto [scale, own] = scales(g_.end_concentration[b], m.end_others);
            const double going = scale * m.going + own * m.on + m.extra_on;
            const double total = scale * m.share_end + own * m.ended + m.extra_end + going;
            going_squared += g_.end_weight[b] * going * (going + 1.0) / (total * (total + 1.0));
        }
        for (std::int64_t b = 0; b < g_.n_on; ++b) {
            const auto [scale, own] = scales(g_.on_concentration[b], m.others);
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
            const auto [scale, own] = scales(g_.end_concentration[b], m.end_others);
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

    std::pair<double, double> scales(double concentration, double others) const {
        const double scale = scale_of(concentration, others, g_.hierarchical);
        return {scale, g_.hierarchical && others > 0.0 ? 1.0 - scale : 1.0};
    }
};

std::size_t lower(std::int64_t n) { return static_cast<std::size_t>(n * (n + 1) / 2); }

// Adds the lower part of the covariance over states first to end; N is n where that is known when compiled, else 0.
//
// With a = ν^π (γ v^π(next) − v^π) − b, b = ν^b (γ v^b(next) − v^b) of an outcome, D = π a + (π − π_b) b of a pair.
template <int N, typename Index>
void add_states(const Gains<Index>& g, std::int64_t first, std::int64_t last, double* out) {
    const auto& s = g.steps;
    const int n = N ? N : static_cast<int>(g.n), both = 2 * n;
    Covariance<Index> covariance(g);
    std::vector<double> share1(both), share2(lower(both)), worst(both), end(both), z(both), wide(lower(both));
    std::vector<double> own, d1(n), d2(lower(n)), dw(n), de(n), d(n);
    const std::size_t room = static_cast<std::size_t>(n) + lower(n);
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
            double* own2 = own1 + n;
            for (std::int64_t e = s.indptr[p]; e < s.indptr[p + 1]; ++e) {
                if (!(s.flag[e] & kCounted)) continue;
                outcome(g.value + static_cast<std::int64_t>(s.indices[e]) * both, z.data());
                const double count = s.data[e] * s.visits[p];
                const double share = g.counted * count + ((s.flag[e] & kFirst) ? g.even[x] : 0.0);
                for (int k = 0, i = 0; k < both; ++k) {
                    const double weighted = share * z[k];
                    share1[k] += weighted;
                    for (int l = 0; l <= k; ++l, ++i) share2[i] += weighted * z[l];
                }
                for (int k = 0; k < n; ++k) d[k] = g.policy[p] * z[k] + g.moved[p] * z[n + k];
                for (int k = 0, i = 0; k < n; ++k) {
                    const double weighted = count * d[k];
                    own1[k] += weighted;
                    for (int l = 0; l <= k; ++l, ++i) own2[i] += weighted * d[l];
                }
            }
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
        std::fill(wide.begin(), wide.end(), 0.0);  // all pairs never tried have the same rows, and other π
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
void mark_steps(const Steps<Index>& s, const std::uint8_t* acted, std::uint8_t* flag, double* distinct, double* on, int threads) {
    std::vector<std::vector<std::int64_t>> seen(static_cast<std::size_t>(std::max(threads, 1)));
    parallel(blocks_of(s.n_states, kBlock), threads, [&](std::int64_t block, int worker) {
        auto& last = seen[static_cast<std::size_t>(worker)];  // the last state from which it was seen
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
    parallel(n_blocks, threads, [&](std::int64_t block, int) {
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
void where_to_likelihood(const Steps<Index>& s, const double* even, const double* others, std::int64_t n_grid, const double* grid,
                         double* out, int threads) {
    const std::int64_t n_blocks = blocks_of(s.n_states, kBlock);
    std::vector<double> sums(static_cast<std::size_t>(n_blocks * n_grid));
    std::vector<std::vector<double>> rooms(static_cast<std::size_t>(std::max(threads, 1)));
    parallel(n_blocks, threads, [&](std::int64_t block, int worker) {
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
                for (std::int64_t c = 0; c < n_grid; ++c) scale[static_cast<std::size_t>(c)] = scale_of(grid[c], others[p], true);
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
void worst_outcomes(const Steps<Index>& s, const std::uint8_t* ended, const double* value, std::int64_t* worst, int threads) {
    parallel(blocks_of(s.n_states, kBlock), threads, [&](std::int64_t block, int) {
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
    const std::int64_t n = a.steps.n_states;
    const std::vector<double> diagonal = inverse_diagonal(a);
    double error = 0.0;
    std::vector<double> room;
    for (std::int64_t k = 0; k < n_rhs;) {
        const std::int64_t left = n_rhs - k;
        if (transposed) {
            error = std::max(error, bicgstab<1>(n, rhs + k * n, value + k * n, diagonal, a.discount, tol, max_products,
                                                [&](const double* x, double* y) { product_transposed(a, x, y, room, threads); }));
            k += 1;
        } else if (left >= 4) {
            error = std::max(error, solve_group<4>(a, diagonal, rhs + k * n, value + k * n, tol, max_products, threads));
            k += 4;
        } else if (left >= 2) {
            error = std::max(error, solve_group<2>(a, diagonal, rhs + k * n, value + k * n, tol, max_products, threads));
            k += 2;
        } else {
            error = std::max(error, solve_group<1>(a, diagonal, rhs + k * n, value + k * n, tol, max_products, threads));
            k += 1;
        }
    }
    return error;
}

template <typename Index>
void gains_covariance(const Gains<Index>& g, double* out, int threads) {
    const std::int64_t n_blocks = blocks_of(g.steps.n_states, kBlock);
    const std::size_t size = lower(g.n);
    std::vector<double> sums(static_cast<std::size_t>(n_blocks) * size, 0.0);
    parallel(n_blocks, threads, [&](std::int64_t block, int) {
        double* to = sums.data() + static_cast<std::size_t>(block) * size;
        const std::int64_t first = block * kBlock, last = std::min(g.steps.n_states, (block + 1) * kBlock);
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
    template void mark_steps(const Steps<Index>&, const std::uint8_t*, std::uint8_t*, double*, double*, int);                   \
    template void where_to_likelihood(const Steps<Index>&, const double*, const double*, std::int64_t, const double*, double*,  \
                                      int);                                                                                     \
    template void worst_outcomes(const Steps<Index>&, const std::uint8_t*, const double*, std::int64_t*, int);                  \
    template double solve_mean(const MeanMatrix<Index>&, bool, std::int64_t, const double*, double*, double, std::int64_t, int); \
    template void gains_covariance(const Gains<Index>&, double*, int);
BETTERSAFE_FOR(std::int32_t)
BETTERSAFE_FOR(std::int64_t)
#undef BETTERSAFE_FOR

}  // namespace bettersafe
