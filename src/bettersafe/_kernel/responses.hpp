// Best response to a reward: policy iteration over per-state programs without rows (`programs.hpp`), and the visits of its policy.
//
// The first policies are evaluated roughly, and the others accurately until no state improves. Advantages are rounded to a grid a
// little coarser than their error, so that equal ones are exactly equal. States whose program could not be solved keep their row.
#pragma once
#include <cstdint>

#include "values.hpp"

namespace bettersafe {

struct Accuracy {
    double rough, aim;          // backward errors of the evaluations
    double accepted;            // backward error above which there is no result
    double rounding;            // backward error from rounding in the residual itself
    std::int64_t max_products;  // of one evaluation
    std::int64_t max_rounds;    // of policy iteration
};

template <typename Index>
struct Response {
    std::int64_t n_states;
    const std::int64_t* ptr;      // [X+1]
    PairRows<Index> rows;
    double discount;
    const double* initial;        // [X]
    const double* baseline;       // [P]
    const double* error;          // [P]
    double epsilon;
    const double* reward;         // [P]
    const double* elsewhere;      // reward of the actions that are not stored, times their probability, [X]
    double* policy;               // [P], in: initial policy, within the budget; out: the best
    double* value;                // [X], in: guess; out: values of the reward
    double* visits;               // [X], in: guess; out: expected discounted visits
    std::uint8_t* kept;           // [X], out: whether the program was not solved in the last round
};

// Returns the number of rounds, or 0 if an evaluation did not reach the accepted error. The result does not depend on `threads`.
template <typename Index>
std::int64_t best_response(const Response<Index>& response, const Accuracy& accuracy, int threads);

}  // namespace bettersafe
