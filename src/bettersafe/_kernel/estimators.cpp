// The estimators, with w_t = ρ_{0:t} / mean over all trajectories of ρ_{0:t} (a trajectory keeps its last weight after its end):
//
//     is      ρ_{0:H-1} Σ γ^t r_t                      pdis    Σ γ^t ρ_{0:t} r_t
//     dr      Σ γ^t [ρ_{0:t} (r_t − q_t) + ρ_{0:t-1} v_t] + γ^H ρ_{0:H-1} tail
//     wis, cwpdis, wdr: as is, pdis, dr, with w for ρ. Their terms are linearised: value + influence of the trajectory, so that
//     their mean is the estimate and their spread its first-order uncertainty.
#include "estimators.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace bettersafe {
namespace {

constexpr std::int64_t kEstimators = 6;  // is, pdis, wis, cwpdis, dr, wdr
constexpr double kNone = -std::numeric_limits<double>::infinity();

// log(exp(a) + exp(b))
double log_add(double a, double b) {
    const double high = std::max(a, b), low = std::min(a, b);
    return high == kNone ? kNone : high + std::log1p(std::exp(low - high));
}

}  // namespace

std::int64_t Estimates::n_estimators() { return kEstimators; }

Estimates::Estimates(std::vector<double> discount, bool has_model)
    : discount_(std::move(discount)), d_(static_cast<std::int64_t>(discount_.size())), has_model_(has_model) {}

// Total weight at every time: of running trajectories, and the last weight of ended ones. Sums are relative to the largest
// weight of their time so far, so that nothing overflows.
void Estimates::weigh(const Trajectories& in, double* log_weight) {
    for (std::int64_t i = 0; i < in.n; ++i) {
        const std::int64_t length = in.ptr[i + 1] - in.ptr[i];
        if (length > longest_) {
            longest_ = length;
            top_.resize(longest_, kNone);
            sum_.resize(longest_, 0.0);
        }
        if (ended_at_.size() <= static_cast<std::size_t>(longest_)) ended_at_.resize(longest_ + 1, kNone);
        double running = 0.0;
        for (std::int64_t t = 0; t < length; ++t) {
            running += in.log_ratio[in.ptr[i] + t];
            if (running == kNone) continue;
            if (running <= top_[t]) {
                sum_[t] += std::exp(running - top_[t]);
            } else {
                sum_[t] = sum_[t] * std::exp(top_[t] - running) + 1.0;
                top_[t] = running;
            }
        }
        log_weight[i] = running;
        double& gone = ended_at_[length];
        gone = log_add(gone, running);
    }
    n_ += in.n;
}

void Estimates::close_weights() {
    total_.assign(longest_, kNone);
    double gone = kNone;
    for (std::int64_t t = 0; t < longest_; ++t) {
        gone = log_add(gone, ended_at_[t]);
        total_[t] = log_add(gone, top_[t] == kNone ? kNone : top_[t] + std::log(sum_[t]));
    }
    all_ = log_add(gone, ended_at_[longest_]);
    reward_mean_.assign(longest_ * d_, 0.0);
    residual_mean_.assign(longest_ * d_, 0.0);
    value_mean_.assign((longest_ + 1) * d_, 0.0);
    wis_value_.assign(d_, 0.0);
    stage_ = Stage::kAverage;
}

void Estimates::average(const Trajectories& in, double* terms) {
    if (stage_ == Stage::kWeigh) close_weights();
    const std::int64_t d = d_, all_terms = n_ * d, at = in.first * d;
    double* is = terms + at;
    double* pdis = is + all_terms;
    double* wis = pdis + all_terms;
    double* dr = wis + 2 * all_terms;
    std::vector<double> power(d);
    for (std::int64_t estimator = 0; estimator < kEstimators; ++estimator) {
        double* own = is + estimator * all_terms;
        std::fill(own, own + in.n * d, 0.0);
    }
    for (std::int64_t i = 0; i < in.n; ++i) {
        std::fill(power.begin(), power.end(), 1.0);
        double running = 0.0, before = 1.0, before_scaled = 1.0 / static_cast<double>(n_);
        const std::int64_t first = in.ptr[i], last = in.ptr[i + 1];
        for (std::int64_t s = first; s < last; ++s) {
            const std::int64_t t = s - first;
            running += in.log_ratio[s];
            const double weight = std::exp(running);
            const double scaled = total_[t] == kNone ? 0.0 : std::exp(running - total_[t]);
            for (std::int64_t k = 0; k < d; ++k) {
                const double r = in.reward[s * d + k];
                is[i * d + k] += power[k] * r;
                if (weight != 0.0) pdis[i * d + k] += power[k] * weight * r;
                reward_mean_[t * d + k] += scaled * r;
                if (has_model_) {
                    const double v = in.v[s * d + k], residual = r - in.q[s * d + k];
                    double add = 0.0;
                    if (weight != 0.0) add += weight * residual;
                    if (before != 0.0) add += before * v;
                    dr[i * d + k] += power[k] * add;
                    residual_mean_[t * d + k] += scaled * residual;
                    value_mean_[t * d + k] += before_scaled * v;
                }
                power[k] *= discount_[k];
            }
            before = weight;
            before_scaled = scaled;
        }
        const double share = all_ == kNone ? 0.0 : std::exp(running - all_);
        for (std::int64_t k = 0; k < d; ++k) {
            wis[i * d + k] = is[i * d + k];  // the plain return, for now
            wis_value_[k] += share * is[i * d + k];
            is[i * d + k] = before == 0.0 ? 0.0 : is[i * d + k] * before;
            if (has_model_) {
                if (before != 0.0) dr[i * d + k] += power[k] * before * in.tail[i * d + k];
                value_mean_[(last - first) * d + k] += before_scaled * in.tail[i * d + k];
            }
        }
    }
}

// Contribution of an ended trajectory to later means: Σ_{s≥t} γ^s mean_s / total_s, from the end, in units of
// exp(−floor_t), floor_t the least total from t on. Its weight is part of every later total, so nothing overflows.
void Estimates::close_means() {
    const std::int64_t d = d_;
    floor_.assign(longest_ + 1, std::numeric_limits<double>::infinity());
    later_reward_.assign((longest_ + 1) * d, 0.0);
    later_model_.assign((longest_ + 1) * d, 0.0);
    cwpdis_value_.assign(d, 0.0);
    wdr_value_.assign(d, 0.0);
    for (std::int64_t t = longest_ - 1; t >= 0; --t) {
        floor_[t] = total_[t] == kNone ? floor_[t + 1] : std::min(floor_[t + 1], total_[t]);
        const double carry = std::isfinite(floor_[t + 1]) ? std::exp(floor_[t] - floor_[t + 1]) : 0.0;
        const double per = total_[t] == kNone ? 0.0 : std::exp(floor_[t] - total_[t]);
        for (std::int64_t k = 0; k < d; ++k) {
            const double factor = std::pow(discount_[k], static_cast<double>(t));
            const double next_value = discount_[k] * value_mean_[(t + 1) * d + k];  // weighted with the weights of t
            cwpdis_value_[k] += factor * reward_mean_[t * d + k];
            wdr_value_[k] += factor * (residual_mean_[t * d + k] + value_mean_[t * d + k]);
            later_reward_[t * d + k] = carry * later_reward_[(t + 1) * d + k] + factor * per * reward_mean_[t * d + k];
            later_model_[t * d + k] =
                carry * later_model_[(t + 1) * d + k] + factor * per * (residual_mean_[t * d + k] + next_value);
        }
    }
    for (std::int64_t k = 0; k < d; ++k) {
        wdr_value_[k] += std::pow(discount_[k], static_cast<double>(longest_)) * value_mean_[longest_ * d + k];
    }
    stage_ = Stage::kFinish;
}

// Influence of every trajectory on the weighted means.
void Estimates::finish(const Trajectories& in, double* terms) {
    if (stage_ == Stage::kAverage) close_means();
    const std::int64_t d = d_, all_terms = n_ * d;
    double* wis = terms + 2 * all_terms + in.first * d;
    double* cwpdis = wis + all_terms;
    double* wdr = cwpdis + 2 * all_terms;
    const double count = static_cast<double>(n_);
    std::vector<double> power(d);
    for (std::int64_t i = 0; i < in.n; ++i) {
        const std::int64_t first = in.ptr[i], last = in.ptr[i + 1], length = last - first;
        std::fill(power.begin(), power.end(), 1.0);
        double running = 0.0;
        for (std::int64_t s = first; s < last; ++s) {
            const std::int64_t t = s - first;
            running += in.log_ratio[s];
            const double scaled = total_[t] == kNone ? 0.0 : std::exp(running - total_[t]);
            for (std::int64_t k = 0; k < d; ++k) {
                const double r = in.reward[s * d + k];
                cwpdis[i * d + k] += count * power[k] * scaled * (r - reward_mean_[t * d + k]);
                if (has_model_) {
                    const double next = s + 1 < last ? in.v[(s + 1) * d + k] : in.tail[i * d + k];
                    wdr[i * d + k] += count * power[k] * scaled *
                                      (r - in.q[s * d + k] - residual_mean_[t * d + k] +
                                       discount_[k] * (next - value_mean_[(t + 1) * d + k]));
                }
                power[k] *= discount_[k];
            }
        }
        const double stays = length < longest_ && std::isfinite(floor_[length]) ? std::exp(running - floor_[length]) : 0.0;
        const double share = all_ == kNone ? 0.0 : std::exp(running - all_);
        for (std::int64_t k = 0; k < d; ++k) {
            wis[i * d + k] = wis_value_[k] + count * share * (wis[i * d + k] - wis_value_[k]);
            cwpdis[i * d + k] += cwpdis_value_[k] - count * stays * later_reward_[length * d + k];
            if (has_model_) {
                // v of the first state is averaged with equal weights
                wdr[i * d + k] +=
                    wdr_value_[k] - count * stays * later_model_[length * d + k] + in.v[first * d + k] - value_mean_[k];
            }
        }
    }
}

}  // namespace bettersafe
