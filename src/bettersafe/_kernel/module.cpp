// What Python sees of the kernel. Shapes are checked in Python (lp.py, linear.py); here only types.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "counting.hpp"
#include "draws.hpp"
#include "values.hpp"
#include "mean_process.hpp"
#include "estimators.hpp"
#include "programs.hpp"

namespace nb = nanobind;
using namespace bettersafe;

template <typename T>
using In = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out = nb::ndarray<T, nb::c_contig, nb::device::cpu>;

namespace {

std::int64_t solve_programs_py(In<std::int64_t> ptr, In<double> baseline, In<double> objective, In<double> error,
                               In<double> rows, double epsilon, Out<std::int32_t> basis, Out<std::uint8_t> at_upper,
                               Out<double> policy, Out<double> gap, Out<std::int8_t> status, int threads) {
    Programs programs{};
    programs.n_programs = static_cast<std::int64_t>(ptr.size()) - 1;
    programs.n_entries = static_cast<std::int64_t>(baseline.size());
    programs.n_rows = static_cast<std::int64_t>(rows.shape(0));
    programs.ptr = ptr.data();
    programs.baseline = baseline.data();
    programs.objective = objective.data();
    programs.error = error.data();
    programs.rows = rows.data();
    programs.epsilon = epsilon;
    programs.basis = basis.data();
    programs.at_upper = at_upper.data();
    programs.policy = policy.data();
    programs.gap = gap.data();
    programs.status = status.data();
    nb::gil_scoped_release release;
    return solve_programs(programs, threads);
}

template <typename Index>
std::pair<double, std::int64_t> solve_values_py(In<std::int64_t> ptr, In<double> weight, In<Index> indptr,
                                                In<Index> indices, In<double> data, double discount, In<double> rhs,
                                                Out<double> value, double tol, std::int64_t max_products, int threads) {
    const PolicyMatrix<Index> matrix{static_cast<std::int64_t>(ptr.size()) - 1,
                                     ptr.data(),
                                     weight.data(),
                                     indptr.data(),
                                     indices.data(),
                                     data.data(),
                                     discount};
    nb::gil_scoped_release release;
    const SolveReport report = solve_values(matrix, static_cast<std::int64_t>(rhs.shape(0)), rhs.data(), value.data(), tol,
                                            max_products, threads);
    return {report.residual, report.products};
}

template <typename Index>
void pair_values_py(In<Index> indptr, In<Index> indices, In<double> data, In<double> discount, In<double> reward, In<double> v,
                    Out<double> q, int threads) {
    const PairRows<Index> rows{static_cast<std::int64_t>(indptr.size()) - 1, static_cast<std::int64_t>(v.shape(1)),
                               indptr.data(), indices.data(), data.data()};
    nb::gil_scoped_release release;
    pair_values(rows, static_cast<std::int64_t>(discount.size()), discount.data(), reward.data(), v.data(), q.data(), threads);
}

Trajectories block_of(const In<std::int64_t>& ptr, const In<double>& log_ratio) {
    Trajectories in{};
    in.n = static_cast<std::int64_t>(ptr.size()) - 1;
    in.ptr = ptr.data();
    in.log_ratio = log_ratio.data();
    return in;
}

void weigh_py(Estimates& self, In<std::int64_t> ptr, In<double> log_ratio, Out<double> log_weight) {
    const Trajectories in = block_of(ptr, log_ratio);
    nb::gil_scoped_release release;
    self.weigh(in, log_weight.data());
}

template <void (Estimates::*step)(const Trajectories&, double*)>
void step_py(Estimates& self, std::int64_t first, In<std::int64_t> ptr, In<double> log_ratio, In<double> reward, In<double> v,
             In<double> q, In<double> tail, Out<double> terms) {
    Trajectories in = block_of(ptr, log_ratio);
    in.first = first;
    in.reward = reward.data();
    in.v = v.data();
    in.q = q.data();
    in.tail = tail.data();
    nb::gil_scoped_release release;
    (self.*step)(in, terms.data());
}

void drawn_gains_py(In<std::int64_t> state_ptr, In<std::int64_t> pair_key, In<std::int64_t> objective_key,
                    In<std::int64_t> outcome_ptr, In<std::int64_t> outcome_next, In<double> outcome_reward,
                    In<std::int64_t> count_ptr, In<std::int64_t> count_outcome, In<double> count, In<double> share,
                    In<double> going, In<double> others, In<double> end_others, In<double> extra, In<double> concentration, In<double> cumulative,
                    In<double> end_concentration, In<double> end_cumulative, In<double> reward_mean, In<double> reward_noise,
                    In<double> weight, In<double> starts, In<double> value, In<double> visits, double discount, double tol,
                    std::uint64_t seed, std::int64_t first, int threads, Out<double> out) {
    DrawnProcesses in{};
    in.n_states = static_cast<std::int64_t>(starts.size());
    in.n_pairs = static_cast<std::int64_t>(pair_key.size());
    in.n_outcomes = static_cast<std::int64_t>(outcome_next.size());
    in.n_concentrations = static_cast<std::int64_t>(concentration.size());
    in.n_end_concentrations = static_cast<std::int64_t>(end_concentration.size());
    in.n_policies = static_cast<std::int64_t>(weight.shape(0));
    in.n_objectives = static_cast<std::int64_t>(objective_key.size());
    in.state_ptr = state_ptr.data();
    in.pair_key = pair_key.data();
    in.objective_key = objective_key.data();
    in.outcome_ptr = outcome_ptr.data();
    in.outcome_next = outcome_next.data();
    in.outcome_reward = outcome_reward.data();
    in.count_ptr = count_ptr.data();
    in.count_outcome = count_outcome.data();
    in.count = count.data();
    in.share = share.data();
    in.going = going.data();
    in.others = others.data();
    in.end_others = end_others.data();
    in.extra = extra.data();
    in.concentration = concentration.data();
    in.cumulative = cumulative.data();
    in.end_concentration = end_concentration.data();
    in.end_cumulative = end_cumulative.data();
    in.reward_mean = reward_mean.data();
    in.reward_noise = reward_noise.data();
    in.weight = weight.data();
    in.starts = starts.data();
    in.value = value.data();
    in.visits = visits.data();
    in.discount = discount;
    in.tol = tol;
    in.seed = seed;
    nb::gil_scoped_release release;
    drawn_gains(in, first, static_cast<std::int64_t>(out.shape(0)), threads, out.data());
}

// A column that was not announced is an empty array; a bitmap that has all bits set is one, too.
Bitmap bitmap(const In<std::uint8_t>& bits, std::int64_t offset) { return {bits.size() ? bits.data() : nullptr, offset}; }

bool add_rows_py(Chains& self, In<std::int64_t> episode, In<std::int64_t> step, In<std::int64_t> state, In<std::int64_t> action,
                 In<std::int64_t> next, In<std::uint8_t> has_next, In<std::uint8_t> terminated, In<std::uint8_t> truncated,
                 In<double> prob, const std::vector<In<double>>& reward, In<std::int64_t> offset) {
    Rows rows{};
    rows.n = static_cast<std::int64_t>(episode.size());
    rows.episode = episode.data();
    rows.step = step.data();
    rows.state = state.data();
    rows.action = action.data();
    rows.next = next.data();
    rows.has_next = bitmap(has_next, offset.data()[0]);
    rows.terminated = bitmap(terminated, offset.data()[1]);
    rows.truncated = bitmap(truncated, offset.data()[2]);
    rows.prob = prob.data();
    for (const In<double>& column : reward) rows.reward.push_back(column.data());
    nb::gil_scoped_release release;
    return self.add(rows);
}

void write_counts_py(Chains& self, Out<std::int64_t> state, Out<std::int64_t> initial, Out<std::int64_t> action,
                     Out<std::int64_t> pair, Out<double> prob, Out<double> reward_range, Out<double> return_part,
                     Out<double> return_range) {
    self.write({state.data(), initial.data(), action.data(), pair.data(), prob.data(), reward_range.data(), return_part.data(),
                return_range.data()});
}

void write_outcomes_py(Chains& self, In<std::int64_t> place, In<std::int64_t> rank, In<std::int64_t> ptr, Out<std::int64_t> state,
                       Out<std::int64_t> count) {
    nb::gil_scoped_release release;
    self.write_outcomes(place.data(), rank.data(), ptr.data(), state.data(), count.data());
}

void write_sums_py(Chains& self, int stream, In<std::int64_t> order, Out<double> part) {
    self.write_sums(stream, static_cast<std::int64_t>(order.size()), order.data(), part.data());
}

// Chains and steps that were marked since the last time, [n, 2].
nb::ndarray<nb::numpy, std::int64_t> take_marks(std::vector<Chains::Mark>& marks) {
    auto* taken = new std::vector<Chains::Mark>(std::move(marks));
    marks.clear();
    nb::capsule owner(taken, [](void* held) noexcept { delete static_cast<std::vector<Chains::Mark>*>(held); });
    return nb::ndarray<nb::numpy, std::int64_t>(reinterpret_cast<std::int64_t*>(taken->data()), {taken->size(), 2}, owner);
}

void draw_gammas_py(In<double> shape, std::uint64_t seed, Out<double> out) {
    draw_gammas(static_cast<std::int64_t>(shape.size()), shape.data(), seed, out.data());
}

template <typename Index>
CountedOutcomes<Index> outcomes_of(const In<std::int64_t>& ptr, const In<Index>& indptr, const In<Index>& indices, const In<double>& data,
                      const In<double>& visits, const std::uint8_t* flag) {
    return {static_cast<std::int64_t>(ptr.size()) - 1, ptr.data(), indptr.data(), indices.data(), data.data(), visits.data(), flag};
}

template <typename Index>
void mark_outcomes_py(In<std::int64_t> ptr, In<Index> indptr, In<Index> indices, In<double> data, In<double> visits,
                   In<std::uint8_t> acted, Out<std::uint8_t> flag, Out<double> distinct, Out<double> on, int threads) {
    const CountedOutcomes<Index> outcomes = outcomes_of(ptr, indptr, indices, data, visits, nullptr);
    nb::gil_scoped_release release;
    mark_outcomes(outcomes, acted.data(), flag.data(), distinct.data(), on.data(), threads);
}

double log_rising_py(In<double> alpha, In<double> count, int threads) {
    nb::gil_scoped_release release;
    return log_rising(static_cast<std::int64_t>(alpha.size()), alpha.data(), count.data(), threads);
}

template <typename Index>
void successor_likelihood_py(In<std::int64_t> ptr, In<Index> indptr, In<Index> indices, In<double> data, In<double> visits,
                            In<std::uint8_t> flag, In<double> even, In<double> others, In<double> grid, Out<double> out,
                            int threads) {
    const CountedOutcomes<Index> outcomes = outcomes_of(ptr, indptr, indices, data, visits, flag.data());
    nb::gil_scoped_release release;
    successor_likelihood(outcomes, even.data(), others.data(), static_cast<std::int64_t>(grid.size()), grid.data(), out.data(), threads);
}

template <typename Index>
void worst_outcomes_py(In<std::int64_t> ptr, In<Index> indptr, In<Index> indices, In<double> data, In<double> visits,
                       In<std::uint8_t> flag, In<std::uint8_t> ended, In<double> value, Out<std::int64_t> worst, int threads) {
    const CountedOutcomes<Index> outcomes = outcomes_of(ptr, indptr, indices, data, visits, flag.data());
    nb::gil_scoped_release release;
    worst_outcomes(outcomes, ended.data(), value.data(), worst.data(), threads);
}

template <typename Index>
double solve_mean_py(In<std::int64_t> ptr, In<Index> indptr, In<Index> indices, In<double> data, In<double> visits,
                     In<std::uint8_t> flag, In<double> weight, In<double> even, In<double> extra, In<std::int64_t> worst,
                     double discount, bool transposed, In<double> rhs, Out<double> value, double tol, std::int64_t max_products,
                     int threads) {
    const MeanMatrix<Index> matrix{outcomes_of(ptr, indptr, indices, data, visits, flag.data()),
                                   weight.data(),
                                   even.data(),
                                   extra.data(),
                                   worst.data(),
                                   discount};
    nb::gil_scoped_release release;
    return solve_mean(matrix, transposed, static_cast<std::int64_t>(rhs.shape(0)), rhs.data(), value.data(), tol, max_products,
                      threads);
}

template <typename Index>
void gains_covariance_py(In<std::int64_t> ptr, In<Index> indptr, In<Index> indices, In<double> data, In<double> visits,
                         In<std::uint8_t> flag, In<double> discount, In<double> value, In<double> state_visits, In<double> policy,
                         In<double> moved, In<double> untried, In<double> on, In<double> ended, In<double> share_on,
                         In<double> even, double counted, In<double> share_end, In<double> going, In<double> others,
                         In<double> end_others, bool hierarchical, double pessimism, In<std::int64_t> worst,
                         In<double> on_concentration, In<double> on_weight, In<double> end_concentration, In<double> end_weight,
                         Out<double> out, int threads) {
    Gains<Index> gains{};
    gains.outcomes = outcomes_of(ptr, indptr, indices, data, visits, flag.data());
    gains.n = static_cast<std::int64_t>(discount.size());
    gains.discount = discount.data();
    gains.value = value.data();
    gains.state_visits = state_visits.data();
    gains.policy = policy.data();
    gains.moved = moved.data();
    gains.untried = untried.data();
    gains.on = on.data();
    gains.ended = ended.data();
    gains.share_on = share_on.data();
    gains.even = even.data();
    gains.counted = counted;
    gains.share_end = share_end.data();
    gains.going = going.data();
    gains.others = others.data();
    gains.end_others = end_others.data();
    gains.hierarchical = hierarchical;
    gains.pessimism = pessimism;
    gains.worst = worst.data();
    gains.n_on = static_cast<std::int64_t>(on_concentration.size());
    gains.n_end = static_cast<std::int64_t>(end_concentration.size());
    gains.on_concentration = on_concentration.data();
    gains.on_weight = on_weight.data();
    gains.end_concentration = end_concentration.data();
    gains.end_weight = end_weight.data();
    nb::gil_scoped_release release;
    gains_covariance(gains, out.data(), threads);
}

// The functions of mean_process.hpp, for one type of index; arguments are positional, as _compiled.pyi has them.
template <typename Index>
void define_linearised(nb::module_& m) {
    m.def("mark_outcomes", &mark_outcomes_py<Index>);
    m.def("successor_likelihood", &successor_likelihood_py<Index>);
    m.def("worst_outcomes", &worst_outcomes_py<Index>);
    m.def("solve_mean", &solve_mean_py<Index>);
    m.def("gains_covariance", &gains_covariance_py<Index>);
}

}  // namespace

NB_MODULE(_compiled, m) {
    define_linearised<std::int32_t>(m);
    define_linearised<std::int64_t>(m);
    m.def("log_rising", &log_rising_py);
    m.def("solve_programs", &solve_programs_py, nb::arg("ptr"), nb::arg("baseline"), nb::arg("objective"),
          nb::arg("error"), nb::arg("rows"), nb::arg("epsilon"), nb::arg("basis"), nb::arg("at_upper"),
          nb::arg("policy"), nb::arg("gap"), nb::arg("status"), nb::arg("threads"));
    m.def("drawn_gains", &drawn_gains_py, nb::arg("state_ptr"), nb::arg("pair_key"), nb::arg("objective_key"),
          nb::arg("outcome_ptr"), nb::arg("outcome_next"), nb::arg("outcome_reward"), nb::arg("count_ptr"),
          nb::arg("count_outcome"), nb::arg("count"), nb::arg("share"), nb::arg("going"), nb::arg("others"), nb::arg("end_others"), nb::arg("extra"),
          nb::arg("concentration"), nb::arg("cumulative"), nb::arg("end_concentration"), nb::arg("end_cumulative"),
          nb::arg("reward_mean"), nb::arg("reward_noise"), nb::arg("weight"), nb::arg("starts"), nb::arg("value"), nb::arg("visits"), nb::arg("discount"), nb::arg("tol"),
          nb::arg("seed"), nb::arg("first"), nb::arg("threads"), nb::arg("out"));
    m.def("draw_gammas", &draw_gammas_py, nb::arg("shape"), nb::arg("seed"), nb::arg("out"));
    nb::class_<Estimates>(m, "Estimates")
        .def("__init__",
             [](Estimates* self, In<double> discount, bool has_model) {
                 new (self) Estimates(std::vector<double>(discount.data(), discount.data() + discount.size()), has_model);
             },
             nb::arg("discount"), nb::arg("has_model"))
        .def("weigh", &weigh_py, nb::arg("ptr"), nb::arg("log_ratio"), nb::arg("log_weight"))
        .def("average", &step_py<&Estimates::average>, nb::arg("first"), nb::arg("ptr"), nb::arg("log_ratio"),
             nb::arg("reward"), nb::arg("v"), nb::arg("q"), nb::arg("tail"), nb::arg("terms"))
        .def("finish", &step_py<&Estimates::finish>, nb::arg("first"), nb::arg("ptr"), nb::arg("log_ratio"),
             nb::arg("reward"), nb::arg("v"), nb::arg("q"), nb::arg("tail"), nb::arg("terms"));
    nb::class_<Chains>(m, "Chains")
        .def("__init__",
             [](Chains* self, In<double> discount, In<std::uint8_t> cost, bool step, bool next, bool terminated, bool truncated,
                bool prob, double largest, bool with_marks) {
                 new (self) Chains(std::vector<double>(discount.data(), discount.data() + discount.size()),
                                   std::vector<bool>(cost.data(), cost.data() + cost.size()),
                                   Columns{step, next, terminated, truncated, prob}, largest, with_marks);
             },
             nb::arg("discount"), nb::arg("cost"), nb::arg("step"), nb::arg("next"), nb::arg("terminated"),
             nb::arg("truncated"), nb::arg("prob"), nb::arg("largest"), nb::arg("with_marks"))
        .def("add", &add_rows_py, nb::arg("episode"), nb::arg("step"), nb::arg("state"), nb::arg("action"), nb::arg("next"),
             nb::arg("has_next"), nb::arg("terminated"), nb::arg("truncated"), nb::arg("prob"), nb::arg("reward"),
             nb::arg("offset"))
        .def("close", &Chains::close)
        .def("write", &write_counts_py, nb::arg("state"), nb::arg("initial"), nb::arg("action"), nb::arg("pair"),
             nb::arg("prob"), nb::arg("reward_range"), nb::arg("return_part"), nb::arg("return_range"))
        .def("count_outcomes",
             [](const Chains& self, Out<std::int64_t> successors, Out<std::int64_t> ended) {
                 self.count_outcomes(successors.data(), ended.data());
             },
             nb::arg("successors"), nb::arg("ended"))
        .def("write_outcomes", &write_outcomes_py, nb::arg("place"), nb::arg("rank"), nb::arg("ptr"), nb::arg("state"),
             nb::arg("count"))
        .def("write_sums", &write_sums_py, nb::arg("stream"), nb::arg("order"), nb::arg("part"))
        .def("open_ends", [](Chains& self) { return take_marks(self.open_ends); })
        .def("late_starts", [](Chains& self) { return take_marks(self.late_starts); })
        .def_prop_ro("n_states", &Chains::n_states)
        .def_prop_ro("n_actions", &Chains::n_actions)
        .def_prop_ro("n_pairs", &Chains::n_pairs)
        .def_prop_ro("n_groups", &Chains::n_groups)
        .def_prop_ro("n_parts", &Chains::n_parts)
        .def_prop_ro("n_return_parts", [](const Chains&) { return Wide::kLimbs; })
        .def_prop_ro("bytes", &Chains::bytes)
        .def_ro("n_rows", &Chains::n_rows)
        .def_ro("n_episodes", &Chains::n_episodes)
        .def_ro("n_truncated", &Chains::n_truncated)
        .def_ro("n_dropped", &Chains::n_dropped)
        .def_ro("shortest", &Chains::shortest)
        .def_ro("longest", &Chains::longest);
    m.def("solve_values", &solve_values_py<std::int32_t>, nb::arg("ptr"), nb::arg("weight"), nb::arg("indptr"),
          nb::arg("indices"), nb::arg("data"), nb::arg("discount"), nb::arg("rhs"), nb::arg("value"), nb::arg("tol"),
          nb::arg("max_products"), nb::arg("threads"));
    m.def("solve_values", &solve_values_py<std::int64_t>, nb::arg("ptr"), nb::arg("weight"), nb::arg("indptr"),
          nb::arg("indices"), nb::arg("data"), nb::arg("discount"), nb::arg("rhs"), nb::arg("value"), nb::arg("tol"),
          nb::arg("max_products"), nb::arg("threads"));
    m.def("pair_values", &pair_values_py<std::int32_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"),
          nb::arg("discount"), nb::arg("reward"), nb::arg("v"), nb::arg("q"), nb::arg("threads"));
    m.def("pair_values", &pair_values_py<std::int64_t>, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"),
          nb::arg("discount"), nb::arg("reward"), nb::arg("v"), nb::arg("q"), nb::arg("threads"));
}
