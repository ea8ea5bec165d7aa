#include "responses.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "programs.hpp"

namespace bettersafe {
namespace {

constexpr std::int64_t kRoughRounds = 2;  // most policies are found after so many rounds

double largest(const std::vector<double>& values) {
    double most = 0.0;
    for (const double value : values) most = std::max(most, std::abs(value));
    return most;
}

template <typename Index>
class PolicyIteration {
public:
    PolicyIteration(const Response<Index>& in, const Accuracy& accuracy, int threads)
        : in_(in), accuracy_(accuracy), threads_(threads), n_(in.n_states), n_pairs_(in.rows.n_pairs), rhs_(n_), q_(n_pairs_),
          answer_(n_pairs_), gap_(n_), basis_(2 * n_, -1), upper_(n_pairs_, 0), status_(n_) {}

    std::int64_t run() {
        double tol = accuracy_.rough;
        std::int64_t round = 1;
        for (;; ++round) {
            const double error = evaluate(tol);
            if (!std::isfinite(error)) return 0;
            const double grid = advantages(error);
            if (!std::isfinite(grid)) return 0;
            solve_programs({n_, n_pairs_, 0, in_.ptr, in_.baseline, q_.data(), in_.error, nullptr, in_.epsilon, basis_.data(),
                            upper_.data(), answer_.data(), gap_.data(), status_.data()},
                           threads_);
            const bool settled = improvement() <= grid, rough = tol > accuracy_.aim;
            if (!(settled && rough)) std::copy(answer_.begin(), answer_.end(), in_.policy);
            if ((settled && !rough) || round >= accuracy_.max_rounds) break;
            if (settled || round >= kRoughRounds) tol = accuracy_.aim;
        }
        for (std::int64_t x = 0; x < n_; ++x) in_.kept[x] = status_[x] != kSolved;
        return count_visits() ? round : 0;
    }

private:
    const Response<Index>& in_;
    const Accuracy& accuracy_;
    int threads_;
    std::int64_t n_, n_pairs_;
    std::vector<double> rhs_, q_, answer_, gap_;
    std::vector<std::int32_t> basis_;
    std::vector<std::uint8_t> upper_;
    std::vector<std::int8_t> status_;

    bool solve(const PolicyMatrix<Index>& matrix, const double* rhs, double* value, double tol, double* residual) const {
        *residual = solve_values(matrix, 1, rhs, value, tol, accuracy_.max_products, threads_).residual;
        return *residual <= std::max(tol, accuracy_.accepted);
    }

    // Values of the policy; returns a bound on their error, or infinity.
    double evaluate(double tol) {
        double most = 0.0, residual = 0.0;
        for (std::int64_t x = 0; x < n_; ++x) {
            rhs_[x] = in_.elsewhere[x];
            for (std::int64_t s = in_.ptr[x]; s < in_.ptr[x + 1]; ++s) rhs_[x] += in_.policy[s] * in_.reward[s];
        }
        const PolicyMatrix<Index> matrix{n_, in_.ptr, in_.policy, in_.rows.indptr, in_.rows.indices, in_.rows.data, in_.discount};
        if (!solve(matrix, rhs_.data(), in_.value, tol, &residual)) return std::numeric_limits<double>::infinity();
        for (std::int64_t x = 0; x < n_; ++x) most = std::max(most, std::abs(in_.value[x]));
        return (residual + accuracy_.rounding) * (largest(rhs_) + 2.0 * most) / (1.0 - in_.discount);
    }

    // Advantages, rounded to a grid, into q; returns the grid, or NaN if an advantage is not finite.
    double advantages(double error) {
        pair_values(in_.rows, 1, &in_.discount, in_.reward, in_.value, q_.data(), threads_);
        const double grid = error > 0.0 ? std::exp2(std::ceil(std::log2(2.0 * error))) : 0.0;
        double zero = 0.0;  // NaN if an advantage is not finite
        for (std::int64_t x = 0; x < n_; ++x) {
            for (std::int64_t s = in_.ptr[x]; s < in_.ptr[x + 1]; ++s) {
                q_[s] -= in_.value[x];
                if (grid > 0.0) q_[s] = std::nearbyint(q_[s] / grid) * grid;
                zero += 0.0 * q_[s];
            }
        }
        return grid + zero;
    }

    // Largest gain of a state's answer over its current row; states that were not solved get their current row.
    double improvement() {
        double most = 0.0;
        for (std::int64_t x = 0; x < n_; ++x) {
            double gain = 0.0;
            for (std::int64_t s = in_.ptr[x]; s < in_.ptr[x + 1]; ++s) {
                if (status_[x] != kSolved) answer_[s] = in_.policy[s];
                gain += (answer_[s] - in_.policy[s]) * q_[s];
            }
            most = std::max(most, gain);
        }
        return most;
    }

    // visits = initial + γ Pᵀ visits, with Pᵀ formed; entries of a row are sorted by state, since states are taken in order.
    bool count_visits() {
        std::vector<Index> indptr(n_ + 1, 0);
        for (std::int64_t s = 0; s < n_pairs_; ++s) {
            if (in_.policy[s] == 0.0) continue;
            for (Index i = in_.rows.indptr[s]; i < in_.rows.indptr[s + 1]; ++i) ++indptr[in_.rows.indices[i] + 1];
        }
        std::partial_sum(indptr.begin(), indptr.end(), indptr.begin());
        std::vector<Index> end(indptr.begin(), indptr.end() - 1), from(indptr[n_]);
        std::vector<double> data(indptr[n_]);
        for (std::int64_t x = 0; x < n_; ++x) {
            for (std::int64_t s = in_.ptr[x]; s < in_.ptr[x + 1]; ++s) {
                const double weight = in_.policy[s];
                if (weight == 0.0) continue;
                for (Index i = in_.rows.indptr[s]; i < in_.rows.indptr[s + 1]; ++i) {
                    const Index place = end[in_.rows.indices[i]]++;
                    from[place] = static_cast<Index>(x);
                    data[place] = weight * in_.rows.data[i];
                }
            }
        }
        std::vector<std::int64_t> one_each(n_ + 1);
        std::iota(one_each.begin(), one_each.end(), 0);
        const std::vector<double> ones(n_, 1.0);
        const PolicyMatrix<Index> backward{n_, one_each.data(), ones.data(), indptr.data(), from.data(), data.data(), in_.discount};
        double residual = 0.0;
        return solve(backward, in_.initial, in_.visits, accuracy_.aim, &residual);
    }
};

}  // namespace

template <typename Index>
std::int64_t best_response(const Response<Index>& response, const Accuracy& accuracy, int threads) {
    return PolicyIteration<Index>(response, accuracy, threads).run();
}

template std::int64_t best_response<std::int32_t>(const Response<std::int32_t>&, const Accuracy&, int);
template std::int64_t best_response<std::int64_t>(const Response<std::int64_t>&, const Accuracy&, int);

}  // namespace bettersafe
