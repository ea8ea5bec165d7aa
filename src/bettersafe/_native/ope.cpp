#include "ope.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace bettersafe {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

// log(exp(a) + exp(b))
double log_add(double a, double b) {
    const double high = std::max(a, b), low = std::min(a, b);
    return high == kNone ? kNone : high + std::log1p(std::exp(low - high));
}

}  // namespace

void estimate(const Trajectories& in, const Estimates& out) {
    const std::int64_t n = in.n, d = in.d;
    std::int64_t longest = 0;
    for (std::int64_t i = 0; i < n; ++i) longest = std::max(longest, in.ptr[i + 1] - in.ptr[i]);

    // Log of the total weight at every time: running trajectories, and those that ended with their last weight.
    // Sums are taken relative to the largest weight of their time, so that nothing overflows.
    std::vector<double> top(longest, kNone), ended_at(longest + 1, kNone), total(longest, kNone);
    std::vector<double> log_weight(in.ptr[n]);
    for (std::int64_t i = 0; i < n; ++i) {
        double running = 0.0;
        for (std::int64_t s = in.ptr[i]; s < in.ptr[i + 1]; ++s) {
            running += in.log_ratio[s];
            log_weight[s] = running;
            double& most = top[s - in.ptr[i]];
            most = std::max(most, running);
        }
        out.log_weight[i] = running;
        double& gone = ended_at[in.ptr[i + 1] - in.ptr[i]];
        gone = log_add(gone, running);
    }
    std::vector<double> sum(longest, 0.0);
    for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t s = in.ptr[i]; s < in.ptr[i + 1]; ++s) {
            const std::int64_t t = s - in.ptr[i];
            if (log_weight[s] != kNone) sum[t] += std::exp(log_weight[s] - top[t]);
        }
    }
    double gone = kNone;
    for (std::int64_t t = 0; t < longest; ++t) {
        gone = log_add(gone, ended_at[t]);
        total[t] = log_add(gone, top[t] == kNone ? kNone : top[t] + std::log(sum[t]));
    }
    double all = gone;  // Σ over trajectories of the final weight
    all = log_add(all, ended_at[longest]);

    double* is = out.terms;
    double* pdis = is + n * d;
    double* wis = pdis + n * d;
    double* cwpdis = wis + n * d;
    double* dr = cwpdis + n * d;
    double* wdr = dr + n * d;
    std::fill(out.terms, out.terms + 6 * n * d, 0.0);

    // First pass: unweighted estimators, and the weighted means of every time.
    std::vector<double> reward_mean(longest * d, 0.0), residual_mean(longest * d, 0.0), value_mean((longest + 1) * d, 0.0);
    std::vector<double> power(d), wis_value(d, 0.0);
    for (std::int64_t i = 0; i < n; ++i) {
        std::fill(power.begin(), power.end(), 1.0);
        double before = 1.0, before_scaled = 1.0 / static_cast<double>(n);
        const std::int64_t first = in.ptr[i], last = in.ptr[i + 1];
        for (std::int64_t s = first; s < last; ++s) {
            const std::int64_t t = s - first;
            const double weight = std::exp(log_weight[s]);
            const double scaled = total[t] == kNone ? 0.0 : std::exp(log_weight[s] - total[t]);
            for (std::int64_t k = 0; k < d; ++k) {
                const double r = in.reward[s * d + k];
                is[i * d + k] += power[k] * r;
                if (weight != 0.0) pdis[i * d + k] += power[k] * weight * r;
                reward_mean[t * d + k] += scaled * r;
                if (in.has_model) {
                    const double v = in.v[s * d + k], residual = r - in.q[s * d + k];
                    double add = 0.0;
                    if (weight != 0.0) add += weight * residual;
                    if (before != 0.0) add += before * v;
                    dr[i * d + k] += power[k] * add;
                    residual_mean[t * d + k] += scaled * residual;
                    value_mean[t * d + k] += before_scaled * v;
                }
                power[k] *= in.discount[k];
            }
            before = weight;
            before_scaled = scaled;
        }
        const double share = all == kNone ? 0.0 : std::exp(out.log_weight[i] - all);
        for (std::int64_t k = 0; k < d; ++k) {
            wis[i * d + k] = is[i * d + k];  // the plain return, for now
            wis_value[k] += share * is[i * d + k];
            is[i * d + k] = before == 0.0 ? 0.0 : is[i * d + k] * before;
            if (in.has_model) {
                if (before != 0.0) dr[i * d + k] += power[k] * before * in.tail[i * d + k];
                value_mean[(last - first) * d + k] += before_scaled * in.tail[i * d + k];
            }
        }
    }

    // What a trajectory that has ended still does to later means: Σ_{s≥t} γ^s mean_s / total_s, from the end, in units of
    // exp(−floor_t), floor_t the least total from t on. Its weight is part of every later total, so nothing overflows.
    std::vector<double> floor(longest + 1, std::numeric_limits<double>::infinity());
    std::vector<double> later_reward((longest + 1) * d, 0.0), later_model((longest + 1) * d, 0.0);
    std::vector<double> cwpdis_value(d, 0.0), wdr_value(d, 0.0);
    for (std::int64_t t = longest - 1; t >= 0; --t) {
        floor[t] = total[t] == kNone ? floor[t + 1] : std::min(floor[t + 1], total[t]);
        const double carry = std::isfinite(floor[t + 1]) ? std::exp(floor[t] - floor[t + 1]) : 0.0;
        const double per = total[t] == kNone ? 0.0 : std::exp(floor[t] - total[t]);
        for (std::int64_t k = 0; k < d; ++k) {
            const double factor = std::pow(in.discount[k], static_cast<double>(t));
            const double next_value = in.discount[k] * value_mean[(t + 1) * d + k];  // weighted with the weights of t
            cwpdis_value[k] += factor * reward_mean[t * d + k];
            wdr_value[k] += factor * (residual_mean[t * d + k] + value_mean[t * d + k]);
            later_reward[t * d + k] = carry * later_reward[(t + 1) * d + k] + factor * per * reward_mean[t * d + k];
            later_model[t * d + k] =
                carry * later_model[(t + 1) * d + k] + factor * per * (residual_mean[t * d + k] + next_value);
        }
    }
    for (std::int64_t k = 0; k < d; ++k) {
        wdr_value[k] += std::pow(in.discount[k], static_cast<double>(longest)) * value_mean[longest * d + k];
    }

    // Second pass: influence of every trajectory on the weighted means.
    const double count = static_cast<double>(n);
    for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t first = in.ptr[i], last = in.ptr[i + 1], length = last - first;
        std::fill(power.begin(), power.end(), 1.0);
        for (std::int64_t s = first; s < last; ++s) {
            const std::int64_t t = s - first;
            const double scaled = total[t] == kNone ? 0.0 : std::exp(log_weight[s] - total[t]);
            for (std::int64_t k = 0; k < d; ++k) {
                const double r = in.reward[s * d + k];
                cwpdis[i * d + k] += count * power[k] * scaled * (r - reward_mean[t * d + k]);
                if (in.has_model) {
                    const double next = s + 1 < last ? in.v[(s + 1) * d + k] : in.tail[i * d + k];
                    wdr[i * d + k] += count * power[k] * scaled *
                                      (r - in.q[s * d + k] - residual_mean[t * d + k] +
                                       in.discount[k] * (next - value_mean[(t + 1) * d + k]));
                }
                power[k] *= in.discount[k];
            }
        }
        const double stays = length < longest && std::isfinite(floor[length]) ? std::exp(out.log_weight[i] - floor[length]) : 0.0;
        const double share = all == kNone ? 0.0 : std::exp(out.log_weight[i] - all);
        for (std::int64_t k = 0; k < d; ++k) {
            wis[i * d + k] = wis_value[k] + count * share * (wis[i * d + k] - wis_value[k]);
            cwpdis[i * d + k] += cwpdis_value[k] - count * stays * later_reward[length * d + k];
            if (in.has_model) {
                // v of the first state is averaged with equal weights
                wdr[i * d + k] += wdr_value[k] - count * stays * later_model[length * d + k] + in.v[first * d + k] - value_mean[k];
            }
        }
    }
}

}  // namespace bettersafe
