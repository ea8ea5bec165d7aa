// Python bindings of the kernel. Arguments are checked here; the functions behind do not check them again. Scalars are
// read before arrays: converting them may run Python code, which could change an array.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <stdexcept>

#include "checks.hpp"
#include "counting.hpp"
#include "draws.hpp"
#include "estimators.hpp"
#include "mean_process.hpp"
#include "mixtures.hpp"
#include "programs.hpp"
#include "responses.hpp"
#include "values.hpp"

namespace nb = nanobind;
using namespace bettersafe;

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr std::int64_t kMostProducts = 1'000'000;
constexpr std::int64_t kMostEntries = 10'000'000;   // maximum of one program: pivots are counted in int
constexpr std::int64_t kMostObjectives = 1024;      // a counter takes half a megabyte per objective
constexpr double kLargestReward = 1e100;            // a sum of squares must fit a Wide
constexpr std::int64_t kFarthest = std::int64_t{1} << 62;  // maximum of draws and bits, which can be added to without overflow

// Programs

std::int64_t solve_programs_py(nb::handle ptr, nb::handle baseline, nb::handle objective, nb::handle error, nb::handle rows,
                               nb::handle epsilon, nb::handle basis, nb::handle at_upper, nb::handle policy, nb::handle gap,
                               nb::handle status, nb::handle threads) {
    const double budget = number("epsilon", epsilon, 0.0, kInfinite);
    const int n_threads = threads_of(threads);
    Arguments arguments;
    const auto starts = arguments.in<std::int64_t>("ptr", ptr, {kAny});
    const auto shares = arguments.in<double>("baseline", baseline, {kAny});
    const std::int64_t n = starts.size() - 1, n_entries = shares.size();
    const auto values = arguments.in<double>("objective", objective, {n_entries});
    const auto errors = arguments.in<double>("error", error, {n_entries});
    const auto table = arguments.in<double>("rows", rows, {kAny, n_entries});
    const std::int64_t n_rows = table.shape(0);
    const auto last_basis = arguments.out<std::int32_t>("basis", basis, {n, n_rows + 2});
    const auto last_upper = arguments.out<std::uint8_t>("at_upper", at_upper, {n_entries});
    const auto found = arguments.out<double>("policy", policy, {n_entries});
    const auto gaps = arguments.out<double>("gap", gap, {n});
    const auto statuses = arguments.out<std::int8_t>("status", status, {n});
    arguments.check_apart();
    check_rising(starts, n_entries);
    for (std::int64_t x = 0; x < n; ++x) {
        if (starts[x + 1] - starts[x] > kMostEntries) refuse("ptr gives a program more than " + text(kMostEntries) + " entries.");
    }
    if (n_rows > kMostEntries) refuse("rows must be at most " + text(kMostEntries) + "; got " + text(n_rows) + ".");
    for (const auto* array : {&shares, &values, &table}) check_finite(*array);
    for (const auto* array : {&shares, &errors}) check_not_negative(*array);
    const Programs programs{n, n_entries, n_rows, starts.data(), shares.data(), values.data(), errors.data(), table.data(),
                            budget, last_basis.data(), last_upper.data(), found.data(), gaps.data(),
                            statuses.data()};
    nb::gil_scoped_release release;
    return solve_programs(programs, n_threads);
}

// Mixtures

// (whether it was solved, level, share)
std::tuple<bool, double, double> solve_mixture_py(nb::handle gain, nb::handle value, nb::handle floor, nb::handle reach,
                                                  nb::handle basis, nb::handle weight, nb::handle multiplier) {
    const bool shares = truth("reach", reach);
    Arguments arguments;
    const auto gains = arguments.in<double>("gain", gain, {kAny, kAny});
    const std::int64_t n = gains.shape(0), d = gains.shape(1);
    const auto values = arguments.in<double>("value", value, {n});
    const auto floors = arguments.in<double>("floor", floor, {d});
    const auto last_basis = arguments.out<std::int64_t>("basis", basis, {d + 1});
    const auto weights = arguments.out<double>("weight", weight, {n});
    const auto multipliers = arguments.out<double>("multiplier", multiplier, {d});
    arguments.check_apart();
    if (n < 1 || n > kMostEntries || d > kMostObjectives)
        refuse("gain must have 1 to " + text(kMostEntries) + " rows and at most " + text(kMostObjectives) + " columns; got " + text(n) + " and " + text(d) + ".");
    for (const auto* array : {&gains, &values, &floors}) check_finite(*array);
    for (std::int64_t k = 0; k < d; ++k) {
        if (gains[k] != 0.0) refuse("gain must be 0 for the first policy; entry " + text(k) + " is " + text(gains[k]) + ".");
    }
    Mixture mixture{n, d, gains.data(), values.data(), floors.data(), shares, last_basis.data(), weights.data(), multipliers.data(), 0.0, 0.0};
    nb::gil_scoped_release release;
    const bool solved = solve_mixture(mixture);
    return {solved, mixture.level, mixture.share};
}

// Values

std::pair<double, std::int64_t> solve_values_py(nb::handle ptr, nb::handle weight, nb::handle indptr, nb::handle indices,
                                                nb::handle data, nb::handle discount, nb::handle rhs, nb::handle value,
                                                nb::handle tol, nb::handle max_products, nb::handle threads) {
    return with_index_type(indptr, [&](auto index) -> std::pair<double, std::int64_t> {
        using Index = decltype(index);
        const double aim = number("tol", tol, 0.0, 1.0);
        const std::int64_t most = whole("max_products", max_products, std::int64_t{0}, kMostProducts);
        const double gamma = discount_of(discount);
        const int n_threads = threads_of(threads);
        Arguments arguments;
        const auto starts = arguments.in<std::int64_t>("ptr", ptr, {kAny});
        const auto weights = arguments.in<double>("weight", weight, {kAny});
        const std::int64_t n_states = starts.size() - 1;
        const CsrRows<Index> rows(arguments, indptr, indices, data, weights.size());
        const auto right = arguments.in<double>("rhs", rhs, {kAny, n_states});
        const auto found = arguments.out<double>("value", value, {right.shape(0), n_states});
        arguments.check_apart();
        check_rising(starts, weights.size());
        rows.check_columns(n_states);
        const PolicyMatrix<Index> matrix{n_states,
                                         starts.data(),
                                         weights.data(),
                                         rows.indptr.data(),
                                         rows.indices.data(),
                                         rows.data.data(),
                                         gamma};
        nb::gil_scoped_release release;
        const SolveReport report = solve_values(matrix, right.shape(0), right.data(), found.data(), aim, most, n_threads);
        return {report.residual, report.products};
    });
}

void pair_values_py(nb::handle indptr, nb::handle indices, nb::handle data, nb::handle discount, nb::handle reward, nb::handle v,
                    nb::handle q, nb::handle threads) {
    with_index_type(indptr, [&](auto index) {
        using Index = decltype(index);
        const int n_threads = threads_of(threads);
        Arguments arguments;
        const CsrRows<Index> rows(arguments, indptr, indices, data, kAny);
        const auto discounts = arguments.in<double>("discount", discount, {kAny});
        const std::int64_t n_pairs = rows.indptr.size() - 1, n = discounts.size();
        const auto rewards = arguments.in<double>("reward", reward, {n, n_pairs});
        const auto values = arguments.in<double>("v", v, {n, kAny});
        const auto found = arguments.out<double>("q", q, {n, n_pairs});
        arguments.check_apart();
        rows.check_columns(values.shape(1));
        const PairRows<Index> pairs{n_pairs, values.shape(1), rows.indptr.data(), rows.indices.data(), rows.data.data()};
        nb::gil_scoped_release release;
        pair_values(pairs, n, discounts.data(), rewards.data(), values.data(), found.data(), n_threads);
    });
}

// Responses

std::int64_t best_response_py(nb::handle ptr, nb::handle indptr, nb::handle indices, nb::handle data, nb::handle discount, nb::handle initial,
                              nb::handle baseline, nb::handle error, nb::handle epsilon, nb::handle reward, nb::handle elsewhere,
                              nb::handle policy, nb::handle value, nb::handle visits, nb::handle kept, nb::handle rough, nb::handle tol,
                              nb::handle accepted, nb::handle rounding, nb::handle max_products, nb::handle max_rounds, nb::handle threads) {
    return with_index_type(indptr, [&](auto index) -> std::int64_t {
        using Index = decltype(index);
        const double gamma = discount_of(discount), budget = number("epsilon", epsilon, 0.0, kInfinite);
        const Accuracy accuracy{number("rough", rough, 0.0, 1.0),
                                number("tol", tol, 0.0, 1.0),
                                number("accepted", accepted, 0.0, 1.0),
                                number("rounding", rounding, 0.0, 1.0),
                                whole("max_products", max_products, std::int64_t{0}, kMostProducts),
                                whole("max_rounds", max_rounds, std::int64_t{1}, kMostProducts)};
        const int n_threads = threads_of(threads);
        Arguments arguments;
        const auto starts = arguments.in<std::int64_t>("ptr", ptr, {kAny});
        const auto shares = arguments.in<double>("baseline", baseline, {kAny});
        const std::int64_t n = starts.size() - 1, n_pairs = shares.size();
        const CsrRows<Index> rows(arguments, indptr, indices, data, n_pairs);
        const auto first = arguments.in<double>("initial", initial, {n});
        const auto errors = arguments.in<double>("error", error, {n_pairs});
        const auto rewards = arguments.in<double>("reward", reward, {n_pairs});
        const auto others = arguments.in<double>("elsewhere", elsewhere, {n});
        const auto found = arguments.out<double>("policy", policy, {n_pairs});
        const auto values = arguments.out<double>("value", value, {n});
        const auto counts = arguments.out<double>("visits", visits, {n});
        const auto kept_states = arguments.out<std::uint8_t>("kept", kept, {n});
        arguments.check_apart();
        check_rising(starts, n_pairs);
        for (std::int64_t x = 0; x < n; ++x) {
            if (starts[x + 1] - starts[x] > kMostEntries) refuse("ptr gives a state more than " + text(kMostEntries) + " pairs.");
        }
        rows.check_columns(n);
        check_finite(shares);
        for (const auto* array : {&shares, &errors}) check_not_negative(*array);
        const Response<Index> response{n,
                                       starts.data(),
                                       {n_pairs, n, rows.indptr.data(), rows.indices.data(), rows.data.data()},
                                       gamma,
                                       first.data(),
                                       shares.data(),
                                       errors.data(),
                                       budget,
                                       rewards.data(),
                                       others.data(),
                                       found.data(),
                                       values.data(),
                                       counts.data(),
                                       kept_states.data()};
        nb::gil_scoped_release release;
        return best_response(response, accuracy, n_threads);
    });
}

// Calls change estimators and counters, and release the GIL: only one call at a time is allowed.
template <typename T>
struct Exclusive : T {
    using T::T;
    bool busy = false;
};

class Turn {
public:
    explicit Turn(bool& busy) : busy_(busy) {
        if (busy_) throw std::runtime_error("this object is in use by another thread.");
        busy_ = true;
    }
    ~Turn() { busy_ = false; }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

private:
    bool& busy_;
};

Array<const double> discounts_of(Arguments& arguments, nb::handle discount) {
    auto found = arguments.in<double>("discount", discount, {kAny});
    if (found.size() < 1 || found.size() > kMostObjectives)
        refuse("discount must have 1 to " + text(kMostObjectives) + " entries; got " + text(found.size()) + ".");
    for (std::int64_t k = 0; k < found.size(); ++k) {
        if (!(found[k] >= 0.0 && found[k] <= 1.0)) refuse("discount must be in [0, 1]; got " + text(found[k]) + ".");
    }
    return found;
}

// Estimators

using EstimatesObject = Exclusive<Estimates>;

void make_estimates(EstimatesObject* self, nb::handle discount, nb::handle has_model) {
    Arguments arguments;
    const auto found = discounts_of(arguments, discount);
    new (self) EstimatesObject(std::vector<double>(found.data(), found.data() + found.size()), truth("has_model", has_model));
}

// Raises unless every trajectory has at least one row.
void check_trajectories(const Array<const std::int64_t>& ptr, std::int64_t n_rows, std::int64_t longest) {
    check_rising(ptr, n_rows);
    std::int64_t least = std::numeric_limits<std::int64_t>::max(), most = 0;
    for (std::int64_t i = 0; i + 1 < ptr.size(); ++i) {
        least = std::min(least, ptr[i + 1] - ptr[i]);
        most = std::max(most, ptr[i + 1] - ptr[i]);
    }
    if (least < 1) refuse("ptr must rise: every trajectory has at least one row.");
    if (most > longest) refuse("ptr has a trajectory of " + text(most) + " rows; weigh() saw none of more than " + text(longest) + ".");
}

void weigh_py(EstimatesObject& self, nb::handle ptr, nb::handle log_ratio, nb::handle log_weight) {
    const Turn turn(self.busy);
    if (self.stage() != Estimates::Stage::kWeigh) refuse("weigh() must not follow average().");
    Arguments arguments;
    const auto starts = arguments.in<std::int64_t>("ptr", ptr, {kAny});
    const auto ratios = arguments.in<double>("log_ratio", log_ratio, {kAny});
    const auto found = arguments.out<double>("log_weight", log_weight, {starts.size() - 1});
    arguments.check_apart();
    check_trajectories(starts, ratios.size(), ratios.size());
    check_below_infinity(ratios);
    Trajectories in{};
    in.n = starts.size() - 1;
    in.ptr = starts.data();
    in.log_ratio = ratios.data();
    nb::gil_scoped_release release;
    self.weigh(in, found.data());
}

template <Estimates::Stage stage>
void make_terms(EstimatesObject& self, nb::handle first, nb::handle ptr, nb::handle log_ratio, nb::handle reward, nb::handle v,
                nb::handle q, nb::handle tail, nb::handle terms) {
    const Turn turn(self.busy);
    if (stage == Estimates::Stage::kAverage && self.stage() == Estimates::Stage::kFinish) refuse("average() must not follow finish().");
    if (stage == Estimates::Stage::kFinish && self.stage() == Estimates::Stage::kWeigh) refuse("finish() must follow average().");
    const std::int64_t d = self.n_objectives(), all = self.n_trajectories();
    const std::int64_t before = whole("first", first, std::int64_t{0}, all);
    Arguments arguments;
    const auto starts = arguments.in<std::int64_t>("ptr", ptr, {kAny});
    const auto ratios = arguments.in<double>("log_ratio", log_ratio, {kAny});
    const std::int64_t n = starts.size() - 1, n_rows = ratios.size();
    const auto rewards = arguments.in<double>("reward", reward, {n_rows, d});
    Trajectories in{n, before, starts.data(), ratios.data(), rewards.data(), nullptr, nullptr, nullptr};
    std::vector<Array<const double>> model;
    if (self.has_model()) {
        model.push_back(arguments.in<double>("v", v, {n_rows, d}));
        model.push_back(arguments.in<double>("q", q, {n_rows, d}));
        model.push_back(arguments.in<double>("tail", tail, {n, d}));
        in.v = model[0].data();
        in.q = model[1].data();
        in.tail = model[2].data();
    }
    const auto found = arguments.out<double>("terms", terms, {Estimates::n_estimators(), all, d});
    arguments.check_apart();
    check_trajectories(starts, n_rows, self.longest());
    if (n > all - before) refuse("ptr has " + text(n) + " trajectories after " + text(before) + "; weigh() saw " + text(all) + ".");
    nb::gil_scoped_release release;
    stage == Estimates::Stage::kAverage ? self.average(in, found.data()) : self.finish(in, found.data());
}

// Draws

void drawn_gains_py(nb::handle state_ptr, nb::handle pair_key, nb::handle objective_key, nb::handle outcome_ptr,
                    nb::handle outcome_next, nb::handle outcome_reward, nb::handle count_ptr, nb::handle count_outcome,
                    nb::handle count, nb::handle share, nb::handle going, nb::handle others, nb::handle end_others, nb::handle extra,
                    nb::handle concentration, nb::handle cumulative, nb::handle end_concentration, nb::handle end_cumulative,
                    nb::handle reward_mean, nb::handle reward_noise, nb::handle weight, nb::handle starts, nb::handle value,
                    nb::handle visits, nb::handle discount, nb::handle tol, nb::handle seed, nb::handle first, nb::handle threads,
                    nb::handle out) {
    DrawnProcesses in{};
    in.discount = discount_of(discount);
    in.tol = number("tol", tol, std::numeric_limits<double>::min(), 1.0);
    in.seed = whole<std::uint64_t>("seed", seed, 0, std::numeric_limits<std::uint64_t>::max());
    const std::int64_t first_draw = whole("first", first, std::int64_t{0}, kFarthest);
    const int n_threads = threads_of(threads);
    Arguments arguments;
    const auto integers = [&](const char* name, nb::handle given, std::int64_t size) { return arguments.in<std::int64_t>(name, given, {size}); };
    const auto doubles = [&](const char* name, nb::handle given, Shape shape) {
        return arguments.in<double>(name, given, shape);
    };
    const auto state_start = integers("state_ptr", state_ptr, kAny);
    const auto key = integers("pair_key", pair_key, kAny);
    const auto objective = integers("objective_key", objective_key, kAny);
    const std::int64_t n = state_start.size() - 1, n_pairs = key.size(), d = objective.size();
    const auto outcome_start = integers("outcome_ptr", outcome_ptr, n + 1);
    const auto next = integers("outcome_next", outcome_next, kAny);
    const std::int64_t n_outcomes = next.size();
    const auto outcome_pays = doubles("outcome_reward", outcome_reward, {d, n_outcomes});
    const auto count_start = integers("count_ptr", count_ptr, n_pairs + 1);
    const auto counted = integers("count_outcome", count_outcome, kAny);
    const auto counts = doubles("count", count, {counted.size()});
    const auto shares = doubles("share", share, {n_outcomes});
    const auto on = doubles("going", going, {n});
    const auto other = doubles("others", others, {n_pairs});
    const auto end_other = doubles("end_others", end_others, {n_pairs});
    const auto more = doubles("extra", extra, {n_outcomes});
    const auto strength = doubles("concentration", concentration, {kAny});
    const auto chance = doubles("cumulative", cumulative, {strength.size()});
    const auto end_strength = doubles("end_concentration", end_concentration, {kAny});
    const auto end_chance = doubles("end_cumulative", end_cumulative, {end_strength.size()});
    const auto mean = doubles("reward_mean", reward_mean, {d, n_pairs});
    const auto noise = doubles("reward_noise", reward_noise, {d, n_pairs});
    const auto weights = doubles("weight", weight, {kAny, n_pairs});
    const std::int64_t n_policies = weights.shape(0);
    const auto starting = doubles("starts", starts, {n});
    const auto value_guess = doubles("value", value, {d, n});
    const auto visits_guess = doubles("visits", visits, {n_policies, n});
    if (n_policies < 1) refuse("weight must have at least one row, the first policy.");
    const auto gains = arguments.out<double>("out", out, {kAny, n_policies - 1, d});
    arguments.check_apart();
    for (const auto* array : {&strength, &end_strength}) {
        if (array->size() < 1) refuse(array->name() + " must have at least one entry.");
    }
    check_rising(state_start, n_pairs);
    check_rising(outcome_start, n_outcomes);
    check_rising(count_start, counted.size());
    check_within(next, -1, n);
    for (std::int64_t x = 0; x < n; ++x) {  // outcomes of a pair must be of its own state
        check_within(counted, outcome_start[x], outcome_start[x + 1], count_start[state_start[x]], count_start[state_start[x + 1]]);
    }
    for (const auto* array : {&outcome_pays, &counts, &shares, &on, &other, &end_other, &more, &strength, &chance, &end_strength,
                              &end_chance, &mean, &noise, &weights, &starting})
        check_finite(*array);
    for (const auto* array : {&counts, &shares, &on, &more, &strength, &end_strength, &noise, &starting}) check_not_negative(*array);
    bool begins = false;
    for (std::int64_t x = 0; x < n; ++x) begins |= starting[x] > 0.0;
    if (!begins) refuse("starts must be above 0 in at least one state.");
    in.n_states = n;
    in.n_pairs = n_pairs;
    in.n_outcomes = n_outcomes;
    in.n_concentrations = strength.size();
    in.n_end_concentrations = end_strength.size();
    in.n_policies = n_policies;
    in.n_objectives = d;
    in.state_ptr = state_start.data();
    in.pair_key = key.data();
    in.objective_key = objective.data();
    in.outcome_ptr = outcome_start.data();
    in.outcome_next = next.data();
    in.outcome_reward = outcome_pays.data();
    in.count_ptr = count_start.data();
    in.count_outcome = counted.data();
    in.count = counts.data();
    in.share = shares.data();
    in.going = on.data();
    in.others = other.data();
    in.end_others = end_other.data();
    in.extra = more.data();
    in.concentration = strength.data();
    in.cumulative = chance.data();
    in.end_concentration = end_strength.data();
    in.end_cumulative = end_chance.data();
    in.reward_mean = mean.data();
    in.reward_noise = noise.data();
    in.weight = weights.data();
    in.starts = starting.data();
    in.value = value_guess.data();
    in.visits = visits_guess.data();
    nb::gil_scoped_release release;
    drawn_gains(in, first_draw, gains.shape(0), n_threads, gains.data());
}

void draw_gammas_py(nb::handle shape, nb::handle seed, nb::handle out) {
    const auto key = whole<std::uint64_t>("seed", seed, 0, std::numeric_limits<std::uint64_t>::max());
    Arguments arguments;
    const auto shapes = arguments.in<double>("shape", shape, {kAny});
    const auto found = arguments.out<double>("out", out, {shapes.size()});
    arguments.check_apart();
    check_finite(shapes);
    check_not_negative(shapes);
    draw_gammas(shapes.size(), shapes.data(), key, found.data());
}

// Counting

using CounterObject = Exclusive<EpisodeCounter>;

void make_counter(CounterObject* self, nb::handle discount, nb::handle cost, nb::handle step, nb::handle next, nb::handle terminated,
                  nb::handle truncated, nb::handle prob, nb::handle largest, nb::handle with_marks) {
    Arguments arguments;
    const auto discounts = discounts_of(arguments, discount);
    const auto costs = arguments.in<std::uint8_t>("cost", cost, {discounts.size()});
    const Columns columns{truth("step", step), truth("next", next), truth("terminated", terminated), truth("truncated", truncated),
                          truth("prob", prob)};
    new (self) CounterObject(std::vector<double>(discounts.data(), discounts.data() + discounts.size()),
                             std::vector<bool>(costs.data(), costs.data() + costs.size()), columns,
                             number("largest", largest, 0.0, kLargestReward), truth("with_marks", with_marks));
}

// Bitmap in the bit order of Arrow, with n bits to read. If it may be empty, an empty one has all bits set.
Bitmap bitmap(Arguments& arguments, const char* name, nb::handle bits, std::int64_t offset, std::int64_t n, bool may_be_empty) {
    const auto bytes = arguments.in<std::uint8_t>(name, bits, {kAny});
    if (offset < 0 || offset > kFarthest) refuse("offset must be from 0 to " + text(kFarthest) + "; got " + text(offset) + ".");
    if (bytes.size() == 0 && may_be_empty) return {nullptr, 0};
    if (n > 0 && (offset + n - 1) / 8 >= bytes.size())
        refuse(std::string(name) + " must have " + text(offset + n) + " bits; got " + text(bytes.size()) + " bytes.");
    return {bytes.data(), offset};
}

bool add_rows_py(CounterObject& self, nb::handle episode, nb::handle step, nb::handle state, nb::handle action, nb::handle next,
                 nb::handle has_next, nb::handle terminated, nb::handle truncated, nb::handle prob, nb::handle reward,
                 nb::handle offset) {
    const Turn turn(self.busy);
    if (self.closed()) refuse("add() must not follow close().");
    const Columns columns = self.columns();
    Arguments arguments;
    const auto episodes = arguments.in<std::int64_t>("episode", episode, {kAny});
    const std::int64_t n = episodes.size();
    const auto steps = arguments.in<std::int64_t>("step", step, {columns.step ? n : kAny});  // columns that are not in `columns` are not read
    const auto states = arguments.in<std::int64_t>("state", state, {n});
    const auto actions = arguments.in<std::int64_t>("action", action, {n});
    const auto following = arguments.in<std::int64_t>("next", next, {columns.next ? n : kAny});
    const auto probs = arguments.in<double>("prob", prob, {columns.prob ? n : kAny});
    const auto offsets = arguments.in<std::int64_t>("offset", offset, {3});
    Rows rows{};
    rows.n = n;
    rows.episode = episodes.data();
    rows.step = steps.data();
    rows.state = states.data();
    rows.action = actions.data();
    rows.next = following.data();
    rows.has_next = bitmap(arguments, "has_next", has_next, offsets[0], columns.next ? n : 0, true);
    rows.terminated = bitmap(arguments, "terminated", terminated, offsets[1], columns.terminated ? n : 0, false);
    rows.truncated = bitmap(arguments, "truncated", truncated, offsets[2], columns.truncated ? n : 0, false);
    rows.prob = probs.data();
    if (!nb::isinstance<nb::list>(reward) || nb::len(reward) != static_cast<std::size_t>(self.n_objectives()))
        refuse("reward must be a list of " + text(self.n_objectives()) + " columns.");
    std::vector<Array<const double>> rewards;
    for (const nb::handle column : nb::borrow<nb::list>(reward)) {
        rewards.push_back(arguments.in<double>("reward", column, {n}));
        rows.reward.push_back(rewards.back().data());
    }
    nb::gil_scoped_release release;
    return self.add(rows);
}

bool close_counter_py(CounterObject& self) {
    const Turn turn(self.busy);
    if (self.closed()) refuse("close() must not be called twice.");
    return self.close();
}

void check_closed(const EpisodeCounter& self) {
    if (!self.closed()) refuse("close() must come first, and be True.");
}

void write_counts_py(CounterObject& self, nb::handle state, nb::handle initial, nb::handle action, nb::handle pair, nb::handle prob,
                     nb::handle reward_range, nb::handle return_part, nb::handle return_range) {
    const Turn turn(self.busy);
    check_closed(self);
    const std::int64_t d = self.n_objectives(), n_pairs = self.n_pairs();
    Arguments arguments;
    const auto states = arguments.out<std::int64_t>("state", state, {self.n_states()});
    const auto starts = arguments.out<std::int64_t>("initial", initial, {self.n_states()});
    const auto actions = arguments.out<std::int64_t>("action", action, {self.n_actions()});
    const auto pairs = arguments.out<std::int64_t>("pair", pair, {2, n_pairs});
    const auto probs = arguments.out<double>("prob", prob, {2, self.columns().prob ? n_pairs : kAny});
    const auto rewards = arguments.out<double>("reward_range", reward_range, {2, d});
    const auto parts = arguments.out<double>("return_part", return_part, {2 * d, Wide::kLimbs});
    const auto returns = arguments.out<double>("return_range", return_range, {2, d});
    arguments.check_apart();
    self.write({states.data(), starts.data(), actions.data(), pairs.data(), probs.data(), rewards.data(), parts.data(), returns.data()});
}

void count_outcomes_py(CounterObject& self, nb::handle successors, nb::handle ended) {
    const Turn turn(self.busy);
    check_closed(self);
    Arguments arguments;
    const auto found = arguments.out<std::int64_t>("successors", successors, {self.n_pairs()});
    const auto ends = arguments.out<std::int64_t>("ended", ended, {self.n_pairs()});
    arguments.check_apart();
    self.count_outcomes(found.data(), ends.data());
}

void write_outcomes_py(CounterObject& self, nb::handle place, nb::handle rank, nb::handle ptr, nb::handle state, nb::handle count) {
    const Turn turn(self.busy);
    check_closed(self);
    Arguments arguments;
    const auto places = arguments.in<std::int64_t>("place", place, {self.n_pairs()});
    const auto ranks = arguments.in<std::int64_t>("rank", rank, {self.n_states()});
    const auto starts = arguments.in<std::int64_t>("ptr", ptr, {kAny});
    const auto states = arguments.out<std::int64_t>("state", state, {kAny});
    const auto counts = arguments.out<std::int64_t>("count", count, {states.size()});
    arguments.check_apart();
    check_rising(starts, states.size());
    check_within(places, -1, starts.size() - 1);
    nb::gil_scoped_release release;
    self.write_outcomes(places.data(), ranks.data(), starts.size() - 1, starts.data(), states.data(), counts.data());
}

void write_sums_py(CounterObject& self, nb::handle stream, nb::handle order, nb::handle part) {
    const Turn turn(self.busy);
    check_closed(self);
    const auto asked = static_cast<int>(whole("stream", stream, std::int64_t{0}, 2 * self.n_objectives() - 1));
    Arguments arguments;
    const auto pairs = arguments.in<std::int64_t>("order", order, {kAny});
    const auto parts = arguments.out<double>("part", part, {pairs.size(), self.n_parts()});
    arguments.check_apart();
    check_within(pairs, 0, self.n_pairs());
    self.write_sums(asked, pairs.size(), pairs.data(), parts.data());
}

// Marks since the last call, [n, 2].
template <std::vector<EpisodeCounter::Mark> EpisodeCounter::*marks>
nb::ndarray<nb::numpy, std::int64_t> take_marks(CounterObject& self) {
    const Turn turn(self.busy);
    auto* taken = new std::vector<EpisodeCounter::Mark>(std::move(self.*marks));
    (self.*marks).clear();
    nb::capsule owner(taken, [](void* held) noexcept { delete static_cast<std::vector<EpisodeCounter::Mark>*>(held); });
    return nb::ndarray<nb::numpy, std::int64_t>(reinterpret_cast<std::int64_t*>(taken->data()), {taken->size(), 2}, owner);
}

// The mean process

// Counts of pairs, the common arguments of the functions of mean_process.hpp.
template <typename Index>
struct OutcomeArrays {
    Array<const std::int64_t> ptr;
    Array<const double> visits;
    CsrRows<Index> rows;
    std::int64_t n_states, n_pairs;

    OutcomeArrays(Arguments& arguments, nb::handle ptr_, nb::handle indptr, nb::handle indices, nb::handle data, nb::handle visits_)
        : ptr(arguments.in<std::int64_t>("ptr", ptr_, {kAny})),
          visits(arguments.in<double>("visits", visits_, {kAny})),
          rows(arguments, indptr, indices, data, visits.size()),
          n_states(ptr.size() - 1),
          n_pairs(visits.size()) {
        check_rising(ptr, n_pairs);
        rows.check_columns(n_states);
    }
    CountedOutcomes<Index> outcomes(const std::uint8_t* flag) const {
        return {n_states, ptr.data(), rows.indptr.data(), rows.indices.data(), rows.data.data(), visits.data(), flag};
    }
};

void mark_outcomes_py(nb::handle ptr, nb::handle indptr, nb::handle indices, nb::handle data, nb::handle visits, nb::handle acted,
                      nb::handle flag, nb::handle distinct, nb::handle on, nb::handle threads) {
    with_index_type(indptr, [&](auto index) {
        const int n_threads = threads_of(threads);
        Arguments arguments;
        const OutcomeArrays<decltype(index)> arrays(arguments, ptr, indptr, indices, data, visits);
        const auto states = arguments.in<std::uint8_t>("acted", acted, {arrays.n_states});
        const auto flags = arguments.out<std::uint8_t>("flag", flag, {arrays.rows.indices.size()});
        const auto numbers = arguments.out<double>("distinct", distinct, {arrays.n_states});
        const auto counts = arguments.out<double>("on", on, {arrays.n_pairs});
        arguments.check_apart();
        nb::gil_scoped_release release;
        mark_outcomes(arrays.outcomes(nullptr), states.data(), flags.data(), numbers.data(), counts.data(), n_threads);
    });
}

double log_rising_py(nb::handle alpha, nb::handle count, nb::handle threads) {
    const int n_threads = threads_of(threads);
    Arguments arguments;
    const auto alphas = arguments.in<double>("alpha", alpha, {kAny});
    const auto counts = arguments.in<double>("count", count, {alphas.size()});
    nb::gil_scoped_release release;
    return log_rising(alphas.size(), alphas.data(), counts.data(), n_threads);
}

void successor_likelihood_py(nb::handle ptr, nb::handle indptr, nb::handle indices, nb::handle data, nb::handle visits, nb::handle flag,
                             nb::handle even, nb::handle others, nb::handle grid, nb::handle out, nb::handle threads) {
    with_index_type(indptr, [&](auto index) {
        const int n_threads = threads_of(threads);
        Arguments arguments;
        const OutcomeArrays<decltype(index)> arrays(arguments, ptr, indptr, indices, data, visits);
        const auto flags = arguments.in<std::uint8_t>("flag", flag, {arrays.rows.indices.size()});
        const auto evens = arguments.in<double>("even", even, {arrays.n_states});
        const auto other = arguments.in<double>("others", others, {arrays.n_pairs});
        const auto concentrations = arguments.in<double>("grid", grid, {kAny});
        const auto found = arguments.out<double>("out", out, {concentrations.size()});
        arguments.check_apart();
        nb::gil_scoped_release release;
        successor_likelihood(arrays.outcomes(flags.data()), evens.data(), other.data(), concentrations.size(), concentrations.data(),
                             found.data(), n_threads);
    });
}

void worst_outcomes_py(nb::handle ptr, nb::handle indptr, nb::handle indices, nb::handle data, nb::handle visits, nb::handle flag,
                       nb::handle ended, nb::handle value, nb::handle worst, nb::handle threads) {
    with_index_type(indptr, [&](auto index) {
        const int n_threads = threads_of(threads);
        Arguments arguments;
        const OutcomeArrays<decltype(index)> arrays(arguments, ptr, indptr, indices, data, visits);
        const auto flags = arguments.in<std::uint8_t>("flag", flag, {arrays.rows.indices.size()});
        const auto ends = arguments.in<std::uint8_t>("ended", ended, {arrays.n_states});
        const auto values = arguments.in<double>("value", value, {arrays.n_states});
        const auto found = arguments.out<std::int64_t>("worst", worst, {arrays.n_states});
        arguments.check_apart();
        nb::gil_scoped_release release;
        worst_outcomes(arrays.outcomes(flags.data()), ends.data(), values.data(), found.data(), n_threads);
    });
}

double solve_mean_py(nb::handle ptr, nb::handle indptr, nb::handle indices, nb::handle data, nb::handle visits, nb::handle flag,
                     nb::handle weight, nb::handle even, nb::handle extra, nb::handle worst, nb::handle discount, nb::handle transposed,
                     nb::handle rhs, nb::handle value, nb::handle tol, nb::handle max_products, nb::handle threads) {
    return with_index_type(indptr, [&](auto index) {
        using Index = decltype(index);
        const double aim = number("tol", tol, 0.0, 1.0);
        const std::int64_t most = whole("max_products", max_products, std::int64_t{0}, kMostProducts);
        const double gamma = discount_of(discount);
        const bool columns = truth("transposed", transposed);
        const int n_threads = threads_of(threads);
        Arguments arguments;
        const OutcomeArrays<Index> arrays(arguments, ptr, indptr, indices, data, visits);
        const std::int64_t n = arrays.n_states;
        const auto flags = arguments.in<std::uint8_t>("flag", flag, {arrays.rows.indices.size()});
        const auto weights = arguments.in<double>("weight", weight, {arrays.n_pairs});
        const auto evens = arguments.in<double>("even", even, {n});
        const auto extras = arguments.in<double>("extra", extra, {n});
        const auto worsts = arguments.in<std::int64_t>("worst", worst, {n});
        const auto right = arguments.in<double>("rhs", rhs, {kAny, n});
        const auto found = arguments.out<double>("value", value, {right.shape(0), n});
        arguments.check_apart();
        check_within(worsts, -2, n);
        for (const auto* array : {&weights, &evens, &extras, &right}) check_finite(*array);
        const MeanMatrix<Index> matrix{arrays.outcomes(flags.data()), weights.data(), evens.data(),
                                       extras.data(),                 worsts.data(),  gamma};
        nb::gil_scoped_release release;
        return solve_mean(matrix, columns, right.shape(0), right.data(), found.data(), aim, most, n_threads);
    });
}

void gains_covariance_py(nb::handle ptr, nb::handle indptr, nb::handle indices, nb::handle data, nb::handle visits, nb::handle flag,
                         nb::handle discount, nb::handle value, nb::handle state_visits, nb::handle policy, nb::handle moved,
                         nb::handle untried, nb::handle on, nb::handle ended, nb::handle share_on, nb::handle even, nb::handle counted,
                         nb::handle share_end, nb::handle going, nb::handle others, nb::handle end_others, nb::handle hierarchical,
                         nb::handle pessimism, nb::handle worst, nb::handle on_concentration, nb::handle on_weight,
                         nb::handle end_concentration, nb::handle end_weight, nb::handle out, nb::handle threads) {
    with_index_type(indptr, [&](auto index) {
        using Index = decltype(index);
        Gains<Index> gains{};
        gains.counted = number("counted", counted, 0.0, 1.0);
        gains.hierarchical = truth("hierarchical", hierarchical);
        gains.pessimism = number("pessimism", pessimism, 0.0, kInfinite);
        const int n_threads = threads_of(threads);
        Arguments arguments;
        const OutcomeArrays<Index> arrays(arguments, ptr, indptr, indices, data, visits);
        const std::int64_t n_states = arrays.n_states, n_pairs = arrays.n_pairs;
        const auto doubles = [&](const char* name, nb::handle given, Shape shape) {
            return arguments.in<double>(name, given, shape);
        };
        const auto flags = arguments.in<std::uint8_t>("flag", flag, {arrays.rows.indices.size()});
        const auto discounts = discounts_of(arguments, discount);
        const std::int64_t n = discounts.size();
        const auto values = doubles("value", value, {n_states, n, 2});
        const auto nu = doubles("state_visits", state_visits, {n_states, n, 2});
        const auto pi = doubles("policy", policy, {n_pairs});
        const auto change = doubles("moved", moved, {n_pairs});
        const auto rest = doubles("untried", untried, {n_states, 3});
        const auto went_on = doubles("on", on, {n_pairs});
        const auto ends = doubles("ended", ended, {n_pairs});
        const auto shares = doubles("share_on", share_on, {n_states});
        const auto evens = doubles("even", even, {n_states});
        const auto end_shares = doubles("share_end", share_end, {n_states});
        const auto going_on = doubles("going", going, {n_states});
        const auto other = doubles("others", others, {n_pairs});
        const auto end_other = doubles("end_others", end_others, {n_pairs});
        const auto worsts = arguments.in<std::int64_t>("worst", worst, {n_states});
        const auto strengths = doubles("on_concentration", on_concentration, {kAny});
        const auto weights = doubles("on_weight", on_weight, {strengths.size()});
        const auto end_strengths = doubles("end_concentration", end_concentration, {kAny});
        const auto end_weights = doubles("end_weight", end_weight, {end_strengths.size()});
        const auto found = arguments.out<double>("out", out, {n, n});
        arguments.check_apart();
        check_within(worsts, -2, n_states);
        gains.outcomes = arrays.outcomes(flags.data());
        gains.n = n;
        gains.discount = discounts.data();
        gains.value = values.data();
        gains.state_visits = nu.data();
        gains.policy = pi.data();
        gains.moved = change.data();
        gains.untried = rest.data();
        gains.on = went_on.data();
        gains.ended = ends.data();
        gains.share_on = shares.data();
        gains.even = evens.data();
        gains.share_end = end_shares.data();
        gains.going = going_on.data();
        gains.others = other.data();
        gains.end_others = end_other.data();
        gains.worst = worsts.data();
        gains.n_on = strengths.size();
        gains.n_end = end_strengths.size();
        gains.on_concentration = strengths.data();
        gains.on_weight = weights.data();
        gains.end_concentration = end_strengths.data();
        gains.end_weight = end_weights.data();
        nb::gil_scoped_release release;
        gains_covariance(gains, found.data(), n_threads);
    });
}

// Accepts None, so that the checks can refuse it by name.
auto named(const char* name) { return nb::arg(name).none(); }

}  // namespace

NB_MODULE(_compiled, m) {
    m.def("solve_programs", &solve_programs_py, named("ptr"), named("baseline"), named("objective"), named("error"), named("rows"), named("epsilon"), named("basis"),
          named("at_upper"), named("policy"), named("gap"), named("status"), named("threads"));
    m.def("solve_mixture", &solve_mixture_py, named("gain"), named("value"), named("floor"), named("reach"), named("basis"), named("weight"), named("multiplier"));
    m.def("solve_values", &solve_values_py, named("ptr"), named("weight"), named("indptr"), named("indices"), named("data"), named("discount"), named("rhs"), named("value"),
          named("tol"), named("max_products"), named("threads"));
    m.def("pair_values", &pair_values_py, named("indptr"), named("indices"), named("data"), named("discount"), named("reward"), named("v"), named("q"), named("threads"));
    m.def("best_response", &best_response_py, named("ptr"), named("indptr"), named("indices"), named("data"), named("discount"), named("initial"), named("baseline"),
          named("error"), named("epsilon"), named("reward"), named("elsewhere"), named("policy"), named("value"), named("visits"), named("kept"), named("rough"), named("tol"),
          named("accepted"), named("rounding"), named("max_products"), named("max_rounds"), named("threads"));
    m.def("mark_outcomes", &mark_outcomes_py, named("ptr"), named("indptr"), named("indices"), named("data"), named("visits"), named("acted"), named("flag"),
          named("distinct"), named("on"), named("threads"));
    m.def("log_rising", &log_rising_py, named("alpha"), named("count"), named("threads"));
    m.def("successor_likelihood", &successor_likelihood_py, named("ptr"), named("indptr"), named("indices"), named("data"), named("visits"), named("flag"), named("even"),
          named("others"), named("grid"), named("out"), named("threads"));
    m.def("worst_outcomes", &worst_outcomes_py, named("ptr"), named("indptr"), named("indices"), named("data"), named("visits"), named("flag"), named("ended"), named("value"),
          named("worst"), named("threads"));
    m.def("solve_mean", &solve_mean_py, named("ptr"), named("indptr"), named("indices"), named("data"), named("visits"), named("flag"), named("weight"), named("even"),
          named("extra"), named("worst"), named("discount"), named("transposed"), named("rhs"), named("value"), named("tol"), named("max_products"), named("threads"));
    m.def("gains_covariance", &gains_covariance_py, named("ptr"), named("indptr"), named("indices"), named("data"), named("visits"), named("flag"), named("discount"),
          named("value"), named("state_visits"), named("policy"), named("moved"), named("untried"), named("on"), named("ended"), named("share_on"), named("even"), named("counted"),
          named("share_end"), named("going"), named("others"), named("end_others"), named("hierarchical"), named("pessimism"), named("worst"), named("on_concentration"),
          named("on_weight"), named("end_concentration"), named("end_weight"), named("out"), named("threads"));
    m.def("drawn_gains", &drawn_gains_py, named("state_ptr"), named("pair_key"), named("objective_key"), named("outcome_ptr"), named("outcome_next"),
          named("outcome_reward"), named("count_ptr"), named("count_outcome"), named("count"), named("share"), named("going"), named("others"), named("end_others"), named("extra"),
          named("concentration"), named("cumulative"), named("end_concentration"), named("end_cumulative"), named("reward_mean"), named("reward_noise"), named("weight"),
          named("starts"), named("value"), named("visits"), named("discount"), named("tol"), named("seed"), named("first"), named("threads"), named("out"));
    m.def("draw_gammas", &draw_gammas_py, named("shape"), named("seed"), named("out"));
    nb::class_<EstimatesObject>(m, "Estimates")
        .def("__init__", &make_estimates, named("discount"), named("has_model"))
        .def("weigh", &weigh_py, named("ptr"), named("log_ratio"), named("log_weight"))
        .def("average", &make_terms<Estimates::Stage::kAverage>, named("first"), named("ptr"), named("log_ratio"), named("reward"), named("v"), named("q"), named("tail"),
             named("terms"))
        .def("finish", &make_terms<Estimates::Stage::kFinish>, named("first"), named("ptr"), named("log_ratio"), named("reward"), named("v"), named("q"), named("tail"),
             named("terms"));
    nb::class_<CounterObject>(m, "EpisodeCounter")
        .def("__init__", &make_counter, named("discount"), named("cost"), named("step"), named("next"), named("terminated"), named("truncated"), named("prob"), named("largest"),
             named("with_marks"))
        .def("add", &add_rows_py, named("episode"), named("step"), named("state"), named("action"), named("next"), named("has_next"), named("terminated"), named("truncated"),
             named("prob"), named("reward"), named("offset"))
        .def("close", &close_counter_py)
        .def("write", &write_counts_py, named("state"), named("initial"), named("action"), named("pair"), named("prob"), named("reward_range"), named("return_part"),
             named("return_range"))
        .def("count_outcomes", &count_outcomes_py, named("successors"), named("ended"))
        .def("write_outcomes", &write_outcomes_py, named("place"), named("rank"), named("ptr"), named("state"), named("count"))
        .def("write_sums", &write_sums_py, named("stream"), named("order"), named("part"))
        .def("open_ends", &take_marks<&EpisodeCounter::open_ends>)
        .def("late_starts", &take_marks<&EpisodeCounter::late_starts>)
        .def_prop_ro("n_states", [](const CounterObject& self) { return self.n_states(); })
        .def_prop_ro("n_actions", [](const CounterObject& self) { return self.n_actions(); })
        .def_prop_ro("n_pairs", [](const CounterObject& self) { return self.n_pairs(); })
        .def_prop_ro("n_groups", [](const CounterObject& self) { return self.n_groups(); })
        .def_prop_ro("n_parts", [](const CounterObject& self) { return self.n_parts(); })
        .def_prop_ro("n_return_parts", [](const CounterObject&) { return Wide::kLimbs; })
        .def_prop_ro("bytes", [](const CounterObject& self) { return self.bytes(); })
        .def_prop_ro("n_rows", [](const CounterObject& self) { return self.n_rows; })
        .def_prop_ro("n_episodes", [](const CounterObject& self) { return self.n_episodes; })
        .def_prop_ro("n_truncated", [](const CounterObject& self) { return self.n_truncated; })
        .def_prop_ro("n_dropped", [](const CounterObject& self) { return self.n_dropped; })
        .def_prop_ro("shortest", [](const CounterObject& self) { return self.shortest; })
        .def_prop_ro("longest", [](const CounterObject& self) { return self.longest; });
}
