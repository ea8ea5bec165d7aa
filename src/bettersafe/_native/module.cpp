// What Python sees of the kernel. Shapes are checked in Python (lp.py, linear.py); here only types.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>

#include "draws.hpp"
#include "linear.hpp"
#include "ope.hpp"
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

void draw_gammas_py(In<double> shape, std::uint64_t seed, Out<double> out) {
    draw_gammas(static_cast<std::int64_t>(shape.size()), shape.data(), seed, out.data());
}

}  // namespace

NB_MODULE(_kernel, m) {
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
