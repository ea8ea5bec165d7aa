#include "programs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "parallel.hpp"
#include "wide.hpp"

namespace bettersafe {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kDualTol = 1e-11;      // reduced cost from which a variable may enter (objective has half-range 1)
constexpr double kTieTol = 1e-10;       // reduced cost below which two optima count as one
constexpr double kPivotTol = 1e-9;      // smallest pivot (rows have half-range 1)
constexpr double kDualPivotTol = 1e-7;  // below this pivot the dual simplex stops, and the primal simplex, which can choose its pivot, takes over
constexpr double kFeasTol = 1e-11;      // Harris: maximum violation of a basic variable's bound
constexpr double kAcceptFeas = 1e-9;    // row violation above which an answer is rejected (pivots below kPivotTol are
                                        // ignored, so a row may be missed by about as much)
constexpr double kRelax = 1e-6;         // perturbation of rows to escape a massively degenerate vertex
constexpr double kAcceptGap = 5e-9;     // relative gap that counts as solved
constexpr double kSnap = 1e-14;         // smaller deviations are rounding errors: the baseline's bits are kept
constexpr double kForbidden = 2.5e-9;   // an entry that a row holds below this share of the mass keeps its baseline: moving it is
                                        // worth at most kAcceptGap
constexpr double kSmallReach = 1e-4;    // a row that can gain less than this share of its half-range is scaled by what it can gain
constexpr int kRefactorEvery = 60;

int padded(int size) { return (size + 3) & ~3; }

// y += a x over `size` (padded) entries that do not overlap
inline void axpy(int size, double a, const double* __restrict x, double* __restrict y) {
    for (int i = 0; i < size; ++i) y[i] += a * x[i];
}

// Σ a_i b_i over `size` (padded) entries, in four lanes that are added in a fixed order
inline double dot(int size, const double* a, const double* b) {
    double lane[4] = {0.0, 0.0, 0.0, 0.0};
    for (int i = 0; i < size; i += 4) {
        for (int l = 0; l < 4; ++l) lane[l] += a[i + l] * b[i + l];
    }
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

// Index of the first maximum of `size` (padded) entries; −1 if they are NaN. Two passes without unpredictable branches are
// faster than one.
inline int largest(int size, const double* v) {
    double lane[4] = {v[0], v[1], v[2], v[3]};
    for (int i = 4; i < size; i += 4) {
        for (int l = 0; l < 4; ++l) lane[l] = v[i + l] > lane[l] ? v[i + l] : lane[l];
    }
    const double most = std::max(std::max(lane[0], lane[1]), std::max(lane[2], lane[3]));
    for (int i = 0; i < size; ++i) {
        if (v[i] == most) return i;
    }
    return -1;
}

// One program at a time; the memory is reused. Variables are numbered p_0.., n_0.. (from wide_ on), slack of row 1,
// slack of row 2, ... (from 2 wide_ on). Row 0 is Σδ = 0; then the kept rows as −rows·δ + slack = 0; then the budget, if any.
// The slack of row i, when basic, always sits at basis position i. So column i of the inverse is a unit vector
// unless that slack is out of the basis: only the columns of "tight" rows are stored and touched.
class Simplex {
public:
    std::int64_t pivots = 0;

    void solve(const Programs& in, std::int64_t x) {
        const std::int64_t begin = in.ptr[x], count = in.ptr[x + 1] - begin;
        std::copy(in.baseline + begin, in.baseline + begin + count, in.policy + begin);
        in.gap[x] = 0.0;
        in.status[x] = kSolved;
        if (!load(in, begin, count)) return;
        std::int32_t* basis = in.basis + x * (in.n_rows + 2);
        std::uint8_t* upper = in.at_upper + begin;
        double relative_gap = m_ == 1 ? best_entry(basis, upper) : kInf;
        if (relative_gap <= kAcceptGap) {
            for (int f = 0; f < n_; ++f) in.policy[begin + entry_[f]] = work_[f];
            in.gap[x] = relative_gap * half_;
            return;
        }
        for (int attempt = 0; attempt < 3 && !(relative_gap <= kAcceptGap); ++attempt) {
            if (!begin_attempt(attempt, basis, upper)) continue;
            if (!optimise(false) || !check(false)) continue;
            if (value() > 0.0 && has_ties()) {
                best_delta_ = delta_;
                optimise(true);
                if (!check(true)) {  // keep the optimum; the next solve starts cold
                    delta_ = best_delta_;
                    cold_start();
                }
            }
            std::copy(base_.begin(), base_.end(), work_.begin());
            if (value() > 0.0 && !write()) continue;
            relative_gap = duality_gap();
        }
        if (relative_gap <= kAcceptGap) {
            for (int f = 0; f < n_; ++f) in.policy[begin + entry_[f]] = work_[f];
        } else {  // no guarantee: keep the baseline
            in.status[x] = kInexact;
            relative_gap = kInf;
            cold_start();
        }
        in.gap[x] = relative_gap * half_;
        std::copy(head_.begin(), head_.begin() + m_, basis);
        std::fill(basis + m_, basis + in.n_rows + 2, -1);
        for (int j = 0; j < n_; ++j) upper[j] = at_upper_[j];
    }

private:
    int n_ = 0, m_ = 0;
    int wide_ = 0, tall_ = 0;            // n and m rounded up to whole vectors; the padding stays zero
    bool budget_ = false, all_free_ = false;
    double half_ = 0.0, limit_ = 0.0, mass_ = 0.0;
    int since_refactor_ = 0;
    std::vector<int> entry_;             // free entry -> entry of the program
    std::vector<double> base_, cost_;    // [wide]
    std::vector<double> matrix_;         // [m, n], row-major: the p columns
    std::vector<double> inverse_;        // [m, m], column-major; only columns of tight rows are meaningful
    std::vector<double> x_, y_, y_opt_, w_, bound_, room_, size_, price_, direction_;
    std::vector<double> alpha_, rate_, score_;  // dual simplex: a row of B^{-1} A, and the ratios of its ratio test
    std::vector<int> flips_;             // dual simplex: the n that move to their other bound
    std::vector<int> head_, wanted_;     // basic variable of every position; variables that a factorisation must place
    std::vector<int> tight_rows_;        // the rows with tight_ set
    std::vector<char> tight_, open_, basic_, locked_;
    std::vector<std::uint8_t> at_upper_;
    std::vector<double> delta_, best_delta_, work_, rhs_;

    const double* row(int i) const { return matrix_.data() + static_cast<std::size_t>(i) * wide_; }
    double* column(int c) { return inverse_.data() + static_cast<std::size_t>(c) * tall_; }
    bool is_slack(int var) const { return var >= 2 * wide_; }
    int slack_row(int var) const { return var - 2 * wide_ + 1; }
    double upper_bound(int var) const { return (var >= wide_ && var < 2 * wide_) ? base_[var - wide_] : kInf; }

    // Solves a program without rows and budget: the best entry gets the mass of all entries that do not tie with it. If several are best,
    // it is the one of the last solve, or the first. Returns the gap, in units of the objective's half-range.
    double best_entry(std::int32_t* basis, std::uint8_t* upper) {
        int best = largest(wide_, cost_.data());  // the padding is 0, the largest cost 1
        const double top = cost_[best];
        if (basis[0] >= 0 && basis[0] < n_ && cost_[basis[0]] >= top - kDualTol) best = basis[0];
        double moved = 0.0;
        for (int j = 0; j < n_; ++j) {
            upper[j] = top - cost_[j] > kTieTol;
            delta_[j] = upper[j] ? -base_[j] : 0.0;
            moved -= delta_[j];
        }
        delta_[best] = moved;
        std::fill(delta_.begin() + n_, delta_.end(), 0.0);
        std::copy(base_.begin(), base_.end(), work_.begin());
        if (value() > 0.0 && !write()) return kInf;
        basis[0] = best;
        double gap = 1e-15;
        for (int f = 0; f < n_; ++f) gap += work_[f] * (top - cost_[f]);
        return gap;
    }

    // Starting point of an attempt. 0: the last basis, else the dual simplex, else the origin. 1: the current basis, refactorised.
    // 2: a vertex found with every row relaxed by a different small amount, which breaks degeneracy.
    bool begin_attempt(int attempt, const std::int32_t* basis, const std::uint8_t* upper) {
        if (attempt == 0) {
            if (!warm_start(basis, upper) && !descend()) cold_start();
            return true;
        }
        if (attempt == 1) {
            if (!refactor()) cold_start();
            return true;
        }
        for (int i = 1; i < m_; ++i) rhs_[i] += kRelax * (1.0 + std::fmod(0.618033988749895 * i, 1.0));
        cold_start();
        const bool found = optimise(false);
        set_rhs();
        if (found && refactor()) return true;
        cold_start();
        return false;
    }

    void set_rhs() {
        std::fill(rhs_.begin(), rhs_.end(), 0.0);
        if (budget_) rhs_[m_ - 1] = limit_;
    }

    // Copies, centres and scales program `begin`; false if nothing can move.
    BETTERSAFE_WIDE bool load(const Programs& in, std::int64_t begin, std::int64_t count) {
        const bool finite = std::isfinite(in.epsilon);
        const double* error = in.error + begin;
        const double most_error = !finite ? kInf : in.epsilon > 0.0 ? std::numeric_limits<double>::max() : 0.0;
        entry_.resize(count);
        n_ = 0;
        for (int j = 0; j < count; ++j) {
            entry_[n_] = j;
            n_ += error[j] <= most_error;
        }
        for (bool complete = false; !complete;) {  // again, with fewer entries, after a row has shown some to be forbidden
            if (n_ < 2) return false;
            all_free_ = n_ == count;
            wide_ = padded(n_);
            base_.resize(wide_);
            cost_.resize(wide_);
            gather(in.baseline + begin, base_.data());
            mass_ = 0.0;
            for (int f = 0; f < n_; ++f) mass_ += base_[f];
            if (!(mass_ > 0.0)) return false;
            half_ = centred(in.objective + begin, 1.0, cost_.data());
            if (half_ == 0.0) return false;  // constant objective: keep the baseline
            at_least(matrix_, (static_cast<std::size_t>(in.n_rows) + 2) * wide_);
            std::fill(matrix_.begin(), matrix_.begin() + n_, 1.0);
            std::fill(matrix_.begin() + n_, matrix_.begin() + wide_, 0.0);
            m_ = 1;
            complete = true;
            for (std::int64_t k = 0; k < in.n_rows && complete; ++k) {
                double* target = matrix_.data() + static_cast<std::size_t>(m_) * wide_;
                const double* values = in.rows + k * in.n_entries + begin;
                const double half = centred(values, -1.0, target);
                if (half == 0.0) continue;  // a constant row is implied by Σδ = 0
                if (!reaches_far(target)) {
                    const double top = top_of(values), reach = scale_by_reach(values, top, half, target);
                    complete = reach > 2.0 * kForbidden * mass_ * half || !forbid(values, top, reach);
                }
                ++m_;
            }
        }
        budget_ = false;
        if (finite && in.epsilon > 0.0) {
            double* target = matrix_.data() + static_cast<std::size_t>(m_) * wide_;
            gather(error, target);
            const double top = target[largest(wide_, target)];
            if (2.0 * top * mass_ > in.epsilon) {  // otherwise it can never bind
                for (int f = 0; f < n_; ++f) target[f] /= top;
                limit_ = in.epsilon / top;
                budget_ = true;
                ++m_;
            }
        }
        tall_ = padded(m_);
        at_least(inverse_, static_cast<std::size_t>(m_) * tall_);
        for (auto* v : {&x_, &y_, &y_opt_, &w_, &bound_, &room_, &size_}) {
            v->resize(tall_);
            std::fill(v->begin() + m_, v->end(), 0.0);
        }
        for (auto* v : {&price_, &direction_, &alpha_}) v->resize(2 * wide_);
        for (auto* v : {&rate_, &score_}) at_least(*v, 2 * static_cast<std::size_t>(wide_) + tall_);
        delta_.resize(wide_);
        head_.resize(m_);
        tight_.resize(m_);
        basic_.resize(2 * wide_ + m_ - 1);
        locked_.resize(2 * wide_ + m_ - 1);
        at_upper_.resize(n_);
        work_.resize(wide_);
        rhs_.resize(m_);
        set_rhs();
        return true;
    }

    // Grows a buffer that is written before it is read.
    static void at_least(std::vector<double>& v, std::size_t size) {
        if (v.size() < size) v.resize(size);
    }

    // Values at the free entries, then zeros.
    void gather(const double* values, double* target) const {
        if (all_free_) {
            std::copy(values, values + n_, target);
        } else {
            for (int f = 0; f < n_; ++f) target[f] = values[entry_[f]];
        }
        std::fill(target + n_, target + wide_, 0.0);
    }

    // Values at the free entries, shifted and scaled to [-1, 1], times a sign; returns the half-range (0: constant).
    double centred(const double* values, double sign, double* target) const {
        gather(values, target);
        double low[4], high[4];
        for (int l = 0; l < 4; ++l) low[l] = high[l] = target[l < n_ ? l : 0];
        int f = 0;
        for (; f + 4 <= n_; f += 4) {
            for (int l = 0; l < 4; ++l) {
                low[l] = target[f + l] < low[l] ? target[f + l] : low[l];
                high[l] = target[f + l] > high[l] ? target[f + l] : high[l];
            }
        }
        for (; f < n_; ++f) {
            low[0] = std::min(low[0], target[f]);
            high[0] = std::max(high[0], target[f]);
        }
        const double bottom = std::min(std::min(low[0], low[1]), std::min(low[2], low[3]));
        const double top = std::max(std::max(high[0], high[1]), std::max(high[2], high[3]));
        const double middle = 0.5 * bottom + 0.5 * top, half = 0.5 * top - 0.5 * bottom;
        if (!(half > 1e-300)) return 0.0;  // 1/half would overflow
        const double scale = sign / half;
        for (f = 0; f < n_; ++f) target[f] = (target[f] - middle) * scale;
        return half;
    }

    // Whether a centred row, (middle − value) / half, can surely gain more than kSmallReach: the gain is Σ base (row + 1). Most rows can,
    // and need neither another scale nor a look for forbidden entries. No term is negative: the first two, of at least two, are
    // mostly enough.
    bool reaches_far(const double* target) const {
        return base_[0] * (target[0] + 1.0) + base_[1] * (target[1] + 1.0) > 2.0 * kSmallReach * mass_ ||
               dot(wide_, base_.data(), target) > (2.0 * kSmallReach - 1.0) * mass_;
    }

    double top_of(const double* values) const {
        double top = values[entry_[0]];
        for (int f = 1; f < n_; ++f) top = std::max(top, values[entry_[f]]);
        return top;
    }

    // The most that a row can gain, Σ base (top − value). If that is little beside its half-range, the row becomes (top − value) in
    // units of this gain: in units of the half-range, losing as much would be within the tolerance.
    double scale_by_reach(const double* values, double top, double half, double* target) const {
        double reach = 0.0;
        for (int f = 0; f < n_; ++f) reach += base_[f] * (top - values[entry_[f]]);
        const double scale = reach / mass_;
        if (scale < kSmallReach * half && scale > 1e-300) {
            for (int f = 0; f < n_; ++f) target[f] = (top - values[entry_[f]]) / scale;
        }
        return reach;
    }

    // Removes the free entries that a row forbids; false if there are none. The row is Σ π (top − value) ≤ reach, and no term is
    // negative, so π_j ≤ reach / (top − value_j).
    bool forbid(const double* values, double top, double reach) {
        const int before = n_;
        n_ = 0;
        for (int f = 0; f < before; ++f) {
            const double missing = top - values[entry_[f]];
            entry_[n_] = entry_[f];
            n_ += !(missing > 0.0 && reach <= kForbidden * mass_ * missing);
        }
        return n_ < before;
    }

    void set_slack_basis() {
        std::fill(basic_.begin(), basic_.end(), 0);
        for (int i = 1; i < m_; ++i) {
            head_[i] = 2 * wide_ + i - 1;
            bound_[i] = kInf;
            basic_[head_[i]] = 1;
            tight_[i] = 0;
        }
        head_[0] = -1;
        tight_[0] = 0;
        tight_rows_.clear();
    }

    // Slacks and the p of the best entry, all at the origin.
    void cold_start() {
        set_slack_basis();
        std::fill(at_upper_.begin(), at_upper_.end(), 0);
        const int best = static_cast<int>(std::max_element(cost_.begin(), cost_.begin() + n_) - cost_.begin());
        load_column(best);
        eliminate(0, best);
        since_refactor_ = 0;
        compute_x();
    }

    bool warm_start(const std::int32_t* basis, const std::uint8_t* upper) {
        if (basis[0] < 0) return false;
        std::fill(basic_.begin(), basic_.end(), 0);
        for (int i = 0; i < m_; ++i) {
            const int var = basis[i];
            const bool known = (var >= 0 && var < n_) || (var >= wide_ && var < wide_ + n_) ||
                               (var >= 2 * wide_ && var < 2 * wide_ + m_ - 1);
            if (!known || basic_[var]) return false;  // not a basis of this program
            basic_[var] = 1;
        }
        std::copy(basis, basis + m_, head_.begin());
        for (int j = 0; j < n_; ++j) at_upper_[j] = upper[j] != 0;
        if (!refactor()) return false;
        for (int i = 0; i < m_; ++i) {
            if (x_[i] < -1e-9 || x_[i] > bound_[i] + 1e-9) return false;
        }
        return true;
    }

    // w = B^{-1} a_var
    void load_column(int var) {
        const double sign = (var >= wide_ && !is_slack(var)) ? -1.0 : 1.0;
        double* w = w_.data();
        if (is_slack(var)) {
            const double* c = column(slack_row(var));
            std::copy(c, c + tall_, w);  // its row is tight, or it would be basic
            return;
        }
        const int j = var < wide_ ? var : var - wide_;
        const double* a = matrix_.data() + j;
        for (int i = 0; i < m_; ++i) w[i] = tight_[i] ? 0.0 : sign * a[static_cast<std::size_t>(i) * wide_];
        if (budget_ && !tight_[m_ - 1]) w[m_ - 1] = row(m_ - 1)[j];
        for (int i : tight_rows_) {
            const double weight = (budget_ && i == m_ - 1) ? row(i)[j] : sign * row(i)[j];
            if (weight != 0.0) axpy(tall_, weight, column(i), w);
        }
    }

    // Puts `var`, whose column is in w, into basis position r.
    void eliminate(int r, int var) {
        const double scale = 1.0 / w_[r];
        const double* w = w_.data();
        for (int c : tight_rows_) {
            double* col = column(c);
            const double factor = col[r] * scale;
            if (factor == 0.0) continue;
            axpy(tall_, -factor, w, col);
            col[r] = factor;
        }
        if (!tight_[r]) {  // its slack leaves: column r is no longer a unit vector
            double* col = column(r);
            for (int i = 0; i < tall_; ++i) col[i] = -scale * w[i];
            col[r] = scale;
            tight_[r] = 1;
            tight_rows_.push_back(r);
        }
        if (head_[r] >= 0) basic_[head_[r]] = 0;
        head_[r] = var;
        bound_[r] = upper_bound(var);
        basic_[var] = 1;
        if (is_slack(var)) {  // move it to its own position
            const int home = slack_row(var);
            if (home != r) {
                std::swap(head_[r], head_[home]);
                std::swap(x_[r], x_[home]);
                std::swap(bound_[r], bound_[home]);
                for (int c : tight_rows_) std::swap(column(c)[r], column(c)[home]);
            }
            tight_[home] = 0;
            tight_rows_.erase(std::find(tight_rows_.begin(), tight_rows_.end(), home));
        }
    }

    // Rebuilds the inverse, x and y from `head_` and `at_upper_`; false if the basis is singular.
    BETTERSAFE_WIDE bool refactor() {
        wanted_.assign(head_.begin(), head_.end());
        set_slack_basis();
        open_.assign(m_, 1);
        for (int var : wanted_) {
            if (is_slack(var)) open_[slack_row(var)] = 0;
        }
        for (int var : wanted_) {
            if (is_slack(var)) continue;
            load_column(var);
            int r = -1;
            for (int i = 0; i < m_; ++i) {
                if (open_[i] && (r < 0 || std::abs(w_[i]) > std::abs(w_[r]))) r = i;
            }
            if (r < 0 || std::abs(w_[r]) < kPivotTol) return false;
            eliminate(r, var);
            open_[r] = 0;
        }
        since_refactor_ = 0;
        compute_x();
        return true;
    }

    void compute_x() {
        double* rhs = w_.data();
        double* gone = alpha_.data();
        std::fill(gone, gone + wide_, 0.0);
        for (int j = 0; j < n_; ++j) gone[j] = at_upper_[j] ? base_[j] : 0.0;
        for (int i = 0; i < m_; ++i) rhs[i] = rhs_[i] + dot(wide_, row(i), gone);
        if (budget_) rhs[m_ - 1] = limit_ - (rhs[m_ - 1] - limit_);
        double* x = x_.data();
        std::fill(x_.begin(), x_.end(), 0.0);
        for (int c = 0; c < m_; ++c) {
            if (!tight_[c]) x[c] = rhs[c];
        }
        for (int c : tight_rows_) {
            if (rhs[c] != 0.0) axpy(tall_, rhs[c], column(c), x);
        }
    }

    double cost(int var, bool nearest) const {
        if (is_slack(var)) return 0.0;
        if (nearest) return -1.0;
        return var < wide_ ? cost_[var] : -cost_[var - wide_];
    }

    void compute_y(bool nearest) {
        double* basic_cost = room_.data();
        for (int i = 0; i < m_; ++i) basic_cost[i] = cost(head_[i], nearest);
        std::fill(y_.begin(), y_.end(), 0.0);
        for (int c : tight_rows_) y_[c] = dot(tall_, basic_cost, column(c));
    }

    // Reduced costs of all p and n under multipliers y.
    void price(const std::vector<double>& y, bool nearest) {
        double* __restrict p = price_.data();
        double* __restrict q = price_.data() + wide_;
        if (nearest) {
            std::fill(p, p + wide_, 0.0);
        } else {
            std::copy(cost_.begin(), cost_.end(), p);
        }
        for (int i = 0; i < m_ - (budget_ ? 1 : 0); ++i) {
            if (y[i] != 0.0) axpy(wide_, -y[i], row(i), p);
        }
        const double constant = nearest ? -1.0 : 0.0;
        const double yb = budget_ ? y[m_ - 1] : 0.0;
        const double* __restrict e = row(m_ - 1);
        for (int j = 0; j < wide_; ++j) {
            const double both = constant - yb * e[j];
            q[j] = both - p[j];
            p[j] = both + p[j];
        }
    }

    // Direction in which each p and n may enter: up (+1), down from its upper bound (−1), none (0).
    void compute_direction() {
        std::fill(direction_.begin(), direction_.end(), 0.0);
        for (int j = 0; j < n_; ++j) {
            set_direction(j);
            set_direction(wide_ + j);
        }
    }
    void set_direction(int var) {
        if (var < wide_) {
            direction_[var] = (basic_[var] || locked_[var]) ? 0.0 : 1.0;
        } else if (!is_slack(var)) {
            const bool stays = basic_[var] || locked_[var] || base_[var - wide_] == 0.0;
            direction_[var] = stays ? 0.0 : (at_upper_[var - wide_] ? -1.0 : 1.0);
        }
    }

    // Entering variable (−1: none): the one with the best reduced cost or, under Bland's rule, the first with a good one.
    int entering(bool bland) {
        int enter = -1;
        double best = kDualTol;
        const int n_moves = 2 * wide_;
        if (bland) {
            for (int var = 0; var < n_moves; ++var) {
                if (direction_[var] * price_[var] > kDualTol) return var;
            }
        } else {
            double* __restrict gain = alpha_.data();
            for (int var = 0; var < n_moves; ++var) gain[var] = direction_[var] * price_[var];
            const int top = largest(n_moves, gain);
            if (top >= 0 && gain[top] > best) {
                best = gain[top];
                enter = top;
            }
        }
        for (int i = 1; i < m_; ++i) {
            const int var = n_moves + i - 1;
            if (!tight_[i] || locked_[var] || !(-y_[i] > best)) continue;
            if (bland) return var;
            best = -y_[i];
            enter = var;
        }
        return enter;
    }

    // Simplex from the current basis. nearest = false: the objective. nearest = true: least Σ(p + n), among
    // variables that are not locked. Returns false on the pivot cap or a numerical dead end (still feasible).
    BETTERSAFE_WIDE bool optimise(bool nearest) {
        if (!nearest) std::fill(locked_.begin(), locked_.end(), 0);
        compute_y(nearest);
        compute_direction();
        price(y_, nearest);
        const int cap = 500 + 50 * (m_ + n_);
        int degenerate = 0;
        for (int step = 0; step < cap; ++step) {
            if (since_refactor_ >= kRefactorEvery) {
                if (!refactor()) {  // don't leave an incomplete basis
                    cold_start();
                    return false;
                }
                compute_y(nearest);
                price(y_, nearest);
            }
            const bool bland = degenerate > 10 + m_;
            const int enter = entering(bland);
            if (enter < 0) return true;
            const double reduced = is_slack(enter) ? -y_[slack_row(enter)] : price_[enter];
            const bool down = enter >= wide_ && !is_slack(enter) && at_upper_[enter - wide_];
            load_column(enter);
            double t = 0.0;
            const int leave = ratio_test(down ? -1.0 : 1.0, bland, &t);
            const double own = upper_bound(enter);
            if (leave < 0 && !std::isfinite(own)) return false;
            ++pivots;
            const double sign = down ? -1.0 : 1.0;
            if (leave < 0 || own <= t) {  // the variable reaches its other bound first
                for (int i = 0; i < m_; ++i) x_[i] -= sign * own * w_[i];
                at_upper_[enter - wide_] = !at_upper_[enter - wide_];
                direction_[enter] = -direction_[enter];
                degenerate = 0;
                continue;
            }
            degenerate = t * std::abs(reduced) > 1e-14 ? 0 : degenerate + 1;
            for (int i = 0; i < m_; ++i) x_[i] -= sign * t * w_[i];
            const double start = down ? own : 0.0;
            const int out = head_[leave];
            if (out >= wide_ && !is_slack(out)) at_upper_[out - wide_] = sign * w_[leave] < 0.0;
            x_[leave] = start + sign * t;
            if (!is_slack(enter) && enter >= wide_) at_upper_[enter - wide_] = 0;
            // y moves along row `leave` of the inverse, taken before the exchange
            const double move = reduced / w_[leave];
            for (int c : tight_rows_) y_[c] += move * column(c)[leave];
            if (!tight_[leave]) y_[leave] += move;
            eliminate(leave, enter);
            if (is_slack(enter)) y_[slack_row(enter)] = 0.0;
            set_direction(enter);
            set_direction(out);
            price(y_, nearest);
            ++since_refactor_;
        }
        return false;
    }

    // Dual simplex: starts with all mass on the best entry, which is dual feasible, and repairs violated rows, largest violation
    // first. It needs far fewer steps than the primal simplex from the origin, where all rows are tight. False if it gets stuck, or
    // would not be faster.
    BETTERSAFE_WIDE bool descend() {
        const int best = largest(wide_, cost_.data());  // the padding is 0, the largest cost 1
        if (budget_) {  // with few rows and a small budget the primal simplex is faster (measured break-even)
            const double spent = dot(wide_, row(m_ - 1), base_.data()) + row(m_ - 1)[best] * mass_;
            if (8.0 * spent > limit_ * m_ * m_ * m_) return false;
        }
        set_slack_basis();
        for (int j = 0; j < n_; ++j) at_upper_[j] = cost_[j] < cost_[best];
        load_column(best);
        eliminate(0, best);
        since_refactor_ = 0;
        compute_x();
        std::fill(locked_.begin(), locked_.end(), 0);
        compute_y(false);
        compute_direction();
        price(y_, false);
        const int cap = 2 * (m_ + n_);
        for (int step = 0; step < cap; ++step) {
            double* __restrict missed = room_.data();
            for (int i = 0; i < tall_; ++i) missed[i] = std::max(-x_[i], x_[i] - bound_[i]);
            const int leave = largest(tall_, missed);
            if (leave < 0) return false;
            if (!(missed[leave] > kFeasTol)) {
                compute_x();  // recompute at once instead of by steps: entries that do not move should be 0 up to rounding
                return true;
            }
            const bool above = x_[leave] > 0.0;
            const int enter = dual_ratio_test(leave, above ? 1.0 : -1.0, missed[leave]);
            if (enter < 0) return false;
            flip();
            load_column(enter);
            if (!(std::abs(w_[leave]) > kDualPivotTol)) return false;
            ++pivots;
            ++since_refactor_;
            const bool down = !is_slack(enter) && enter >= wide_ && at_upper_[enter - wide_];
            const double t = (x_[leave] - (above ? bound_[leave] : 0.0)) / w_[leave];
            axpy(tall_, -t, w_.data(), x_.data());
            x_[leave] = (down ? upper_bound(enter) : 0.0) + t;
            if (down) at_upper_[enter - wide_] = 0;
            const int out = head_[leave];
            const double move = (is_slack(enter) ? -y_[slack_row(enter)] : price_[enter]) / w_[leave];
            axpy(2 * wide_, -move, alpha_.data(), price_.data());
            if (!is_slack(out)) price_[out] = -move;
            if (!is_slack(out) && out >= wide_) at_upper_[out - wide_] = above;
            for (int c : tight_rows_) y_[c] += move * column(c)[leave];
            if (!tight_[leave]) y_[leave] += move;
            eliminate(leave, enter);
            if (is_slack(enter)) y_[slack_row(enter)] = 0.0;
            set_direction(enter);
            set_direction(out);
        }
        return false;
    }

    // Entering variable (−1: none) if basis position r, which violates its bound by `miss`, is moved to the bound: the first whose
    // reduced cost would change its sign. An n may move to its other bound instead, as long as the row stays violated, and the
    // search continues; these are the flips. Leaves row r of B^{-1} A in alpha.
    int dual_ratio_test(int r, double sign, double miss) {
        double* __restrict p = alpha_.data();
        double* __restrict q = alpha_.data() + wide_;
        double budget = 0.0;
        std::fill(p, p + wide_, 0.0);
        const auto add = [&](int i, double weight) {
            if (budget_ && i == m_ - 1) {
                budget = weight;
            } else if (weight != 0.0) {
                axpy(wide_, weight, row(i), p);
            }
        };
        for (int c : tight_rows_) add(c, column(c)[r]);
        if (!tight_[r]) add(r, 1.0);
        const double* __restrict e = row(m_ - 1);
        for (int j = 0; j < wide_; ++j) {
            const double both = budget * e[j];
            q[j] = both - p[j];
            p[j] = both + p[j];
        }
        const int n_moves = 2 * wide_;
        double* __restrict rate = rate_.data();
        double* __restrict score = score_.data();
        // n before p, for ties: with a slack budget, entering p would leave n at its bound to no effect.
        for (int k = 0; k < wide_; ++k) {
            rate[k] = sign * direction_[wide_ + k] * q[k];
            rate[wide_ + k] = sign * direction_[k] * p[k];
            score[k] = std::max(-direction_[wide_ + k] * price_[wide_ + k], 0.0);
            score[wide_ + k] = std::max(-direction_[k] * price_[k], 0.0);
        }
        int end = n_moves;
        for (int c : tight_rows_) {
            rate[end] = c == 0 ? 0.0 : sign * column(c)[r];
            score[end++] = std::max(y_[c], 0.0);
        }
        for (; end % 4 != 0; ++end) rate[end] = score[end] = 0.0;
        for (int k = 0; k < end; ++k) {  // no branch: a division by 0 gives −∞ for entries to skip
            const double counts = rate[k] > kPivotTol ? rate[k] : 0.0;
            score[k] = -(score[k] + 1e-300) / counts;
        }
        flips_.clear();
        for (;;) {
            const int k = largest(end, score);
            if (k < 0 || score[k] == -kInf) return -1;
            const int var = k < wide_ ? k + wide_ : k < n_moves ? k - wide_ : n_moves + tight_rows_[k - n_moves] - 1;
            miss -= rate[k] * upper_bound(var);
            if (!(miss > 0.0)) return var;
            flips_.push_back(var);
            score[k] = -kInf;
        }
    }

    // Moves the flips to their other bounds.
    void flip() {
        if (flips_.empty()) return;
        double* by = room_.data();
        std::fill(by, by + m_, 0.0);
        for (int var : flips_) {
            const int j = var - wide_;
            const double change = at_upper_[j] ? -base_[j] : base_[j];
            at_upper_[j] = !at_upper_[j];
            direction_[var] = -direction_[var];
            for (int i = 0; i < m_; ++i) by[i] += change * row(i)[j];
        }
        if (budget_) by[m_ - 1] = -by[m_ - 1];
        for (int i = 0; i < m_; ++i) {
            if (!tight_[i]) x_[i] += by[i];
        }
        for (int c : tight_rows_) axpy(tall_, by[c], column(c), x_.data());
    }

    // Basis position that blocks the entering variable first (−1: none), and the step. Two passes (Harris): the maximum step
    // with slightly relaxed bounds, then the largest pivot among the bounds reached by this step.
    int ratio_test(double sign, bool bland, double* step) {
        const double slack = bland ? 0.0 : kFeasTol;
        double* __restrict room = room_.data();
        double* __restrict size = size_.data();
        for (int i = 0; i < m_; ++i) {
            const double rate = sign * w_[i];
            room[i] = std::max(rate > 0.0 ? x_[i] : bound_[i] - x_[i], 0.0);
            size[i] = std::abs(rate);
        }
        double reach = kInf, per = 1.0;  // the limit is reach / per; a fraction saves divisions
        for (int i = 0; i < m_; ++i) {
            if (size[i] > kPivotTol && (room[i] + slack) * per < reach * size[i]) {
                reach = room[i] + slack;
                per = size[i];
            }
        }
        if (reach == kInf) return -1;
        const double limit = reach / per;
        int leave = -1;
        for (int i = 0; i < m_; ++i) {
            if (!(size[i] > kPivotTol) || room[i] > limit * size[i]) continue;
            if (leave < 0 || (bland ? head_[i] < head_[leave] : size[i] > size[leave])) leave = i;
        }
        if (leave >= 0) *step = room[leave] / size[leave];
        return leave;
    }

    void compute_delta() {
        for (int j = 0; j < n_; ++j) delta_[j] = at_upper_[j] ? -base_[j] : 0.0;
        std::fill(delta_.begin() + n_, delta_.end(), 0.0);
        for (int i = 0; i < m_; ++i) {
            const int var = head_[i];
            if (is_slack(var)) continue;
            if (var < wide_) {
                delta_[var] += std::max(x_[i], 0.0);
            } else {
                delta_[var - wide_] -= std::min(std::max(x_[i], 0.0), base_[var - wide_]);
            }
        }
    }

    double value() const {
        const double sum = dot(wide_, cost_.data(), delta_.data());
        return sum > 1e-13 ? sum : 0.0;
    }

    // Computes δ; true if it satisfies every row (for the objective, also stores the multipliers).
    BETTERSAFE_WIDE bool check(bool nearest) {
        compute_delta();
        if (!nearest) y_opt_ = y_;
        if (!(std::abs(dot(wide_, row(0), delta_.data())) <= kAcceptFeas)) return false;
        for (int i = 1; i < m_ - (budget_ ? 1 : 0); ++i) {
            if (!(dot(wide_, row(i), delta_.data()) <= kAcceptFeas)) return false;
        }
        if (!budget_) return true;
        double* distance = alpha_.data();
        for (int j = 0; j < wide_; ++j) distance[j] = std::abs(delta_[j]);
        return dot(wide_, row(m_ - 1), distance) <= limit_ + kAcceptFeas;
    }

    // Locks the variables that must not move for the objective to stay optimal; true if any other can move.
    BETTERSAFE_WIDE bool has_ties() {
        price(y_opt_, false);
        bool any = false;
        const auto visit = [&](int var, double reduced, bool fixed) {
            if (basic_[var]) return;
            locked_[var] = std::abs(reduced) > kTieTol;
            any = any || !(locked_[var] || fixed);
        };
        for (int j = 0; j < n_; ++j) {  // p and n of one entry may rise together, but to no effect
            visit(j, price_[j], basic_[wide_ + j]);
            visit(wide_ + j, price_[wide_ + j], base_[j] == 0.0 || (basic_[j] && !at_upper_[j]));
        }
        for (int i = 1; i < m_; ++i) visit(2 * wide_ + i - 1, y_opt_[i], false);
        return any;
    }

    // work = baseline + δ, without negative entries, with the free mass unchanged, and with the baseline's bits for entries that do
    // not move. False if the rounding error can't be absorbed.
    bool write() {
        double total = 0.0;
        int largest = -1;
        for (int f = 0; f < n_; ++f) {
            if (std::abs(delta_[f]) > kSnap) work_[f] = std::max(base_[f] + delta_[f], 0.0);
            if (work_[f] != base_[f] && (largest < 0 || work_[f] > work_[largest])) largest = f;
            total += work_[f];
        }
        if (largest < 0) return true;
        work_[largest] += mass_ - total;
        return work_[largest] >= 0.0;
    }

    // Duality gap of the written policy, in units of the objective's half-range.
    BETTERSAFE_WIDE double duality_gap() {
        double rounding = 1.0;
        for (int i = 1; i < m_; ++i) {
            y_opt_[i] = std::max(y_opt_[i], 0.0);
            rounding += y_opt_[i];
        }
        price(y_opt_, false);
        double bound = budget_ ? y_opt_[m_ - 1] * limit_ : 0.0;
        double most = 0.0;
        for (int j = 0; j < n_; ++j) {
            most = std::max(most, price_[j]);
            bound += base_[j] * std::max(price_[wide_ + j], 0.0);
        }
        bound += mass_ * most + 1e-15 * rounding;
        double reached = 0.0;
        for (int f = 0; f < n_; ++f) reached += cost_[f] * (work_[f] - base_[f]);
        return std::max(bound - reached, 0.0);
    }
};

}  // namespace

std::int64_t solve_programs(const Programs& programs, int threads) {
    const std::int64_t total = programs.n_programs, n_parts = std::clamp<std::int64_t>(total / 256, 1, threads);
    std::vector<std::int64_t> pivots(static_cast<std::size_t>(n_parts), 0);
    Team(n_parts, n_parts).run(n_parts, [&](std::int64_t part, int) {
        Simplex simplex;
        const std::int64_t begin = total * part / n_parts, end = total * (part + 1) / n_parts;
        for (std::int64_t x = begin; x < end; ++x) simplex.solve(programs, x);
        pivots[static_cast<std::size_t>(part)] = simplex.pivots;
    });
    return std::accumulate(pivots.begin(), pivots.end(), std::int64_t{0});
}

}  // namespace bettersafe
