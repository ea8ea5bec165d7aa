// Small linear programs of one form, one per state, solved by a bounded-variable simplex method.
//
// Program x has the entries ptr[x] .. ptr[x+1]-1. With δ = p − n, p ≥ 0, 0 ≤ n ≤ baseline it is
//
//     maximise   Σ_j objective_j δ_j
//     subject to Σ_j δ_j = 0
//                Σ_j rows_kj δ_j ≥ 0                for every k
//                Σ_j error_j (p_j + n_j) ≤ epsilon  (left out if epsilon is infinite)
//                δ_j = 0 if error_j is infinite     (unless epsilon is)
//
// The origin is feasible, so there is no first phase. Ties go to the optimal point with the smallest Σ(p + n). `gap` is an
// upper bound on the suboptimality of the objective; a program that can't be solved to tolerance keeps its baseline.
#pragma once
#include <cstdint>

namespace bettersafe {

enum Status : std::int8_t {
    kSolved = 0,   // optimal to tolerance
    kInexact = 1,  // not solved to tolerance: the baseline was kept, the gap is infinite
};

struct Programs {
    std::int64_t n_programs;
    std::int64_t n_entries;
    std::int64_t n_rows;           // d
    const std::int64_t* ptr;       // [X+1]
    const double* baseline;        // [F]
    const double* objective;       // [F]
    const double* error;           // [F]
    const double* rows;            // [d, F]
    double epsilon;
    std::int32_t* basis;           // [X, d+2], in and out; basis[x, 0] = −1 for a cold start; an invalid row is ignored
    std::uint8_t* at_upper;        // [F], in and out
    double* policy;                // [F], out
    double* gap;                   // [X], out, in units of the objective
    std::int8_t* status;           // [X], out
};

// Returns the number of pivots. The result does not depend on `threads`.
std::int64_t solve_programs(const Programs& programs, int threads);

}  // namespace bettersafe
