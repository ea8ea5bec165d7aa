// BiCGSTAB (van der Vorst 1992) with a diagonal preconditioner, for (I − γP) v = b.
//
// K right-hand sides are solved together, with one pass over P for all of them; entry k of state x is at x K + k. `Matrix` defines P:
//
//     prepare(in)                   called before the rows of a product are computed
//     expected<K>(x, in, e)         e_k = row x of P times vector k of in
//
// `Rule` decides when to stop, and sets the coefficients of every right-hand side (`Coefficients`):
//
//     done(sums, products)          after every true residual, sums.a = Σ r², most = ‖r‖∞, v = ‖v‖∞, rhs = ‖b‖∞
//     begin(sums, c)                sets the active right-hand sides; a search starts from this residual
//     set_alpha(sums, c)            from sums.a = Σ shadow·A p; false ends the search, as for the functions below
//     halfway(sums, c)              sums.most = ‖s‖∞ (if kEndsHalfway)
//     set_omega(sums, c)            from sums.a = Σ s·A s and sums.b = Σ (A s)²
//     set_beta(sums, c)             from sums.a = Σ shadow·r and sums.most = ‖r‖∞ (and sums.v, if kWatchesValues)
//     plain_step()                  whether v ← v + r follows a search, as it must if the search could not start
//
// A product of the search reads its vector of directions in random order. Floats halve the cache misses, for a few more products.
// No accuracy is lost: v and the residual both change by the rounded direction, and all sums are double. If hundreds of products are
// needed, as with transitions to near states only, rounding adds about a third; then doubles are faster.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "memory.hpp"
#include "parallel.hpp"

namespace bettersafe {

constexpr std::int64_t kFloatProducts = 48;  // products after which doubles are faster than floats
constexpr std::int64_t kSerial = 20'000;     // numbers up to which one thread adds vectors faster than two

// The larger number; NaN if one of them is NaN.
inline double larger(double a, double b) { return a >= b || std::isnan(a) ? a : b; }

// Sums and maxima over states.
template <int K>
struct Sums {
    double a[K] = {}, b[K] = {}, most[K] = {}, v[K] = {}, rhs[K] = {};
};

template <int K>
struct Coefficients {
    bool active[K] = {};  // inactive ones keep their v
    double rho[K] = {}, alpha[K] = {}, omega[K] = {}, beta[K] = {};

    bool any() const {
        return std::any_of(active, active + K, [](bool a) { return a; });
    }
};

template <int K, typename Direction, typename Matrix>
class Bicgstab {
public:
    // scale: 1 / (1 − γ P(x, x)) of every state. block: states per block of sums.
    Bicgstab(Matrix& matrix, double discount, const std::vector<double>& scale, std::int64_t block, Team& team)
        : matrix_(matrix), discount_(discount), scale_(scale), n_(static_cast<std::int64_t>(scale.size())), block_(block),
          blocks_(blocks_of(n_, block)), team_(team), parts_(static_cast<std::size_t>(blocks_)) {}

    // rhs and value are K rows [X]; value holds the initial guess.
    template <typename Rule>
    void solve(const double* rhs, double* value, std::int64_t max_products, Rule& rule) {
        const std::size_t size = static_cast<std::size_t>(n_) * K;
        v_.resize(size);
        hat_.resize(size);
        for (auto* vector : {&r_, &shadow_, &p_, &ap_, &t_}) vector->resize(size);
        const Sums<K> start = by_block([&](std::int64_t begin, std::int64_t end, Sums<K>& part) {
            for (std::int64_t x = begin; x < end; ++x) {
                for (int k = 0; k < K; ++k) {
                    v_[x * K + k] = value[k * n_ + x];
                    part.v[k] = larger(part.v[k], std::abs(v_[x * K + k]));
                }
            }
        });
        bool from_zero = std::all_of(start.v, start.v + K, [](double most) { return most == 0.0; });
        std::int64_t products = 0;
        for (;;) {
            const Sums<K> found = residual(rhs, from_zero);
            products += from_zero ? 0 : 1;
            from_zero = false;
            if (rule.done(found, products)) break;
            search(found, &products, max_products, rule);
            if (rule.plain_step()) {
                for (std::size_t i = 0; i < size; ++i) v_[i] += r_[i];
            }
        }
        by_block([&](std::int64_t begin, std::int64_t end, Sums<K>&) {
            for (std::int64_t x = begin; x < end; ++x) {
                for (int k = 0; k < K; ++k) value[k * n_ + x] = v_[x * K + k];
            }
        });
    }

private:
    Matrix& matrix_;
    double discount_;
    const std::vector<double>& scale_;
    std::int64_t n_, block_, blocks_;
    Team& team_;
    std::vector<Sums<K>> parts_;
    std::vector<double, LargePages<double>> v_;
    std::vector<Direction, LargePages<Direction>> hat_;
    std::vector<double> r_, shadow_, p_, ap_, t_;
    double unit_[K], shrunk_[K];  // powers of two that scale residuals to about 1, within the range of floats; and 1 / unit

    // Sums of f over blocks of states; on one thread if the work is small
    template <typename F>
    Sums<K> by_block(F&& f, bool little = true) {
        const auto one = [&](std::int64_t b, int) {
            Sums<K> part;  // not parts_[b], so that it stays in registers
            f(b * block_, std::min(n_, (b + 1) * block_), part);
            parts_[b] = part;
        };
        if (little && n_ * K <= kSerial) {
            for (std::int64_t b = 0; b < blocks_; ++b) one(b, 0);
        } else {
            team_.run(blocks_, one);
        }
        Sums<K> all;
        for (const Sums<K>& part : parts_) {
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

    // r = b − (I − γP) v; no product is needed for v = 0.
    Sums<K> residual(const double* rhs, bool from_zero) {
        if (!from_zero) matrix_.prepare(v_.data());
        return by_block([&](std::int64_t begin, std::int64_t end, Sums<K>& part) {
            double e[K] = {};
            for (std::int64_t x = begin; x < end; ++x) {
                if (!from_zero) matrix_.template expected<K>(x, v_.data(), e);
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

    // out = (I − γP) hat / unit, with a = Σ left·out and, if asked for, b = Σ out·out
    template <bool squares>
    Sums<K> multiply(const double* left, double* out) {
        matrix_.prepare(hat_.data());
        return by_block([&](std::int64_t begin, std::int64_t end, Sums<K>& part) {
            double e[K];
            for (std::int64_t x = begin; x < end; ++x) {
                matrix_.template expected<K>(x, hat_.data(), e);
                for (int k = 0; k < K; ++k) {
                    const double y = (static_cast<double>(hat_[x * K + k]) - discount_ * e[k]) * shrunk_[k];
                    out[x * K + k] = y;
                    part.a[k] += left[x * K + k] * y;
                    if constexpr (squares) part.b[k] += y * y;
                }
            }
        }, false);
    }

    void set_units(const double* most) {
        for (int k = 0; k < K; ++k) {
            const bool fits = most[k] > 0.0 && std::isfinite(most[k]);
            unit_[k] = fits ? std::ldexp(1.0, std::clamp(-std::ilogb(most[k]), -1000, 1000)) : 1.0;
            shrunk_[k] = 1.0 / unit_[k];
        }
    }

    // From the residual in r until the rule ends it.
    template <typename Rule>
    void search(const Sums<K>& found, std::int64_t* products, std::int64_t max_products, Rule& rule) {
        Coefficients<K> c;
        std::copy(found.a, found.a + K, c.rho);
        rule.begin(found, c);
        set_units(found.most);
        by_block([&](std::int64_t begin, std::int64_t end, Sums<K>&) {
            for (std::int64_t i = begin * K; i < end * K; ++i) {
                const int k = static_cast<int>(i % K);
                shadow_[i] = p_[i] = r_[i];
                hat_[i] = c.active[k] ? static_cast<Direction>(scale_[i / K] * r_[i] * unit_[k]) : Direction{0};
            }
        });
        while (*products < max_products && c.any()) {
            const Sums<K> one = multiply<false>(shadow_.data(), ap_.data());
            ++*products;
            if (!rule.set_alpha(one, c)) return;
            const Sums<K> half = by_block([&](std::int64_t begin, std::int64_t end, Sums<K>& part) {
                for (std::int64_t x = begin; x < end; ++x) {
                    for (int k = 0; k < K; ++k) {
                        const std::int64_t i = x * K + k;
                        v_[i] += c.alpha[k] * (static_cast<double>(hat_[i]) * shrunk_[k]);
                        const double s = r_[i] - c.alpha[k] * ap_[i];  // in the place of r
                        r_[i] = s;
                        hat_[i] = c.active[k] ? static_cast<Direction>(scale_[x] * s * unit_[k]) : Direction{0};
                        if constexpr (Rule::kEndsHalfway) part.most[k] = larger(part.most[k], std::abs(s));
                    }
                }
            });
            if constexpr (Rule::kEndsHalfway) {
                if (!rule.halfway(half, c)) return;
            }
            const Sums<K> two = multiply<true>(r_.data(), t_.data());
            ++*products;
            rule.set_omega(two, c);
            const Sums<K> full = by_block([&](std::int64_t begin, std::int64_t end, Sums<K>& part) {
                for (std::int64_t i = begin * K; i < end * K; i += K) {
                    for (int k = 0; k < K; ++k) {
                        v_[i + k] += c.omega[k] * (static_cast<double>(hat_[i + k]) * shrunk_[k]);
                        const double r = r_[i + k] - c.omega[k] * t_[i + k];
                        r_[i + k] = r;
                        part.a[k] += shadow_[i + k] * r;
                        part.most[k] = larger(part.most[k], std::abs(r));
                        if constexpr (Rule::kWatchesValues) part.v[k] = larger(part.v[k], std::abs(v_[i + k]));
                    }
                }
            });
            if (!rule.set_beta(full, c)) return;
            set_units(full.most);
            by_block([&](std::int64_t begin, std::int64_t end, Sums<K>&) {
                for (std::int64_t x = begin; x < end; ++x) {
                    for (int k = 0; k < K; ++k) {
                        const std::int64_t i = x * K + k;
                        p_[i] = r_[i] + c.beta[k] * (p_[i] - c.omega[k] * ap_[i]);
                        hat_[i] = c.active[k] ? static_cast<Direction>(scale_[x] * p_[i] * unit_[k]) : Direction{0};
                    }
                }
            });
        }
    }
};

}  // namespace bettersafe
