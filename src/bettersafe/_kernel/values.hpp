// Policy evaluation: (I − γ P_π) v = r by BiCGSTAB with a diagonal preconditioner, on P_π itself or, if that is large, on the stored
// rows.
//
// Row x of P_π is Σ over pairs s in ptr[x]:ptr[x+1] of weight[s] times row s of the CSR matrix. Sums over states are
// taken in blocks of fixed size and added in a fixed order, so the bits do not depend on the number of threads. Non-finite numbers
// give an infinite residual.
#pragma once
#include <cstdint>

namespace bettersafe {

template <typename Index>
struct PolicyMatrix {
    std::int64_t n_states;
    const std::int64_t* ptr;   // [X+1]
    const double* weight;      // [P]
    const Index* indptr;       // [P+1]
    const Index* indices;      // [nnz]
    const double* data;        // [nnz]
    double discount;
};

struct SolveReport {
    double residual;   // largest ‖r − (I − γP)v‖∞ / (‖r‖∞ + 2‖v‖∞) of all right-hand sides, computed from v at the end
    std::int64_t products;
};

// Solves for n_rhs right-hand sides: rhs and value are [n_rhs, X]; value holds the initial guess.
template <typename Index>
SolveReport solve_values(const PolicyMatrix<Index>& matrix, std::int64_t n_rhs, const double* rhs, double* value,
                         double tol, std::int64_t max_products, int threads);

template <typename Index>
struct PairRows {
    std::int64_t n_pairs, n_states;
    const Index* indptr;       // [P+1]
    const Index* indices;      // [nnz]
    const double* data;        // [nnz]
};

// q_k = r_k + γ_k p v_k for m = n_values signals, with discount [m], reward and q [m, P], v [m, X]. Each row is summed from its first
// entry to its last.
template <typename Index>
void pair_values(const PairRows<Index>& rows, std::int64_t n_values, const double* discount, const double* reward,
                 const double* v, double* q, int threads);

}  // namespace bettersafe
