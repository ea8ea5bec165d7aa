#include "mean_process.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <thread>
#include <vector>

#include "memory.hpp"

namespace bettersafe {
namespace {

constexpr std::int64_t kBlock = 2048;   // states per block
constexpr std::int64_t kChunks = 8;     // sums that a transposed product is made of
constexpr std::int64_t kTerms = 65536;  // numbers per block of log_rising
constexpr double kTiny = 1e-9;          // α that is 0 but for rounding
constexpr std::int64_t kFloatStates = 60'000;  // from here on directions are floats
constexpr std::int64_t kFloatProducts = 48;    // by then floats have done it, or rounded directions make it last longer

constexpr std::int64_t kAhead = 16;            // entries whose values are asked for before they are needed

void prefetch(const void* place) {
#if defined(__GNUC__)
    __builtin_prefetch(place);
#else
    (void)place;
#endif
}

using Doubles = std::vector<double, LargePages<double>>;

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

constexpr std::uint64_t kAllMarked = 0x0303030303030303;  // eight entries that count, each the first of its outcome

// Calls both(e) or, where not all of the next eight entries are marked alike, single(e) for the entries of a row: most rows are
// of new outcomes throughout, and need not be asked one by one.
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

// y = P x for M right-hand sides, interleaved [X, M].
template <int M, typename Index, typename Number>
void product(const MeanMatrix<Index>& a, const Number* x, double* y, int threads) {
    const auto& s = a.steps;
    const std::int64_t all = s.indptr[s.ptr[s.n_states]];
    parallel(blocks_of(s.n_states, kBlock), threads, [&](std::int64_t block, int) {
        const std::int64_t end = std::min(s.n_states, (block + 1) * kBlock);
        for (std::int64_t state = block * kBlock; state < end; ++state) {
            double total[M] = {}, other[M] = {};  // two sums at a time: one would wait for itself
            const double even = a.even[state];
            for (std::int64_t p = s.ptr[state]; p < s.ptr[state + 1]; ++p) {
                const double weight = a.weight[p];
                entries(
                    s.flag, s.indptr[p], s.indptr[p + 1], all,
                    [&](std::int64_t e) {
                        const Number* one = x + static_cast<std::int64_t>(s.indices[e]) * M;
                        const Number* two = x + static_cast<std::int64_t>(s.indices[e + 1]) * M;
                        const double of_one = weight * s.data[e] + even, of_two = weight * s.data[e + 1] + even;
                        for (int k = 0; k < M; ++k) total[k] += of_one * static_cast<double>(one[k]);
                        for (int k = 0; k < M; ++k) other[k] += of_two * static_cast<double>(two[k]);
                    },
                    [&](std::int64_t e) {
                        const Number* from = x + static_cast<std::int64_t>(s.indices[e]) * M;
                        const double part = (s.flag[e] & kCounted) ? weight * s.data[e] : 0.0;
                        const double share = part + ((s.flag[e] & kFirst) ? even : 0.0);
                        for (int k = 0; k < M; ++k) total[k] += share * static_cast<double>(from[k]);
                    },
                    [&](std::int64_t e) { prefetch(x + static_cast<std::int64_t>(s.indices[e]) * M); });
            }
            for (int k = 0; k < M; ++k) {
                total[k] += other[k];
                if (a.worst[state] >= 0) total[k] += a.extra[state] * static_cast<double>(x[a.worst[state] * M + k]);
                y[state * M + k] = total[k];
            }
        }
    });
}

// y = Pᵀ x, in a fixed number of sums over ranges of states.
template <typename Index>
void product_transposed(const MeanMatrix<Index>& a, const double* x, double* y, Doubles& room, int threads) {
    const auto& s = a.steps;
    const std::int64_t n = s.n_states, size = blocks_of(n, kChunks), all = s.indptr[s.ptr[n]];
    room.resize(static_cast<std::size_t>(n * kChunks));
    parallel(kChunks, threads, [&](std::int64_t chunk, int) {
        double* out = room.data() + chunk * n;
        std::fill(out, out + n, 0.0);
        const std::int64_t end = std::min(n, (chunk + 1) * size);
        for (std::int64_t state = chunk * size; state < end; ++state) {
            if (x[state] == 0.0) continue;
            const double even = a.even[state] * x[state];
            for (std::int64_t p = s.ptr[state]; p < s.ptr[state + 1]; ++p) {
                const double weight = a.weight[p] * x[state];
                entries(
                    s.flag, s.indptr[p], s.indptr[p + 1], all,
                    [&](std::int64_t e) {
                        out[s.indices[e]] += weight * s.data[e] + even;
                        out[s.indices[e + 1]] += weight * s.data[e + 1] + even;
                    },
                    [&](std::int64_t e) {
                        const double part = (s.flag[e] & kCounted) ? weight * s.data[e] : 0.0;
                        out[s.indices[e]] += part + ((s.flag[e] & kFirst) ? even : 0.0);
                    },
                    [&](std::int64_t e) { prefetch(out + s.indices[e]); });
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
std::vector<double> inverse_diagonal(const MeanMatrix<Index>& a, int threads) {
    const auto& s = a.steps;
    std::vector<double> found(static_cast<std::size_t>(s.n_states));
    parallel(blocks_of(s.n_states, kBlock), threads, [&](std::int64_t block, int) {
        const std::int64_t end = std::min(s.n_states, (block + 1) * kBlock);
        for (std::int64_t state = block * kBlock; state < end; ++state) {
            double own = a.worst[state] == state ? a.extra[state] : 0.0;
            for (std::int64_t p = s.ptr[state]; p < s.ptr[state + 1]; ++p) {
                const Index* last = s.indices + s.indptr[p + 1];
                const Index* at = std::lower_bound(s.indices + s.indptr[p], last, static_cast<Index>(state));
                if (at == last || *at != static_cast<Index>(state)) continue;
                const std::int64_t e = at - s.indices;
                if (s.flag[e] & kCounted) own += a.weight[p] * s.data[e];
                if (s.flag[e] & kFirst) own += a.even[state];
            }
            found[static_cast<std::size_t>(state)] = 1.0 / std::max(1.0 - a.discount * own, 1e-3);
        }
    });
    return found;
}

// What a pass over the states adds up, of M right-hand sides.
template <int M>
struct Sums {
    double a[M] = {}, b[M] = {};
    double left[M] = {}, value[M] = {};  // largest sizes, NaN once there is one
};

double larger(double a, double b) { return a >= b || std::isnan(a) ? a : b; }

// BiCGSTAB on M interleaved right-hand sides [X, M] at once; value holds the guess. Directions are Numbers: what is read at random
// is half as long in floats, and no digit is lost, for value and residual both move by the rounded direction. Returns the largest
// backward error.
template <int M, typename Number, typename Times>
double bicgstab(std::int64_t n, const double* rhs, double* value, const std::vector<double>& precondition, double discount,
                double tol, std::int64_t max_products, int threads, const Times& times) {
    const std::size_t size = static_cast<std::size_t>(n * M);
    std::vector<double> r(size), shadow(size), p(size), v(size), t(size);
    std::vector<Number, LargePages<Number>> hat(size);
    const std::int64_t n_blocks = blocks_of(n, kBlock);
    std::vector<Sums<M>> parts(static_cast<std::size_t>(n_blocks));
    const auto pass = [&](const auto& job) {  // job(i, k, sums) of all entries; sums of blocks are added in their order
        parallel(n_blocks, threads, [&](std::int64_t block, int) {
            Sums<M> sums;
            const std::int64_t end = std::min(n, (block + 1) * kBlock) * M;
            for (std::int64_t i = block * kBlock * M; i < end; i += M)
                for (int k = 0; k < M; ++k) job(static_cast<std::size_t>(i + k), k, sums);
            parts[static_cast<std::size_t>(block)] = sums;
        });
        Sums<M> all;
        for (const auto& part : parts)
            for (int k = 0; k < M; ++k) {
                all.a[k] += part.a[k];
                all.b[k] += part.b[k];
                all.left[k] = larger(all.left[k], part.left[k]);
                all.value[k] = larger(all.value[k], part.value[k]);
            }
        return all;
    };
    const Sums<M> given = pass([&](std::size_t i, int k, Sums<M>& s) {
        s.left[k] = larger(s.left[k], std::abs(rhs[i]));
        s.value[k] = larger(s.value[k], std::abs(value[i]));
    });
    const auto error = [&](const Sums<M>& s) {
        double worst = 0.0;
        for (int k = 0; k < M; ++k) {
            const double scale = given.left[k] + 2.0 * s.value[k];
            worst = std::max(worst, std::isfinite(s.left[k]) ? (scale > 0.0 ? s.left[k] / scale : 0.0) : 1.0);
        }
        return worst;
    };
    double unit[M];  // powers of two that bring residuals to about 1, so that floats have room
    const auto measure = [&](const Sums<M>& s) {
        for (int k = 0; k < M; ++k)
            unit[k] = s.left[k] > 0.0 && std::isfinite(s.left[k])
                          ? std::ldexp(1.0, std::clamp(-std::ilogb(s.left[k]), -1000, 1000))
                          : 1.0;
    };
    bool nothing = std::all_of(given.value, given.value + M, [](double most) { return most == 0.0; });
    std::int64_t products = 0;
    double found = 1.0;
    while (true) {  // begun again, from the true residual, whenever it breaks down or thinks that it is done
        if (nothing) {
            std::fill(t.begin(), t.end(), 0.0);
            nothing = false;
        } else {
            times(static_cast<const double*>(value), t.data());
            ++products;
        }
        const Sums<M> start = pass([&](std::size_t i, int k, Sums<M>& s) {
            shadow[i] = p[i] = r[i] = rhs[i] - (value[i] - discount * t[i]);
            s.a[k] += r[i] * r[i];
            s.left[k] = larger(s.left[k], std::abs(r[i]));
            s.value[k] = larger(s.value[k], std::abs(value[i]));
        });
        found = error(start);
        if (found <= tol || products >= max_products) return found;
        measure(start);
        double rho[M], alpha[M], beta[M], omega[M];
        std::copy(start.a, start.a + M, rho);
        pass([&](std::size_t i, int k, Sums<M>&) { hat[i] = static_cast<Number>(precondition[i / M] * p[i] * unit[k]); });
        const std::int64_t first = products;
        while (products < max_products) {
            times(static_cast<const Number*>(hat.data()), v.data());
            const Sums<M> one = pass([&](std::size_t i, int k, Sums<M>& s) {
                v[i] = (static_cast<double>(hat[i]) - discount * v[i]) / unit[k];
                s.a[k] += shadow[i] * v[i];
            });
            bool broken = false;
            for (int k = 0; k < M; ++k) {
                alpha[k] = rho[k] == 0.0 ? 0.0 : rho[k] / one.a[k];
                broken = broken || !std::isfinite(alpha[k]);
            }
            if (broken) break;
            pass([&](std::size_t i, int k, Sums<M>&) {
                value[i] += alpha[k] * (static_cast<double>(hat[i]) / unit[k]);
                r[i] -= alpha[k] * v[i];
                hat[i] = static_cast<Number>(precondition[i / M] * r[i] * unit[k]);
            });
            times(static_cast<const Number*>(hat.data()), t.data());
            products += 2;
            const Sums<M> two = pass([&](std::size_t i, int k, Sums<M>& s) {
                t[i] = (static_cast<double>(hat[i]) - discount * t[i]) / unit[k];
                s.a[k] += t[i] * r[i];
                s.b[k] += t[i] * t[i];
            });
            for (int k = 0; k < M; ++k) omega[k] = two.b[k] == 0.0 ? 0.0 : two.a[k] / two.b[k];
            const Sums<M> full = pass([&](std::size_t i, int k, Sums<M>& s) {
                value[i] += omega[k] * (static_cast<double>(hat[i]) / unit[k]);
                r[i] -= omega[k] * t[i];
                s.a[k] += shadow[i] * r[i];
                s.left[k] = larger(s.left[k], std::abs(r[i]));
                s.value[k] = larger(s.value[k], std::abs(value[i]));
            });
            if (error(full) <= 0.5 * tol) break;
            for (int k = 0; k < M; ++k) {
                if (omega[k] == 0.0) omega[k] = 1.0;  // a right-hand side that is solved to the last bit
                beta[k] = full.a[k] == 0.0 ? 0.0 : (full.a[k] / rho[k]) * (alpha[k] / omega[k]);
                broken = broken || !std::isfinite(beta[k]);
                rho[k] = full.a[k];
            }
            if (broken) break;
            measure(full);
            pass([&](std::size_t i, int k, Sums<M>&) {
                p[i] = r[i] + beta[k] * (p[i] - omega[k] * v[i]);
                hat[i] = static_cast<Number>(precondition[i / M] * p[i] * unit[k]);
            });
        }
        if (products == first) {  // it broke down at once: one plain step, which never does
            for (std::size_t i = 0; i < size; ++i) value[i] += r[i];
        }
    }
}

template <int M, typename Index>
double solve_group(const MeanMatrix<Index>& a, const std::vector<double>& diagonal, const double* rhs, double* value, double tol,
                   std::int64_t max_products, int threads) {
    const std::int64_t n = a.steps.n_states;
    std::vector<double> right(static_cast<std::size_t>(n * M));
    Doubles found(right.size());
    for (std::int64_t i = 0; i < n; ++i)
        for (int k = 0; k < M; ++k) {
            right[static_cast<std::size_t>(i * M + k)] = rhs[k * n + i];
            found[static_cast<std::size_t>(i * M + k)] = value[k * n + i];
        }
    const auto times = [&](const auto* x, double* y) { product<M>(a, x, y, threads); };
    double error = 1.0;
    if (n > kFloatStates)
        error = bicgstab<M, float>(n, right.data(), found.data(), diagonal, a.discount, tol,
                                   std::min(max_products, kFloatProducts), threads, times);
    if (!(error <= tol))
        error = bicgstab<M, double>(n, right.data(), found.data(), diagonal, a.discount, tol, max_products, threads, times);
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

// Adds Σ weight z [n] and Σ weight z zᵀ [n, n], lower, of rows z [rows, n]; N is n where that is known beforehand, else 0.
template <int N>
void add_moments(int size, std::int64_t rows, const double* weight, const double* z, double* first, double* second) {
    const int n = N ? N : size;
    for (int k = 0; k < n; ++k, second += k) {
        if constexpr (N > 0) {  // one row of the result at a time, all of its width: it stays in registers
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

// Adds the lower part of the covariance over states first to end; N is n where that is known when compiled, else 0.
//
// With a = ν^π (γ v^π(next) − v^π) − b, b = ν^b (γ v^b(next) − v^b) of an outcome, D = π a + (π − π_b) b of a pair.
template <int N, typename Index>
void add_states(const Gains<Index>& g, std::int64_t first, std::int64_t last, double* out) {
    const auto& s = g.steps;
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
                if (e + kAhead < all) {  // values are read at random, and too much is done with each to have the next ones on the way
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
    const std::vector<double> diagonal = inverse_diagonal(a, threads);
    double error = 0.0;
    Doubles room;
    for (std::int64_t k = 0; k < n_rhs;) {
        const std::int64_t left = n_rhs - k;
        if (transposed) {
            const auto times = [&](const double* x, double* y) { product_transposed(a, x, y, room, threads); };
            error = std::max(error, bicgstab<1, double>(n, rhs + k * n, value + k * n, diagonal, a.discount, tol, max_products,
                                                        threads, times));
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
