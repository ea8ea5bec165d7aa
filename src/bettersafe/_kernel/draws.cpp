#include "draws.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "parallel.hpp"
#include "prior.hpp"
#include "values.hpp"

namespace bettersafe {
namespace {

constexpr std::int64_t kMaxProducts = 2000;
constexpr double kMaxRounds = 1e7;    // a discount of 0.999998 at a tolerance of 1e-9
constexpr double kUnderflow = 745.0;  // exp(−745) is the least double
constexpr double kNegligible = 80.0;  // exp(−80) = 2e-35, beside a total of order 1

// Bijection of 64 bits that mixes its argument well (splitmix64's finaliser)
inline std::uint64_t scramble(std::uint64_t z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// Layers of equal area under exp(−x²/2), for the ziggurat (Marsaglia and Tsang 2000; constants for 128 layers)
struct Layers {
    static constexpr int n = 128;
    static constexpr double start = 3.442619855899, area = 9.91256303526217e-3;
    double edge[n + 1], ratio[n];
    Layers() {
        double f = std::exp(-0.5 * start * start);
        edge[0] = area / f;
        edge[1] = start;
        edge[n] = 0.0;
        for (int i = 2; i < n; ++i) {
            edge[i] = std::sqrt(-2.0 * std::log(area / edge[i - 1] + f));
            f = std::exp(-0.5 * edge[i] * edge[i]);
        }
        for (int i = 0; i < n; ++i) ratio[i] = edge[i + 1] / edge[i];
    }
};
const Layers layers;

class Random {
public:
    explicit Random(std::uint64_t key) {
        for (std::uint64_t& s : state_) s = key = scramble(key);
    }
    // in (0, 1)
    double uniform() { return (static_cast<double>(next() >> 11) + 0.5) * 0x1.0p-53; }
    double exponential() { return -std::log(uniform()); }
    double normal() {
        for (;;) {
            const std::uint64_t bits = next();
            const int i = static_cast<int>(bits & (Layers::n - 1));
            const double u = static_cast<double>(static_cast<std::int64_t>(bits) >> 11) * 0x1.0p-52;  // in [−1, 1)
            if (std::abs(u) < layers.ratio[i]) return u * layers.edge[i];
            if (i == 0) return u < 0.0 ? -tail() : tail();
            const double x = u * layers.edge[i];
            const double outer = std::exp(-0.5 * (layers.edge[i] * layers.edge[i] - x * x));
            const double inner = std::exp(-0.5 * (layers.edge[i + 1] * layers.edge[i + 1] - x * x));
            if (outer + uniform() * (inner - outer) < 1.0) return x;
        }
    }
    // Marsaglia and Tsang's method; a shape a under 1 is that of a + 1 times U^(1/a), or 0 if that is under exp(−cut)
    double gamma(double shape, double cut) {
        if (shape >= 1.0) return gamma_from_one(shape);
        const double decay = exponential() / shape;
        return decay > cut ? 0.0 : std::exp(-decay) * gamma_from_one(shape + 1.0);
    }

private:
    std::uint64_t state_[4];

    static std::uint64_t rotate(std::uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
    // xoshiro256++ (Blackman and Vigna 2019)
    std::uint64_t next() {
        const std::uint64_t result = rotate(state_[0] + state_[3], 23) + state_[0];
        const std::uint64_t t = state_[1] << 17;
        state_[2] ^= state_[0];
        state_[3] ^= state_[1];
        state_[1] ^= state_[2];
        state_[0] ^= state_[3];
        state_[2] ^= t;
        state_[3] = rotate(state_[3], 45);
        return result;
    }
    double tail() {
        for (;;) {
            const double x = exponential() / Layers::start;
            if (2.0 * exponential() > x * x) return Layers::start + x;
        }
    }
    double gamma_from_one(double shape) {
        const double d = shape - 1.0 / 3.0, c = 1.0 / std::sqrt(9.0 * d);
        for (;;) {
            const double x = normal(), cube = 1.0 + c * x;
            if (cube <= 0.0) continue;
            const double v = cube * cube * cube, u = uniform(), square = x * x;
            if (u < 1.0 - 0.0331 * square * square) return d * v;
            if (std::log(u) < 0.5 * square + d * (1.0 - v + std::log(v))) return d * v;
        }
    }
};

// Outcomes with a successor, in rows by origin and by successor; shared by all draws
struct Layout {
    std::vector<std::int64_t> state, one_each;         // [K], [X+1]
    std::vector<std::int64_t> on, ptr, next;           // rows by origin
    std::vector<std::int64_t> back, back_ptr, origin;  // rows by successor
    std::vector<double> ones;

    explicit Layout(const DrawnProcesses& in)
        : state(in.n_outcomes), one_each(in.n_states + 1), back_ptr(in.n_states + 1, 0), ones(in.n_states, 1.0) {
        std::iota(one_each.begin(), one_each.end(), 0);
        for (std::int64_t x = 0; x < in.n_states; ++x) {
            ptr.push_back(static_cast<std::int64_t>(on.size()));
            for (std::int64_t o = in.outcome_ptr[x]; o < in.outcome_ptr[x + 1]; ++o) {
                state[o] = x;
                if (in.outcome_next[o] < 0) continue;
                on.push_back(o);
                next.push_back(in.outcome_next[o]);
                ++back_ptr[in.outcome_next[o] + 1];
            }
        }
        ptr.push_back(static_cast<std::int64_t>(on.size()));
        std::partial_sum(back_ptr.begin(), back_ptr.end(), back_ptr.begin());
        back.resize(on.size());
        origin.resize(on.size());
        std::vector<std::int64_t> place(back_ptr.begin(), back_ptr.end() - 1);
        for (const std::int64_t o : on) {
            const std::int64_t here = place[in.outcome_next[o]]++;
            back[here] = o;
            origin[here] = state[o];
        }
    }
};

class Worker {
public:
    Worker(const DrawnProcesses& in, const Layout& layout)
        : in_(in), layout_(layout), mixed_(in.n_policies * in.n_outcomes), reward_(in.n_policies * in.n_objectives * in.n_states),
          initial_(in.n_states), data_(layout.on.size()), value_(in.n_objectives * in.n_states), visits_(in.n_states),
          after_(in.n_objectives * in.n_outcomes), change_(in.n_outcomes) {
        std::int64_t most = 0;
        for (std::int64_t x = 0; x < in.n_states; ++x) most = std::max(most, in.outcome_ptr[x + 1] - in.outcome_ptr[x]);
        shape_.resize(most);
        mean_.resize(most);
    }

    void run(std::int64_t draw, double* out) {
        const std::uint64_t key = scramble(scramble(in_.seed) ^ static_cast<std::uint64_t>(draw));
        Random own(scramble(key));
        const double c_on = in_.concentration[pick(own.uniform(), in_.cumulative, in_.n_concentrations)];
        const double c_end = in_.end_concentration[pick(own.uniform(), in_.end_cumulative, in_.n_end_concentrations)];
        start(key);
        mix(key, c_on, c_end);
        solve_first();
        for (std::int64_t g = 1; g < in_.n_policies; ++g) gain(g, out + (g - 1) * in_.n_objectives);
    }

private:
    const DrawnProcesses& in_;
    const Layout& layout_;
    std::vector<double> mixed_;   // [G, K] q
    std::vector<double> reward_;  // [G, d, X] of policy 0; differences from it of the others
    std::vector<double> initial_, data_, value_, visits_, after_, change_, shape_, mean_;

    static std::int64_t pick(double u, const double* cumulative, std::int64_t n) {
        std::int64_t chosen = 0;
        while (chosen + 1 < n && u > cumulative[chosen]) ++chosen;
        return chosen;
    }

    void start(std::uint64_t key) {
        Random own(scramble(key ^ 0x5374617274ULL));
        double total = 0.0;
        for (std::int64_t x = 0; x < in_.n_states; ++x) {
            total += initial_[x] = in_.starts[x] > 0.0 ? own.gamma(in_.starts[x], kUnderflow) : 0.0;
        }
        const double scale = 1.0 / total;  // starts are counts, so at least one gamma is far from 0
        for (double& p : initial_) p *= scale;
    }

    void mix(std::uint64_t key, double c_on, double c_end) {
        std::fill(mixed_.begin(), mixed_.end(), 0.0);
        std::fill(reward_.begin(), reward_.end(), 0.0);
        for (std::int64_t x = 0; x < in_.n_states; ++x) {
            const std::int64_t begin = in_.outcome_ptr[x], width = in_.outcome_ptr[x + 1] - begin;
            for (std::int64_t pair = in_.state_ptr[x]; pair < in_.state_ptr[x + 1]; ++pair) {
                const std::uint64_t own = scramble(key ^ scramble(static_cast<std::uint64_t>(in_.pair_key[pair]) + 1));
                draw_row(Random(own), pair, x, begin, width, c_on, c_end);
                for (std::int64_t g = 0; g < in_.n_policies; ++g) {
                    const double w = in_.weight[g * in_.n_pairs + pair];
                    if (w == 0.0) continue;
                    double* to = mixed_.data() + g * in_.n_outcomes + begin;
                    for (std::int64_t i = 0; i < width; ++i) to[i] += w * shape_[i];
                }
                for (std::int64_t k = 0; k < in_.n_objectives; ++k) {
                    const std::int64_t at = k * in_.n_pairs + pair;
                    double r = in_.reward_mean[at];
                    if (in_.reward_noise[at] > 0.0) {
                        Random noise(scramble(own ^ scramble(~static_cast<std::uint64_t>(in_.objective_key[k]))));
                        r += in_.reward_noise[at] * noise.normal();
                    }
                    const double first = in_.weight[pair];
                    for (std::int64_t g = 0; g < in_.n_policies; ++g) {
                        const double w = in_.weight[g * in_.n_pairs + pair] - (g ? first : 0.0);
                        reward_[(g * in_.n_objectives + k) * in_.n_states + x] += w * r;
                    }
                }
            }
        }
    }

    // shape_ becomes a draw of p(·|pair): whether and how it ends, and the successor if not
    void draw_row(Random random, std::int64_t pair, std::int64_t x, std::int64_t begin, std::int64_t width, double c_on,
                  double c_end) {
        const std::int64_t* next = in_.outcome_next + begin;
        const auto [w_on, own_on] = strengths(c_on, in_.others[pair]);
        const auto [w_end, own_end] = strengths(c_end, in_.end_others[pair]);
        double going = w_end * in_.going[x];
        for (std::int64_t i = 0; i < width; ++i) {
            shape_[i] = (next[i] < 0 ? w_end : w_on) * in_.share[begin + i] + in_.extra[begin + i];
            if (next[i] >= 0) going += in_.extra[begin + i];
        }
        for (std::int64_t s = in_.count_ptr[pair]; s < in_.count_ptr[pair + 1]; ++s) {
            const std::int64_t i = in_.count_outcome[s] - begin;
            shape_[i] += (next[i] < 0 ? own_end : own_on) * in_.count[s];
            if (next[i] >= 0) going += own_end * in_.count[s];
        }
        double mass_on = 0.0, mass_end = 0.0;
        for (std::int64_t i = 0; i < width; ++i) (next[i] < 0 ? mass_end : mass_on) += shape_[i];
        std::copy(shape_.begin(), shape_.begin() + width, mean_.begin());
        const double cut_on = mass_on >= 1.0 ? kNegligible : kUnderflow;
        const double cut_end = mass_end + going >= 1.0 ? kNegligible : kUnderflow;
        double total_on = 0.0, total_end = 0.0;
        for (std::int64_t i = 0; i < width; ++i) {
            shape_[i] = random.gamma(shape_[i], next[i] < 0 ? cut_end : cut_on);
            (next[i] < 0 ? total_end : total_on) += shape_[i];
        }
        double on = mass_end > 0.0 ? random.gamma(going, cut_end) : 1.0;
        // gammas of tiny shapes may all underflow: then use the means
        if (total_on <= 0.0) total_on = stand_in(next, width, mass_on, false);
        if (total_end + on <= 0.0) {
            total_end = stand_in(next, width, mass_end, true);
            on = going;
        }
        const double each = 1.0 / (total_end + on), onward = total_on > 0.0 ? on * each / total_on : 0.0;
        for (std::int64_t i = 0; i < width; ++i) shape_[i] *= next[i] < 0 ? each : onward;
    }
    double stand_in(const std::int64_t* next, std::int64_t width, double mass, bool ends) {
        for (std::int64_t i = 0; i < width; ++i) {
            if ((next[i] < 0) == ends) shape_[i] = mean_[i];
        }
        return mass;
    }
    // (I − γM) v = rhs; if BiCGSTAB stalls, by v ← rhs + γMv, which converges if γ < 1 or every state reaches an end
    void solve(const std::vector<std::int64_t>& ptr, const std::vector<std::int64_t>& index, std::int64_t n_rhs,
               const double* rhs, double* v) {
        const PolicyMatrix<std::int64_t> matrix{in_.n_states, layout_.one_each.data(), layout_.ones.data(), ptr.data(),
                                                index.data(), data_.data(),            in_.discount};
        if (solve_values(matrix, n_rhs, rhs, v, in_.tol, kMaxProducts, 1).residual <= in_.tol) return;
        const double rounds = in_.discount < 1.0 ? std::floor(std::log(in_.tol) / std::log(std::max(in_.discount, 0.5))) + 1.0
                                                 : std::numeric_limits<double>::infinity();
        std::vector<double> next(in_.n_states);
        for (std::int64_t j = 0; j < n_rhs; ++j) {
            double* own = v + j * in_.n_states;
            std::fill(own, own + in_.n_states, 0.0);
            bool moves = true, finite = true;
            for (double round = 0.0; moves && finite && round < rounds; round += 1.0) {
                if (round >= kMaxRounds) throw std::runtime_error("the values of a drawn process were not found: the discount is 1, or too close to it.");
                moves = false;
                for (std::int64_t x = 0; x < in_.n_states; ++x) {
                    double sum = 0.0;
                    for (std::int64_t i = ptr[x]; i < ptr[x + 1]; ++i) sum += data_[i] * own[index[i]];
                    next[x] = rhs[j * in_.n_states + x] + in_.discount * sum;
                    moves = moves || next[x] != own[x];
                    finite = finite && std::isfinite(next[x]);
                }
                std::copy(next.begin(), next.end(), own);
            }
        }
    }

    // v of policy 0, and the value after every outcome
    void solve_first() {
        const std::int64_t d = in_.n_objectives;
        for (std::size_t i = 0; i < data_.size(); ++i) data_[i] = mixed_[layout_.on[i]];
        for (std::int64_t k = 0; k < d; ++k) {
            for (std::int64_t o = 0; o < in_.n_outcomes; ++o) {
                reward_[k * in_.n_states + layout_.state[o]] += mixed_[o] * in_.outcome_reward[k * in_.n_outcomes + o];
            }
        }
        std::copy(in_.value, in_.value + value_.size(), value_.begin());
        solve(layout_.ptr, layout_.next, d, reward_.data(), value_.data());
        for (std::int64_t k = 0; k < d; ++k) {
            for (std::int64_t o = 0; o < in_.n_outcomes; ++o) {
                const std::int64_t y = in_.outcome_next[o], at = k * in_.n_outcomes + o;
                after_[at] = in_.outcome_reward[at] + (y < 0 ? 0.0 : in_.discount * value_[k * in_.n_states + y]);
            }
        }
    }

    void gain(std::int64_t g, double* out) {
        const double* mixed = mixed_.data() + g * in_.n_outcomes;
        for (std::size_t i = 0; i < data_.size(); ++i) data_[i] = mixed[layout_.back[i]];
        std::copy(in_.visits + g * in_.n_states, in_.visits + (g + 1) * in_.n_states, visits_.begin());
        solve(layout_.back_ptr, layout_.origin, 1, initial_.data(), visits_.data());
        for (std::int64_t o = 0; o < in_.n_outcomes; ++o) change_[o] = visits_[layout_.state[o]] * (mixed[o] - mixed_[o]);
        for (std::int64_t k = 0; k < in_.n_objectives; ++k) {
            const double* after = after_.data() + k * in_.n_outcomes;
            const double* reward = reward_.data() + (g * in_.n_objectives + k) * in_.n_states;
            double sum = 0.0;
            for (std::int64_t o = 0; o < in_.n_outcomes; ++o) sum += change_[o] * after[o];
            for (std::int64_t x = 0; x < in_.n_states; ++x) sum += visits_[x] * reward[x];
            out[k] = sum;
        }
    }
};

}  // namespace

void drawn_gains(const DrawnProcesses& in, std::int64_t first, std::int64_t n_draws, int threads, double* out) {
    const Layout layout(in);
    Team team(threads, n_draws);
    std::vector<std::unique_ptr<Worker>> workers(static_cast<std::size_t>(team.size()));
    team.run(n_draws, [&](std::int64_t m, int worker) {
        auto& own = workers[static_cast<std::size_t>(worker)];
        if (!own) own = std::make_unique<Worker>(in, layout);
        own->run(first + m, out + m * (in.n_policies - 1) * in.n_objectives);
    });
}

void draw_gammas(std::int64_t n, const double* shape, std::uint64_t seed, double* out) {
    Random random(seed);
    for (std::int64_t i = 0; i < n; ++i) out[i] = random.gamma(shape[i], kUnderflow);
}

}  // namespace bettersafe
