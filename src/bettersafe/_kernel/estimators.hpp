// Terms of off-policy estimators, per trajectory, for d objectives at once, from importance ratios, rewards and model values of
// the rows of a log. The formulas are in estimators.cpp.
//
// Trajectory i has the rows ptr[i] .. ptr[i+1]-1, at least one. ρ_t = exp(log_ratio), and ρ_{0:t} is its running product. tail is
// the model's value of the last state of a truncated trajectory (0 if it terminated).
//
// Trajectories may come in blocks, three times in the same order: to sum their weights, to compute weighted means, and to
// compute the terms. Sums are taken trajectory by trajectory, so the bits do not depend on the blocks.
#pragma once
#include <cstdint>
#include <vector>

namespace bettersafe {

struct Trajectories {
    std::int64_t n;             // trajectories of this block
    std::int64_t first;         // trajectories in earlier blocks
    const std::int64_t* ptr;    // [n+1]
    const double* log_ratio;    // [N]
    const double* reward;       // [N, d]
    const double* v;            // [N, d]; not read without a model
    const double* q;            // [N, d]
    const double* tail;         // [n, d]
};

class Estimates {
public:
    enum class Stage { kWeigh, kAverage, kFinish };  // the latest stage

    // has_model: whether all blocks have v, q and tail, or none has.
    Estimates(std::vector<double> discount, bool has_model);

    static std::int64_t n_estimators();  // E
    Stage stage() const { return stage_; }
    bool has_model() const { return has_model_; }
    std::int64_t n_objectives() const { return d_; }
    std::int64_t n_trajectories() const { return n_; }  // in all blocks of weigh()
    std::int64_t longest() const { return longest_; }   // rows of the longest trajectory

    // First pass: the weights; log_weight[i] = log ρ_{0:H-1}. Only ptr and log_ratio of a block are read.
    void weigh(const Trajectories& block, double* log_weight);
    // Second pass: unweighted terms, and weighted means. terms is [E, n, d] over all blocks, by `kernel_row`.
    void average(const Trajectories& block, double* terms);
    // Third pass: the remaining terms.
    void finish(const Trajectories& block, double* terms);

private:
    void close_weights();
    void close_means();

    const std::vector<double> discount_;
    const std::int64_t d_;
    const bool has_model_;
    Stage stage_ = Stage::kWeigh;
    std::int64_t n_ = 0, longest_ = 0;
    std::vector<double> top_, sum_, ended_at_, total_;  // by time
    double all_ = 0.0;                                  // log of the sum of all final weights
    std::vector<double> reward_mean_, residual_mean_, value_mean_, wis_value_;
    std::vector<double> floor_, later_reward_, later_model_, cwpdis_value_, wdr_value_;
};

}  // namespace bettersafe
