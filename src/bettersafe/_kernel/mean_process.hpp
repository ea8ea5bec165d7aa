// Posterior mean process and covariance of gains around it, computed from counts of pairs.
//
// Outcomes are not listed: the first entry with an outcome in a state's rows represents this outcome, so sums over the outcomes of a
// state are sums over entries. The only array of that length has one byte per entry. Sums are taken in blocks of fixed
// size and added in a fixed order, so the bits do not depend on the number of threads.
#pragma once
#include <cstdint>

namespace bettersafe {

template <typename Index>
struct CountedOutcomes {
    std::int64_t n_states;
    const std::int64_t* ptr;     // [X+1], pairs of a state
    const Index* indptr;         // [P+1]
    const Index* indices;        // [nnz], successors
    const double* data;          // [nnz], shares of the pair's visits
    const double* visits;        // [P]
    const std::uint8_t* flag;    // [nnz], see mark_outcomes
};

constexpr std::uint8_t kCounted = 1;  // the successor is a state in which an action was logged
constexpr std::uint8_t kFirst = 2;    // and the entry is the first with this successor in its state

// Fills flag [nnz], distinct [X] (outcomes of a state) and on [P] (visits of a pair that lead to a counted successor).
template <typename Index>
void mark_outcomes(const CountedOutcomes<Index>& outcomes, const std::uint8_t* acted, std::uint8_t* flag, double* distinct, double* on,
                int threads);

// Σ log Γ(α + n)/Γ(α) for integers n; an α that is 0 up to rounding is replaced by a tiny number.
double log_rising(std::int64_t size, const double* alpha, const double* count, int threads);

// Log-likelihood of the counted successors for every concentration c of a grid, out [n_grid]: Σ log Γ(α + n)/Γ(α) over entries, with
// α = w_c(others) (n of the other pairs of the state + even); w is the prior's strength (prior.hpp), others [P] its visits.
template <typename Index>
void successor_likelihood(const CountedOutcomes<Index>& outcomes, const double* even, const double* others, std::int64_t n_grid,
                         const double* grid, double* out, int threads);

// Outcome with the lowest value in every state: a state, −1 for termination (value 0, possible if `ended`), −2 if there is no outcome.
template <typename Index>
void worst_outcomes(const CountedOutcomes<Index>& outcomes, const std::uint8_t* ended, const double* value, std::int64_t* worst, int threads);

// P_π at the posterior mean: row x is Σ_pairs weight · row, plus even for every outcome of x, plus extra for its worst outcome.
template <typename Index>
struct MeanMatrix {
    CountedOutcomes<Index> outcomes;
    const double* weight;        // [P]
    const double* even;          // [X]
    const double* extra;         // [X]
    const std::int64_t* worst;   // [X]
    double discount;
};

// Solves (I − γP) v = b, or with Pᵀ, by BiCGSTAB: rhs (b) and value (v) are [n_rhs, X], value holds the initial guess. Returns the
// largest backward error ‖b − (I − γP)v‖∞ / (‖b‖∞ + 2‖v‖∞).
template <typename Index>
double solve_mean(const MeanMatrix<Index>& matrix, bool transposed, std::int64_t n_rhs, const double* rhs, double* value,
                  double tol, std::int64_t max_products, int threads);

// Input of the covariance of gains, for n objectives with a discount each.
template <typename Index>
struct Gains {
    CountedOutcomes<Index> outcomes;
    std::int64_t n;
    const double* discount;      // [n]
    const double* value;         // [X, n, 2]: v of the policy and of the baseline
    const double* state_visits;  // [X, n, 2]: ν
    const double* policy;        // [P], π
    const double* moved;         // [P], π − π_b
    const double* untried;       // [X, 3]: Σ π², Σ π(π − π_b), Σ (π − π_b)² over pairs never tried
    const double* on;            // [P]
    const double* ended;         // [P]
    const double* share_on;      // [X], total of the prior's shares on successors
    const double* even;          // [X], part of an outcome's share that does not come from counts
    double counted;              // weight of counts in the shares: 1 or 0
    const double* share_end;     // [X], the prior's share on termination
    const double* going;         // [X], the prior's share on continuing
    const double* others;        // [P]; share_on for pairs never tried
    const double* end_others;    // [P]
    bool hierarchical;           // whether the prior's strength is computed from others (prior.hpp); else it is the concentration
    double pessimism;            // pseudo-transitions to the worst outcome
    const std::int64_t* worst;   // [X]
    std::int64_t n_on, n_end;
    const double *on_concentration, *on_weight, *end_concentration, *end_weight;
};

// Covariance [n, n] of Σ p·D over pairs, whose rows p are independent.
template <typename Index>
void gains_covariance(const Gains<Index>& gains, double* out, int threads);

}  // namespace bettersafe
