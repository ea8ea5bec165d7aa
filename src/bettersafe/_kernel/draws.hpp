// Gains of policies over policy 0 in processes drawn from a posterior: `drawn_gains`.
//
// All pairs of state x have the same outcomes, outcome_ptr[x]:outcome_ptr[x+1]: ends and successors. In every draw, with its own
// concentrations c and c',
//
//     (continue, ends)           ~ Dirichlet( w' (going, share) + (1 − w') count(pair) + extra )
//     successor, if it continues ~ Dirichlet( w share + (1 − w) count(pair) + extra ),     r_k(pair) ~ N( reward_mean, reward_noise² )
//
// share holds the counts of all pairs of the state, so the pair's own counts get a weight of 1 − w beside it: the prior comes from the
// *other* pairs. w is a function of c and others(pair) = Σ share − Σ count(pair) (prior.hpp). The initial distribution is
// Dirichlet( starts ).
//
// The process under a policy is the mixture q_g(o) = Σ_pairs weight_g(pair) p(o|pair) over outcomes, formed state by state without
// storing the pairs. With v the value of policy 0 and ν_g the discounted visits of policy g, one linear solve for all objectives,
//
//     J_k(g) − J_k(0) = Σ_x ν_g(x) [ Σ_o (q_g − q_0)(o) (ρ_k(o) + γ v_k(next o)) + Σ_pairs (weight_g − weight_0) r_k ]
//
// It is exactly 0 for a policy equal to policy 0. Every pair of every draw has its own generator (xoshiro256++, seeded with a hash of
// seed, draw and the pair's key), so a number does not depend on the threads, on the other draws, or on the other pairs that are drawn.
#pragma once
#include <cstdint>

namespace bettersafe {

struct DrawnProcesses {
    std::int64_t n_states, n_pairs, n_outcomes, n_concentrations, n_end_concentrations, n_policies, n_objectives;
    const std::int64_t* state_ptr;       // [X+1] pairs of a state
    const std::int64_t* pair_key;        // [P] key of a pair in the seeds
    const std::int64_t* objective_key;   // [d] key of an objective in the seeds
    const std::int64_t* outcome_ptr;     // [X+1]
    const std::int64_t* outcome_next;    // [K] successor; −1 is the end
    const double* outcome_reward;        // [d, K] ρ
    const std::int64_t* count_ptr;       // [P+1]
    const std::int64_t* count_outcome;   // [S]
    const double* count;                 // [S]
    const double* share;                 // [K]
    const double* going;                 // [X]
    const double* others;                // [P] visits of other pairs, for the prior of successors
    const double* end_others;            // [P] visits of other pairs, for the prior of ends
    const double* extra;                 // [K]
    const double* concentration;         // [C] c
    const double* cumulative;            // [C] cumulative probabilities of the concentrations; the last is 1
    const double* end_concentration;     // [C'] c'
    const double* end_cumulative;        // [C']
    const double* reward_mean;           // [d, P]
    const double* reward_noise;          // [d, P]
    const double* weight;                // [G, P]
    const double* starts;                // [X]
    const double* value;                 // [d, X] initial guess of the values of policy 0
    const double* visits;                // [G, X] initial guess of the visits of every policy
    double discount;
    double tol;                          // backward error of the solves
    std::uint64_t seed;
};

// Gains of policies 1 … G−1 in draws first … first + n_draws − 1; out is [n_draws, G−1, d].
void drawn_gains(const DrawnProcesses& in, std::int64_t first, std::int64_t n_draws, int threads, double* out);

// Gamma variates, one for every shape, from one generator.
void draw_gammas(std::int64_t n, const double* shape, std::uint64_t seed, double* out);

}  // namespace bettersafe
