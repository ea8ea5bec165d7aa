#include "mixtures.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace bettersafe {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kDualTol = 1e-12;    // reduced cost from which a variable may enter, in units of 1 + Σν
constexpr double kPivotTol = 1e-11;    // smallest pivot (rows have size 1)
constexpr double kFeasTol = 1e-12;    // Harris: maximum violation of a basic variable's bound
constexpr double kWarmFeas = 1e-10;   // violation up to which a given basis counts as feasible
constexpr double kAcceptFeas = 1e-10; // row violation above which an answer is rejected
constexpr double kAcceptGap = 1e-10;  // duality gap above which an answer is rejected, in units of 1 + Σν
constexpr double kRelax = 1e-7;       // perturbation of rows to escape a degenerate vertex
constexpr int kRefactorEvery = 50;

double dot(std::size_t size, const double* a, const double* b) {
    double lane[4] = {0.0, 0.0, 0.0, 0.0};
    std::size_t i = 0;
    for (; i + 4 <= size; i += 4) {
        for (int l = 0; l < 4; ++l) lane[l] += a[i + l] * b[i + l];
    }
    for (; i < size; ++i) lane[0] += a[i] * b[i];
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

void axpy(std::size_t size, double a, const double* __restrict x, double* __restrict y) {
    for (std::size_t i = 0; i < size; ++i) y[i] += a * x[i];
}

// Rows 0 .. d−1 are gains in units of their size, Σ w a_ik − t goal_k − s_k = rhs_k with slacks s ≥ 0; row d is Σ w = 1. Variables are
// numbered w_0 .., then the slacks, then t. All are ≥ 0, and t ≤ 1. A row that every policy satisfies never binds: its right-hand
// side is below all of its entries.
class Simplex {
public:
    explicit Simplex(Mixture& in) : in_(in), n_(in.n_policies), d_(in.n_rows), m_(d_ + 1), stride_((m_ + 3) & ~std::size_t{3}) {
        size_.resize(d_);
        goal_.assign(d_, 0.0);
        needed_.assign(d_, 0);
        matrix_.assign(n_ * stride_, 0.0);
        inverse_.resize(m_ * stride_);
        head_.resize(m_);
        basic_.resize(n_ + d_ + 1);
        cost_.resize(n_);
        for (auto* v : {&x_, &y_, &w_, &column_, &rhs_, &room_}) v->assign(stride_, 0.0);
        scale();
    }

    bool solve() {
        for (int attempt = 0; attempt < 3; ++attempt) {
            if (find(attempt) && refresh() && accepted()) {
                write();
                return true;
            }
        }
        return false;
    }

private:
    Mixture& in_;
    std::size_t n_, d_, m_, stride_;
    double unit_ = 1.0;             // size of the objective
    bool reaching_ = false;         // whether t is the objective
    bool whole_ = false;            // whether t is at its bound 1, out of the basis
    int since_refactor_ = 0;
    std::vector<double> size_, goal_, matrix_, inverse_, cost_;
    std::vector<double> x_, y_, w_, column_, rhs_, room_;
    std::vector<std::size_t> head_;  // basic variable of every position
    std::vector<char> basic_, needed_;

    std::size_t share() const { return n_ + d_; }
    const double* policy(std::size_t i) const { return matrix_.data() + i * stride_; }
    double* row(std::size_t i) { return inverse_.data() + i * stride_; }
    double bound(std::size_t var) const { return var == share() ? 1.0 : kInf; }
    double cost(std::size_t var) const { return reaching_ ? (var == share() ? 1.0 : 0.0) : (var < n_ ? cost_[var] : 0.0); }

    void scale() {
        double top = 0.0;
        for (std::size_t i = 0; i < n_; ++i) top = std::max(top, std::abs(in_.value[i]));
        unit_ = top > 0.0 ? top : 1.0;
        for (std::size_t i = 0; i < n_; ++i) cost_[i] = in_.value[i] / unit_;
        std::fill(size_.begin(), size_.end(), 0.0);
        for (std::size_t i = 0; i < n_; ++i) {
            const double* gain = in_.gain + i * d_;
            for (std::size_t k = 0; k < d_; ++k) {
                size_[k] = std::max(size_[k], std::abs(gain[k]));
                needed_[k] |= gain[k] < in_.floor[k];
            }
        }
        for (std::size_t k = 0; k < d_; ++k) {
            if (needed_[k]) size_[k] = std::max(size_[k], in_.floor[k]);
            if (!(size_[k] > 0.0)) size_[k] = 1.0;
            if (needed_[k]) goal_[k] = in_.floor[k] / size_[k];
        }
        for (std::size_t i = 0; i < n_; ++i) {
            const double* gain = in_.gain + i * d_;
            double* to = matrix_.data() + i * stride_;
            for (std::size_t k = 0; k < d_; ++k) to[k] = gain[k] / size_[k];
            to[d_] = 1.0;
        }
    }

    // Right-hand sides; `relax` lowers every floor by a different small amount, which breaks degeneracy.
    void set_rhs(double relax) {
        for (std::size_t k = 0; k < d_; ++k) {
            const double own = relax * (1.0 + std::fmod(0.618033988749895 * static_cast<double>(k + 1), 1.0));
            rhs_[k] = !needed_[k] ? -2.0 : (reaching_ ? 0.0 : goal_[k]) - own;
        }
        rhs_[d_] = 1.0;
    }

    // 0: from the given basis. 1: from policy 0. 2: from policy 0, first with relaxed rows.
    bool find(int attempt) {
        reaching_ = in_.reach;
        whole_ = false;
        set_rhs(0.0);
        if (attempt == 0) return warm_start() && optimise();
        const double relax = attempt == 2 ? kRelax : 0.0;
        bool low = true;  // whether policy 0 satisfies every row
        for (std::size_t k = 0; k < d_; ++k) low = low && !(needed_[k] && goal_[k] > 0.0);
        if (!low && !in_.reach) {  // first reach all of the floors
            reaching_ = true;
            set_rhs(relax);
            if (!cold_start() || !optimise()) return false;
            reaching_ = false;
            if (!whole_ && !drop_share()) return false;
            set_rhs(relax);
            if (!refactor()) return false;
        } else {
            set_rhs(relax);
            if (!cold_start()) return false;
        }
        if (!optimise()) return false;
        if (relax == 0.0) return true;
        set_rhs(0.0);
        return refactor() && feasible(kWarmFeas) && optimise();
    }

    // Takes t, which is 1 up to rounding, out of the basis.
    bool drop_share() {
        const auto at = static_cast<std::size_t>(std::find(head_.begin(), head_.end(), share()) - head_.begin());
        if (at == m_ || x_[at] < 1.0 - kWarmFeas) return false;
        std::size_t enter = share();
        double most = kPivotTol;
        for (std::size_t var = 0; var < share(); ++var) {
            if (basic_[var]) continue;
            load_column(var);
            const double pivot = dot(m_, row(at), column_.data());
            if (std::abs(pivot) > most) most = std::abs(pivot), enter = var;
        }
        if (enter == share()) return false;
        exchange_heads(at, enter);
        whole_ = true;
        return true;
    }

    void exchange_heads(std::size_t at, std::size_t enter) {
        basic_[head_[at]] = 0;
        head_[at] = enter;
        basic_[enter] = 1;
    }

    bool warm_start() {
        std::fill(basic_.begin(), basic_.end(), 0);
        for (std::size_t i = 0; i < m_; ++i) {
            const std::int64_t code = in_.basis[i];
            const auto rows = static_cast<std::int64_t>(d_);
            if (code >= static_cast<std::int64_t>(n_) || code < -1 - rows || (code == -1 - rows && !reaching_)) return false;
            const std::size_t var = code >= 0 ? static_cast<std::size_t>(code) : n_ + static_cast<std::size_t>(-1 - code);
            if (basic_[var]) return false;
            basic_[var] = 1;
            head_[i] = var;
        }
        return refactor() && feasible(kWarmFeas);
    }

    bool cold_start() {
        std::fill(basic_.begin(), basic_.end(), 0);
        for (std::size_t k = 0; k < d_; ++k) head_[k] = n_ + k;
        head_[d_] = 0;
        for (const std::size_t var : head_) basic_[var] = 1;
        whole_ = false;
        return refactor() && feasible(kWarmFeas);
    }

    bool feasible(double tol) const {
        for (std::size_t i = 0; i < m_; ++i) {
            if (!(x_[i] >= -tol && x_[i] <= bound(head_[i]) + tol)) return false;
        }
        return true;
    }

    void load_column(std::size_t var) {
        if (var < n_) {
            std::copy(policy(var), policy(var) + m_, column_.begin());
            return;
        }
        std::fill(column_.begin(), column_.end(), 0.0);
        if (var < share()) {
            column_[var - n_] = -1.0;
        } else {
            for (std::size_t k = 0; k < d_; ++k) column_[k] = -goal_[k];
        }
    }

    // w = B^{-1} a_var
    void transform(std::size_t var) {
        if (var >= n_ && var < share()) {
            for (std::size_t i = 0; i < m_; ++i) w_[i] = -row(i)[var - n_];
            return;
        }
        load_column(var);
        for (std::size_t i = 0; i < m_; ++i) w_[i] = dot(m_, row(i), column_.data());
    }

    // Puts the variable whose column is in w into basis position r.
    void eliminate(std::size_t r) {
        double* own = row(r);
        const double pivot = w_[r];
        for (std::size_t c = 0; c < m_; ++c) own[c] /= pivot;
        for (std::size_t i = 0; i < m_; ++i) {
            if (i != r && w_[i] != 0.0) axpy(m_, -w_[i], own, row(i));
        }
    }

    // B^{-1}, x and y from the basic variables; false if they are not a basis. Slacks are put into their own rows.
    bool refactor() {
        std::fill(inverse_.begin(), inverse_.end(), 0.0);
        for (std::size_t i = 0; i < m_; ++i) row(i)[i] = 1.0;
        std::vector<std::size_t> others;
        std::vector<char> open(m_, 1);
        for (const std::size_t var : std::vector<std::size_t>(head_)) {
            if (var < n_ || var == share()) {
                others.push_back(var);
                continue;
            }
            head_[var - n_] = var;
            open[var - n_] = 0;
            row(var - n_)[var - n_] = -1.0;
        }
        for (const std::size_t var : others) {
            transform(var);
            std::size_t best = m_;
            double most = kPivotTol;
            for (std::size_t i = 0; i < m_; ++i) {
                if (open[i] && std::abs(w_[i]) > most) most = std::abs(w_[i]), best = i;
            }
            if (best == m_) return false;
            open[best] = 0;
            head_[best] = var;
            eliminate(best);
        }
        since_refactor_ = 0;
        compute_x();
        compute_y();
        return true;
    }

    // x = B^{-1} b, with one step of refinement
    void compute_x() {
        for (std::size_t i = 0; i < m_; ++i) x_[i] = dot(m_, row(i), rhs_.data());
        std::vector<double> rest(rhs_.begin(), rhs_.begin() + static_cast<std::ptrdiff_t>(m_));
        if (reaching_ && whole_) {
            load_column(share());
            for (std::size_t i = 0; i < m_; ++i) x_[i] -= dot(m_, row(i), column_.data());
            axpy(m_, -1.0, column_.data(), rest.data());
        }
        for (std::size_t i = 0; i < m_; ++i) {
            load_column(head_[i]);
            axpy(m_, -x_[i], column_.data(), rest.data());
        }
        for (std::size_t i = 0; i < m_; ++i) x_[i] += dot(m_, row(i), rest.data());
    }

    // y = c_B B^{-1}, with one step of refinement
    void compute_y() {
        std::fill(y_.begin(), y_.end(), 0.0);
        for (std::size_t i = 0; i < m_; ++i) {
            if (cost(head_[i]) != 0.0) axpy(m_, cost(head_[i]), row(i), y_.data());
        }
        std::vector<double> missing(m_);
        for (std::size_t i = 0; i < m_; ++i) {
            load_column(head_[i]);
            missing[i] = cost(head_[i]) - dot(m_, y_.data(), column_.data());
        }
        for (std::size_t i = 0; i < m_; ++i) axpy(m_, missing[i], row(i), y_.data());
    }

    double sum_of_multipliers() const {
        double sum = 1.0;
        for (std::size_t k = 0; k < d_; ++k) sum += std::abs(y_[k]);
        return sum;
    }

    // Reduced cost of a variable that is not basic.
    double reduced(std::size_t var) {
        if (var < n_) return cost(var) - dot(m_, y_.data(), policy(var));
        if (var < share()) return y_[var - n_];
        return 1.0 + dot(d_, y_.data(), goal_.data());
    }

    // Variable to enter (share() + 1: none): the largest reduced cost, or the first positive one (Bland).
    std::size_t entering(bool bland, double* gain) {
        const double tol = kDualTol * sum_of_multipliers();
        std::size_t enter = share() + 1;
        double most = tol;
        const std::size_t end = reaching_ ? share() + 1 : share();
        for (std::size_t var = 0; var < end; ++var) {
            if (basic_[var]) continue;
            const double own = reduced(var);
            if (!(own > most)) continue;
            enter = var;
            most = own;
            if (bland) break;
        }
        *gain = most;
        return enter;
    }

    // Primal simplex from the current basis; false on the pivot limit or if the basis becomes singular.
    bool optimise() {
        const std::size_t most = 500 + 20 * (m_ + n_);
        std::size_t still = 0;  // degenerate pivots in a row
        for (std::size_t step = 0; step < most; ++step) {
            if (since_refactor_ >= kRefactorEvery && !(refactor() && feasible(kAcceptFeas))) return false;
            const bool bland = still > 20 + 2 * m_;
            double gain = 0.0;
            const std::size_t enter = entering(bland, &gain);
            if (enter > share()) {
                if (since_refactor_ == 0) return true;
                if (!(refactor() && feasible(kAcceptFeas))) return false;
                continue;  // check again with fresh numbers
            }
            transform(enter);
            double t = 0.0;
            const std::size_t leave = ratio_test(bland, &t);
            const double own = bound(enter);
            if (leave == m_ && own == kInf) return false;  // rounding: the program is bounded
            if (leave == m_ || own <= t) {  // the share moves from 0 to 1
                axpy(m_, -own, w_.data(), x_.data());
                whole_ = true;
                return true;
            }
            still = t * gain > 1e-14 ? 0 : still + 1;
            axpy(m_, -t, w_.data(), x_.data());
            x_[leave] = t;
            whole_ = head_[leave] == share() && w_[leave] < 0.0;
            axpy(m_, gain / w_[leave], row(leave), y_.data());
            eliminate(leave);
            exchange_heads(leave, enter);
            ++since_refactor_;
            if (whole_) return true;  // t = 1 is the largest t
        }
        return false;
    }

    // Basis position that blocks the entering variable first (m: none), and the step. Two passes (Harris): the maximum step with
    // slightly relaxed bounds, then the largest pivot among the bounds reached by this step.
    std::size_t ratio_test(bool bland, double* step) {
        const double slack = bland ? 0.0 : kFeasTol;
        double limit = kInf;
        for (std::size_t i = 0; i < m_; ++i) {
            room_[i] = kInf;
            if (std::abs(w_[i]) <= kPivotTol) continue;
            const double room = std::max(w_[i] > 0.0 ? x_[i] : bound(head_[i]) - x_[i], 0.0);
            room_[i] = room / std::abs(w_[i]);
            limit = std::min(limit, (room + slack) / std::abs(w_[i]));
        }
        std::size_t leave = m_;
        for (std::size_t i = 0; i < m_; ++i) {
            if (room_[i] == kInf || room_[i] > limit) continue;
            if (leave == m_ || (bland ? head_[i] < head_[leave] : std::abs(w_[i]) > std::abs(w_[leave]))) leave = i;
        }
        if (leave < m_) *step = room_[leave];
        return leave;
    }

    // Recomputes B^{-1}, x and y, if they were updated since.
    bool refresh() { return since_refactor_ == 0 || refactor(); }

    // Computes weights, multipliers and t; true if they are feasible and optimal.
    bool accepted() {
        std::fill(in_.weight, in_.weight + n_, 0.0);
        double total = 0.0, t = reaching_ && whole_ ? 1.0 : 0.0;
        for (std::size_t i = 0; i < m_; ++i) {
            if (head_[i] < n_) total += in_.weight[head_[i]] = std::max(x_[i], 0.0);
            if (head_[i] == share()) t = std::min(std::max(x_[i], 0.0), 1.0);
        }
        if (!(total > 0.5)) return false;
        std::vector<double> reached(stride_, 0.0);
        double value = 0.0, level = -kInf, target = 0.0, sum = 1.0;
        for (std::size_t k = 0; k < d_; ++k) {
            y_[k] = needed_[k] ? std::min(y_[k], 0.0) : 0.0;
            target -= y_[k] * goal_[k];
            sum -= y_[k];
        }
        for (std::size_t i = 0; i < n_; ++i) {
            in_.weight[i] /= total;
            if (in_.weight[i] > 0.0) axpy(m_, in_.weight[i], policy(i), reached.data());
            value += in_.weight[i] * cost(i);
            level = std::max(level, cost(i) - dot(d_, y_.data(), policy(i)));
        }
        for (std::size_t k = 0; k < d_; ++k) {
            if (needed_[k] && !(reached[k] >= (reaching_ ? t : 1.0) * goal_[k] - kAcceptFeas)) return false;
        }
        in_.share = reaching_ ? t : 1.0;
        in_.level = level;
        if (reaching_) return t >= 1.0 || (target >= 0.5 && level - t * target <= kAcceptGap * sum);
        return level - target - value <= kAcceptGap * sum;
    }

    void write() {
        const double unit = reaching_ ? 1.0 : unit_;
        in_.level *= unit;
        for (std::size_t k = 0; k < d_; ++k) in_.multiplier[k] = -y_[k] * unit / size_[k];
        for (std::size_t i = 0; i < m_; ++i)
            in_.basis[i] = head_[i] < n_ ? static_cast<std::int64_t>(head_[i]) : -1 - static_cast<std::int64_t>(head_[i] - n_);
    }
};

}  // namespace

bool solve_mixture(Mixture& mixture) { return Simplex(mixture).solve(); }

}  // namespace bettersafe
