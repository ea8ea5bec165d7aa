// Off-policy estimates, per trajectory, for d objectives at once.
//
// Trajectory i has the rows ptr[i] .. ptr[i+1]-1. With ρ_t = exp(log_ratio), ρ_{0:t} its running product, L the log of
// that, and w_t = ρ_{0:t} / mean over all trajectories of ρ_{0:t} (those that ended keep their last weight):
//
//     is      ρ_{0:H-1} Σ γ^t r_t                      pdis    Σ γ^t ρ_{0:t} r_t
//     dr      Σ γ^t [ρ_{0:t} (r_t − q_t) + ρ_{0:t-1} v_t] + γ^H ρ_{0:H-1} tail
//     wis, cwpdis, wdr: the same with w for ρ. Their terms are linearised: value + influence of the trajectory, so that
//     their mean is the estimate and their spread its first-order uncertainty.
//
// tail is the model's value of the state that a truncated trajectory was left in (0 where it terminated).
#pragma once
#include <cstdint>

namespace bettersafe {

struct Trajectories {
    std::int64_t n;             // trajectories
    std::int64_t d;             // objectives
    const std::int64_t* ptr;    // [n+1]
    const double* log_ratio;    // [N]
    const double* reward;       // [N, d]
    const double* discount;     // [d]
    bool has_model;
    const double* v;            // [N, d]
    const double* q;            // [N, d]
    const double* tail;         // [n, d]
};

struct Estimates {
    double* terms;       // [6, n, d]: is, pdis, wis, cwpdis, dr, wdr
    double* log_weight;  // [n]: log ρ_{0:H-1}
};

void estimate(const Trajectories& in, const Estimates& out);

}  // namespace bettersafe
