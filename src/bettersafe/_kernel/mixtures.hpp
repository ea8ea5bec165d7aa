// Best mixture of policies with known gains: a small dense linear program, solved by the primal simplex method.
//
//     maximise   Σ_i w_i value_i   subject to   Σ_i w_i gain_ik ≥ floor_k      for every k,   Σ_i w_i = 1,   w ≥ 0
//
// or, to find the share of the floors that can be reached (`reach`),
//
//     maximise   t                 subject to   Σ_i w_i gain_ik ≥ t floor_k    for every k,   Σ_i w_i = 1,   w ≥ 0,   t ≤ 1
//
// Policy 0 gains nothing, so t = 0 can be reached. Rows that every policy satisfies are left out. Policies may be added from one call
// to the next: the search starts from the basis of the last one.
#pragma once
#include <cstdint>

namespace bettersafe {

struct Mixture {
    std::int64_t n_policies, n_rows;  // n, d
    const double* gain;        // [n, d]; gain[0] is 0
    const double* value;       // [n]
    const double* floor;       // [d]
    bool reach;
    std::int64_t* basis;       // [d+1], in and out: i ≥ 0 is w_i, −1−k the slack of row k, −1−d the share t; not a basis: ignored
    double* weight;            // [n], out
    double* multiplier;        // [d], out: ν ≥ 0, the gain of the objective per unit by which a floor is lowered
    double level;              // out: a policy improves the mixture if value + ν·gain (reach: ν·gain) is larger
    double share;              // out: t; 1 unless `reach`
};

// Returns whether an optimum was found: feasible and optimal to about 1e-10 with every row and the objective scaled to size 1. If not,
// the outputs other than the basis are not meaningful.
bool solve_mixture(Mixture& mixture);

}  // namespace bettersafe
