// Terms of six off-policy estimators, per trajectory, for d objectives at once. Rows of logs are importance ratios, rewards and model
// values here; which policies and which log they come from is unknown.
//
// Trajectory i has the rows ptr[i] .. ptr[i+1]-1, at least one. With ρ_t = exp(log_ratio), ρ_{0:t} its running product, and
// w_t = ρ_{0:t} / mean over all trajectories of ρ_{0:t} (a trajectory that ended keeps its last weight):
//
//     is      ρ_{0:H-1} Σ γ^t r_t                      pdis    Σ γ^t ρ_{0:t} r_t
//     dr      Σ γ^t [ρ_{0:t} (r_t − q_t) + ρ_{0:t-1} v_t] + γ^H ρ_{0:H-1} tail
//     wis, cwpdis, wdr: the same with w for ρ. Their terms are linearised: value + influence of the trajectory, so that
//     their mean is the estimate and their spread its first-order uncertainty.
//
// tail is the model's value of the state in which a truncated trajectory was left (0 if it terminated).
//
// Trajectories may come in blocks, three times in the same order: to add up their weights, to average with them, and to
// make the terms. Every sum goes over trajectories one by one, so how they are cut into blocks does not change a bit.
#pragma once
#include <cstdint>
#include <vector>

namespace bettersafe {

struct Trajectories {
    std::int64_t n;             // trajectories of this block
    std::int64_t first;         // trajectories in the blocks before
    const std::int64_t* ptr;    // [n+1]
    const double* log_ratio;    // [N]
    const double* reward;       // [N, d]
    const double* v;            // [N, d]; not read without a model
    const double* q;            // [N, d]
    const double* tail;         // [n, d]
};

class Estimates {
public:
    enum class Stage { kWeigh, kAverage, kFinish };  // the last step that was taken

    // has_model: every block has v, q and tail; else none has.
    Estimates(std::vector<double> discount, bool has_model);

    static std::int64_t n_estimators();  // E
    Stage stage() const { return stage_; }
    bool has_model() const { return has_model_; }
    std::int64_t n_objectives() const { return d_; }
    std::int64_t n_trajectories() const { return n_; }  // that were weighed
    std::int64_t longest() const { return longest_; }   // rows of the longest of them

    // First time: the weights; log_weight[i] = log ρ_{0:H-1}. Only ptr and log_ratio of a block are read.
    void weigh(const Trajectories& block, double* log_weight);
    // Second time: unweighted terms, and weighted means. terms is [E, n, d] over all blocks, by `kernel_row`.
    void average(const Trajectories& block, double* terms);
    // Third time: the remaining terms.
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
