// The posterior mean of a process and the spread of what a policy gains in it, straight on the counts of pairs.
//
// Outcomes are never listed: an entry of a pair's row that is the first of its outcome in its state stands for it, so sums over
// the outcomes of a state are sums over entries. Nothing here is as long as the entries but one byte of each. Sums are taken in
// blocks of fixed size and added in a fixed order, so the bits do not depend on the number of threads.
#pragma once
#include <cstdint>

namespace bettersafe {

template <typename Index>
struct CountedOutcomes {
    std::int64_t n_states;
    const std::int64_t* ptr;     // [X+1], pairs of a state
    const Index* indptr;         // [P+1]
    const Index* indices;        // [nnz], where to
    const double* data;          // [nnz], shares of the pair's visits
    const double* visits;        // [P], all of them
    const std::uint8_t* flag;    // [nnz], see mark_outcomes
};

constexpr std::uint8_t kCounted = 1;  // leads to a state that was acted in
constexpr std::uint8_t kFirst = 2;    // and is the first of its outcome in its state

// Fills flag [nnz], the number of outcomes of states, distinct [X], and counted visits of pairs that went on, on [P].
template <typename Index>
void mark_outcomes(const CountedOutcomes<Index>& outcomes, const std::uint8_t* acted, std::uint8_t* flag, double* distinct, double* on,
                int threads);

// Σ log Γ(α + n)/Γ(α), n whole numbers; α that are 0 but for rounding are taken for tiny.
double log_rising(std::int64_t size, const double* alpha, const double* count, int threads);

// The same of every entry with α = scale_c(pair) (what the others of the state saw of the outcome, and even), for every
// concentration c: out [n_grid]. others is what scales are of, [P].
template <typename Index>
void successor_likelihood(const CountedOutcomes<Index>& outcomes, const double* even, const double* others, std::int64_t n_grid,
                         const double* grid, double* out, int threads);

// The outcome of every state that is worst by value [X]: a state, −1 for the end (worth 0, where ended), −2 where there is none.
template <typename Index>
void worst_outcomes(const CountedOutcomes<Index>& outcomes, const std::uint8_t* ended, const double* value, std::int64_t* worst, int threads);

// P_π at the posterior mean: row x is Σ_pairs weight · row, even for each of its outcomes, and extra for the worst one.
template <typename Index>
struct MeanMatrix {
    CountedOutcomes<Index> outcomes;
    const double* weight;        // [P]
    const double* even;          // [X]
    const double* extra;         // [X]
    const std::int64_t* worst;   // [X]
    double discount;
};

// Solves (I − γP) v = rhs, or with Pᵀ, by BiCGSTAB: rhs and value are [n_rhs, X], value holds the first guess. Returns the largest
// ‖r − (I − γP)v‖∞ / (‖r‖∞ + 2‖v‖∞).
template <typename Index>
double solve_mean(const MeanMatrix<Index>& matrix, bool transposed, std::int64_t n_rhs, const double* rhs, double* value,
                  double tol, std::int64_t max_products, int threads);

// Everything that the covariance of gains needs; n objectives, each with its own discount.
template <typename Index>
struct Gains {
    CountedOutcomes<Index> outcomes;
    std::int64_t n;
    const double* discount;      // [n]
    const double* value;         // [X, n, 2]: of the policy and of the baseline
    const double* state_visits;  // [X, n, 2]: ν
    const double* policy;        // [P], π
    const double* moved;         // [P], π − π_b
    const double* untried;       // [X, 3]: Σ π², Σ π(π − π_b), Σ (π − π_b)² over pairs never tried
    const double* on;            // [P]
    const double* ended;         // [P]
    const double* share_on;      // [X], all of the prior's shares of where to
    const double* even;          // [X], the part of each outcome in it that is no count
    double counted;              // what counts count for in the shares: 1 or 0
    const double* share_end;     // [X]
    const double* going;         // [X]
    const double* others;        // [P], with share_on that of pairs never tried
    const double* end_others;    // [P]
    bool hierarchical;           // whether scales follow from others, or are the concentration itself
    double pessimism;            // pseudo-transitions to the worst outcome
    const std::int64_t* worst;   // [X]
    std::int64_t n_on, n_end;
    const double *on_concentration, *on_weight, *end_concentration, *end_weight;
};

// Covariance [n, n] of Σ p D over the independent rows p of pairs.
template <typename Index>
void gains_covariance(const Gains<Index>& gains, double* out, int threads);

}  // namespace bettersafe
