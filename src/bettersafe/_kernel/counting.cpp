#include "counting.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace bettersafe {
namespace {

constexpr std::int64_t kEnd = -1, kUnknown = -2, kNoRow = -3;
constexpr int kRoom = 40;                    // 2^40 rows add up within the 127 bits of a Narrow
constexpr int kMostShift = 127 - kRoom - 53;
constexpr std::int64_t kMostRows = std::int64_t{1} << kRoom;
constexpr std::int64_t kLongest = std::int64_t{1} << 29;    // digits of 24 bits add up within the 53 of a double
constexpr std::int64_t kBatch = std::int64_t{1} << 17;      // maximum rows of a batch: 1 MB of CSV
constexpr std::int64_t kMostLabels = std::int64_t{1} << 31;  // two indices make one key
constexpr std::int64_t kFarthestStep = std::int64_t{1} << 60;
constexpr double kLeastWeight = 1.0 / 18446744073709551616.0;  // 2^-64, LEAST_WEIGHT of logs/_reader/exact_sql.py
constexpr int kDigit = 24;                                     // WIDTH of logs/_reader/exact.py
constexpr std::uint64_t kDigitMask = (1u << kDigit) - 1;

// ± m · 2^e, without error.
struct Split {
    bool negative;
    std::uint64_t m;
    int e;
};

Split split(double value) {
    std::uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
    const int exponent = static_cast<int>((bits >> 52) & 0x7ff);
    return {(bits >> 63) != 0, exponent ? fraction | (std::uint64_t{1} << 52) : fraction, exponent ? exponent - 1075 : -1074};
}

// Drops the bits below 2^floor.
void cut(Split& term, int floor) {
    if (term.e >= floor) return;
    const int below = floor - term.e;
    term.m = below < 53 ? term.m >> below : 0;
    term.e = floor;
}

// Adds ± m · 2^shift, 0 ≤ shift < 64; without branches, because signs are unpredictable.
void add_to_narrow(Narrow& sum, const Split& term, int shift) {
    const std::uint64_t minus = term.negative ? ~std::uint64_t{0} : 0;
    std::uint64_t low = ((term.m << shift) ^ minus) - minus;
    std::uint64_t high = ((term.m >> 1) >> (63 - shift)) ^ minus;
    high += (low == 0) & (minus & 1);
    sum.low += low;
    sum.high = static_cast<std::int64_t>(static_cast<std::uint64_t>(sum.high) + high + (sum.low < low));
}

}  // namespace

Table::Table() : slots_(64, Slot{0, kEmpty}), mask_(63), shift_(58) {}

std::uint64_t& Table::insert(std::uint64_t i, std::uint64_t key, std::uint64_t fresh) {
    if (is_full(size_ + 1)) {
        std::vector<Slot> old(2 * slots_.size(), Slot{0, kEmpty});
        old.swap(slots_);
        mask_ = slots_.size() - 1;
        --shift_;
        const auto free_place = [this](std::uint64_t of) {
            std::uint64_t at = place(of);
            while (slots_[at].value != kEmpty) at = (at + 1) & mask_;
            return at;
        };
        for (const Slot& slot : old)
            if (slot.value != kEmpty) slots_[free_place(slot.key)] = slot;
        i = free_place(key);
    }
    ++size_;
    slots_[i] = {key, fresh};
    return slots_[i].value;
}

std::uint32_t Numbering::look_up(std::int64_t label) {
    const auto i = static_cast<std::uint32_t>(table_.at(static_cast<std::uint64_t>(label), table_.size()));
    if (static_cast<std::uint64_t>(label) < kSmall) small_[label] = i + 1;
    return i;
}

void Wide::add(bool negative, std::uint64_t m, int e) {
    if (++room_ >= (std::int64_t{1} << 30)) carry();
    const int i = (e - kFloor) >> 5, shift = (e - kFloor) & 31;
    const std::uint64_t part[3] = {(m << shift) & 0xffffffffu, (m >> (32 - shift)) & 0xffffffffu, (m >> 32) >> (32 - shift)};
    for (int j = 0; j < 3; ++j) {
        const auto limb = static_cast<std::int64_t>(part[j]);
        limb_[i + j] += negative ? -limb : limb;
    }
}

void Wide::carry() {
    for (int i = 0; i + 1 < kLimbs; ++i) {
        const std::int64_t over = limb_[i] >> 32;
        limb_[i + 1] += over;
        limb_[i] -= over * (std::int64_t{1} << 32);
    }
    room_ = 0;
}

double Wide::part(int i) const { return std::ldexp(static_cast<double>(limb_[i]), kFloor + 32 * i); }

EpisodeCounter::EpisodeCounter(std::vector<double> discount, std::vector<bool> cost, Columns columns, double largest, bool with_marks)
    : discount_(std::move(discount)),
      cost_(std::move(cost)),
      columns_(columns),
      largest_(largest),
      with_marks_(with_marks),
      d_(static_cast<int>(discount_.size())),
      unit_(2 * d_),
      power_(static_cast<std::size_t>(d_) * kPowers),
      return_(d_),
      return_sum_(2 * d_),
      pair_(kBlock + 1),
      outcome_(kBlock + 1),
      time_(kBlock + 1),
      reward_(d_ * (kBlock + 1)),
      prob_of_row_(kBlock + 1) {
    for (std::vector<double>* range : {&reward_range_, &return_range_}) {
        range->assign(d_, std::numeric_limits<double>::infinity());
        range->resize(2 * d_, -std::numeric_limits<double>::infinity());
    }
    for (int place = 0; place < kPlaces; ++place) unit_of_place_[place] = std::ldexp(1.0, kFloor + kDigit * place);
}

// Centres the range of 87 bits on the terms of the first rows; if these spread wider, the range ends at their top.
void EpisodeCounter::choose_units(const Rows& rows) {
    for (int stream = 0; stream < 2 * d_; ++stream) {
        int low = 1 << 12, high = -(1 << 12);
        for (std::int64_t i = 0; i < rows.n; ++i) {
            const double r = rows.reward[stream / 2][i];
            const double term = stream % 2 ? r * r : r;
            if (term == 0.0 || !std::isfinite(term)) continue;
            const int e = split(term).e;
            low = std::min(low, e);
            high = std::max(high, e);
        }
        if (low > high) low = high = -53;
        const int spare = kMostShift - (high - low);
        const int lowest = spare >= 0 ? low - spare / 2 : high - kMostShift;
        unit_[stream] = -std::max(lowest, stream % 2 ? kSquareFloor : kFloor);
    }
}

bool EpisodeCounter::add(const Rows& rows) {
    if (refused_) return false;
    refused_ = true;  // stays true if memory runs out below
    refused_ = !add_rows(rows);
    return !refused_;
}

bool EpisodeCounter::add_rows(const Rows& rows) {
    if (rows.n == 0) return true;
    if (n_rows == 0) choose_units(rows);
    n_rows += rows.n;
    if (n_rows >= kMostRows) return false;
    for (std::int64_t from = 0; from < rows.n; from += kBlock)
        if (!add_block(rows, from, std::min(kBlock, rows.n - from))) return false;
    return states_.size() < kMostLabels && actions_.size() < kMostLabels && pairs_.size() < kMostLabels;
}

bool EpisodeCounter::close() {
    if (refused_ || !open_) return false;
    refused_ = true;
    if (!end_episode(0)) return false;
    settle(0);
    for (int k = 0; k < d_; ++k) end_return(k);
    refused_ = false;
    closed_ = true;
    return true;
}

// Processes a block of rows step by step, not row by row: short loops are faster on a pipelined processor.
bool EpisodeCounter::add_block(const Rows& rows, std::int64_t from, std::int64_t n) {
    if (!take_columns(rows, from, n) || !follow_episodes(rows, from, n)) return false;
    add_returns(n);
    settle(n - 1);
    pair_[0] = pair_[n];
    prob_of_row_[0] = prob_of_row_[n];
    for (int k = 0; k < d_; ++k) reward_[k * (kBlock + 1)] = reward_[k * (kBlock + 1) + n];
    return true;
}

// Reads the pair, the probability and the rewards of every row.
bool EpisodeCounter::take_columns(const Rows& rows, std::int64_t from, std::int64_t n) {
    for (std::int64_t i = 1; i <= n; ++i) {
        const std::uint64_t x = states_.at(rows.state[from + i - 1]), a = actions_.at(rows.action[from + i - 1]);
        pair_[i] = static_cast<std::int64_t>(pairs_.at(x << 32 | a, pairs_.size()));
        outcome_[i - 1] = static_cast<std::int64_t>(x);  // unless the row before is the last of its episode
    }
    bool good = true;
    if (columns_.prob) {
        for (std::int64_t i = 1; i <= n; ++i) {
            const double prob = rows.prob[from + i - 1];
            good &= prob > 0.0 && prob <= 1.0;
            prob_of_row_[i] = prob;
        }
    }
    for (int k = 0; k < d_; ++k) {
        const double* given = rows.reward[k] + from - 1;
        double* own = &reward_[k * (kBlock + 1)];
        double low = reward_range_[k], high = reward_range_[d_ + k];
        const bool cost = cost_[k];
        for (std::int64_t i = 1; i <= n; ++i) {
            good &= std::abs(given[i]) <= largest_;
            const double r = cost ? 0.0 - given[i] : given[i];
            own[i] = r;
            low = std::min(low, r);
            high = std::max(high, r);
        }
        reward_range_[k] = low;
        reward_range_[d_ + k] = high;
    }
    return good;
}

// Checks that every row continues the row before; sets the outcomes, and the ends of episodes.
bool EpisodeCounter::follow_episodes(const Rows& rows, std::int64_t from, std::int64_t n) {
    for (std::int64_t i = 1; i <= n; ++i) {
        const std::int64_t row = from + i - 1, episode = rows.episode[row], step = columns_.step ? rows.step[row] : 0;
        if (open_ && episode == episode_) {
            if (columns_.step && step != step_ + 1) return false;
            if (terminated_ || truncated_ || (has_next_ && next_ != rows.state[row])) return false;
            if (++t_ >= kLongest) return false;
        } else {
            const std::int64_t x = outcome_[i - 1];
            if (open_ && (episode < episode_ || !end_episode(i - 1))) return false;
            if (step > kFarthestStep || step < -kFarthestStep) return false;
            if (!open_) outcome_[0] = kNoRow;
            open_ = true;
            episode_ = episode;
            first_step_ = step;
            t_ = 0;
            if (static_cast<std::int64_t>(initial_.size()) <= x) initial_.resize(x + 1);
            ++initial_[x];
        }
        step_ = step;
        time_[i] = t_;
        terminated_ = columns_.terminated && rows.terminated[row];
        truncated_ = columns_.truncated && rows.truncated[row];
        if (terminated_ && truncated_) return false;
        has_next_ = columns_.next && !terminated_ && rows.has_next[row];
        next_ = has_next_ ? rows.next[row] : 0;
    }
    return true;
}

// The row at `last` was the last of its episode.
bool EpisodeCounter::end_episode(std::int64_t last) {
    const bool ended = columns_.terminated ? terminated_ : !truncated_;
    const std::int64_t length = t_ + 1;
    outcome_[last] = ended ? kEnd : has_next_ ? static_cast<std::int64_t>(states_.at(next_)) : kUnknown;
    n_truncated += !ended;
    n_dropped += outcome_[last] == kUnknown;
    shortest = n_episodes == 0 ? length : std::min(shortest, length);
    longest = std::max(longest, length);
    ++n_episodes;
    if (!with_marks_ || !columns_.step) return true;
    saw_one_ |= first_step_ == 1;
    saw_below_one_ |= first_step_ < 1;
    if (!(columns_.terminated && terminated_)) open_ends.push_back({episode_, first_step_ + length});
    if (first_step_ != 0 && first_step_ != 1) late_starts.push_back({episode_, first_step_});
    return !(saw_one_ && saw_below_one_);  // whether episodes start at step 0 or 1 is known only at the end
}

double EpisodeCounter::weight(std::size_t k, std::int64_t t) const {
    const double power = std::pow(discount_[k], static_cast<double>(t));
    return power < kLeastWeight ? 0.0 : power;
}

// Adds the digits of γ^t r; the first row of an episode ends the episode before.
void EpisodeCounter::add_returns(std::int64_t n) {
    for (std::int64_t i = 1; i <= n; ++i) {
        for (; powers_ <= time_[i] && powers_ < kPowers; ++powers_)
            for (int k = 0; k < d_; ++k) power_[static_cast<std::size_t>(k) * kPowers + powers_] = weight(k, powers_);
    }
    for (int k = 0; k < d_; ++k) {
        const double* power = &power_[static_cast<std::size_t>(k) * kPowers];
        const double* reward = &reward_[k * (kBlock + 1)];
        Return& sum = return_[k];
        for (std::int64_t i = 1; i <= n; ++i) {
            const std::int64_t t = time_[i];
            if (t == 0 && outcome_[i - 1] != kNoRow) end_return(k);
            const double value = (t < kPowers ? power[t] : weight(k, t)) * reward[i];
            if (value == 0.0) continue;
            Split term = split(value);
            cut(term, kFloor);
            const auto above = static_cast<unsigned>(term.e - kFloor);
            const int place = static_cast<int>(above / kDigit), shift = static_cast<int>(above % kDigit);
            const std::int64_t minus = term.negative ? -1 : 0;
            const std::uint64_t part[4] = {(term.m << shift) & kDigitMask, (term.m >> (kDigit - shift)) & kDigitMask,
                                           (term.m >> (2 * kDigit - shift)) & kDigitMask,
                                           (term.m >> (2 * kDigit)) >> (kDigit - shift)};
            for (int j = 0; j < 4; ++j) sum.digit[place + j] += (static_cast<std::int64_t>(part[j]) ^ minus) - minus;
            sum.low = std::min(sum.low, place);
            sum.high = std::max(sum.high, place + 3);
        }
    }
}

void EpisodeCounter::end_return(int k) {
    Return& sum = return_[k];
    double total = 0.0;  // from the lowest digit, as in SQL
    for (int place = sum.low; place <= sum.high; ++place) {
        total = static_cast<double>(sum.digit[place]) * unit_of_place_[place] + total;
        sum.digit[place] = 0;
    }
    sum.low = kPlaces;
    sum.high = -1;
    return_range_[k] = std::min(return_range_[k], total);
    return_range_[d_ + k] = std::max(return_range_[d_ + k], total);
    for (const bool squared : {false, true}) {
        Split term = split(squared ? total * total : total);
        cut(term, squared ? kSquareFloor : kFloor);
        return_sum_[2 * k + squared].add(term.negative, term.m, term.e);
    }
}

std::uint64_t EpisodeCounter::group(std::int64_t i) const {
    return static_cast<std::uint64_t>(pair_[i]) << 32 | static_cast<std::uint64_t>(outcome_[i] - kUnknown);
}

// Counts the rows at 0 .. last, whose outcomes are now known.
void EpisodeCounter::settle(std::int64_t last) {
    const std::int64_t first = outcome_[0] == kNoRow ? 1 : 0;
    for (std::int64_t i = first; i <= last; ++i) {
        groups_.prefetch(group(std::min(i + kAhead, last)));
        ++groups_.at(group(i), 0);
    }
    const auto n = static_cast<std::size_t>(pairs_.size());
    if (sum_.size() < n * 2 * d_) {
        sum_.resize(n * 2 * d_);
        if (columns_.prob) prob_.resize(n * 2);
    }
    for (int k = 0; k < d_; ++k) {
        const double* reward = &reward_[k * (kBlock + 1)];
        const int units[2] = {unit_[2 * k], unit_[2 * k + 1]};
        for (std::int64_t i = first; i <= last; ++i) {
            prefetch_to_write(&sum_[(static_cast<std::size_t>(pair_[std::min(i + kAhead, last)]) * d_ + k) * 2]);
            if (outcome_[i] == kUnknown) continue;
            const double r = reward[i];
            const std::size_t at = (static_cast<std::size_t>(pair_[i]) * d_ + k) * 2;
            for (int squared = 0; squared < 2; ++squared) {
                const double value = squared ? r * r : r;
                const Split term = split(value);
                const int shift = value == 0.0 ? 0 : term.e + units[squared];
                if (shift >= 0 && shift <= kMostShift)
                    add_to_narrow(sum_[at + squared], term, shift);
                else
                    add_far(at + squared, 2 * k + squared, value);
            }
        }
    }
    for (std::int64_t i = first; columns_.prob && i <= last; ++i) {
        if (outcome_[i] == kUnknown) continue;
        double* range = &prob_[2 * pair_[i]];
        if (range[0] == 0.0 || prob_of_row_[i] < range[0]) range[0] = prob_of_row_[i];  // 0: none yet
        range[1] = std::max(range[1], prob_of_row_[i]);
    }
}

// Adds a term with nonzero bits outside the range of a Narrow.
void EpisodeCounter::add_far(std::size_t at, int stream, double value) {
    Split term = split(value);
    cut(term, stream % 2 ? kSquareFloor : kFloor);
    const int shift = term.e + unit_[stream];
    if (shift < 0 && shift > -53 && (term.m & ((std::uint64_t{1} << -shift) - 1)) == 0) {
        term.m >>= -shift;
        add_to_narrow(sum_[at], term, 0);
        return;
    }
    if (wide_of_.size() <= at) wide_of_.resize(sum_.size());
    if (wide_of_[at] == 0) {
        wide_.emplace_back();
        wide_of_[at] = static_cast<std::uint32_t>(wide_.size());
    }
    wide_[wide_of_[at] - 1].add(term.negative, term.m, term.e);
}

double EpisodeCounter::bytes() const {
    return states_.bytes(kBatch) + actions_.bytes(kBatch) + pairs_.bytes(kBatch) + groups_.bytes(kBatch) +
           static_cast<double>(initial_.capacity() * sizeof(std::int64_t) + sum_.capacity() * sizeof(Narrow) +
                               prob_.capacity() * sizeof(double) + wide_of_.capacity() * sizeof(std::uint32_t) +
                               wide_.capacity() * sizeof(Wide) + (open_ends.capacity() + late_starts.capacity()) * sizeof(Mark));
}

void EpisodeCounter::write(const Result& out) {
    const std::int64_t n = pairs_.size();
    states_.each([&](std::int64_t label, std::uint64_t x) { out.state[x] = label; });
    actions_.each([&](std::int64_t label, std::uint64_t a) { out.action[a] = label; });
    std::fill(out.initial, out.initial + states_.size(), 0);
    std::copy(initial_.begin(), initial_.end(), out.initial);
    pairs_.each([&](std::uint64_t key, std::uint64_t p) {
        out.pair[p] = static_cast<std::int64_t>(key >> 32);
        out.pair[n + p] = static_cast<std::int64_t>(key & 0xffffffffu);
    });
    for (std::int64_t p = 0; columns_.prob && p < n; ++p) {
        out.prob[p] = prob_[2 * p];
        out.prob[n + p] = prob_[2 * p + 1];
    }
    for (int stream = 0; stream < 2 * d_; ++stream) {
        return_sum_[stream].carry();
        for (int j = 0; j < Wide::kLimbs; ++j) out.return_part[stream * Wide::kLimbs + j] = return_sum_[stream].part(j);
    }
    std::copy(reward_range_.begin(), reward_range_.end(), out.reward_range);
    std::copy(return_range_.begin(), return_range_.end(), out.return_range);
}

void EpisodeCounter::count_outcomes(std::int64_t* successors, std::int64_t* ended) const {
    std::fill(successors, successors + pairs_.size(), 0);
    std::fill(ended, ended + pairs_.size(), 0);
    groups_.each([&](std::uint64_t key, std::uint64_t count) {
        const auto p = static_cast<std::int64_t>(key >> 32), outcome = static_cast<std::int64_t>(key & 0xffffffffu) + kUnknown;
        if (outcome == kEnd) ended[p] = static_cast<std::int64_t>(count);
        if (outcome >= 0) ++successors[p];
    });
}

void EpisodeCounter::write_outcomes(const std::int64_t* place, const std::int64_t* rank, std::int64_t n, const std::int64_t* ptr,
                                    std::int64_t* state, std::int64_t* count) {
    std::vector<std::int64_t> end(ptr, ptr + n);
    bool fits = true;
    groups_.each([&](std::uint64_t key, std::uint64_t times) {
        const std::int64_t at = place[key >> 32], outcome = static_cast<std::int64_t>(key & 0xffffffffu) + kUnknown;
        if (at < 0 || outcome < 0) return;
        if (end[at] == ptr[at + 1]) {
            fits = false;
            return;
        }
        state[end[at]] = rank[outcome];
        count[end[at]++] = static_cast<std::int64_t>(times);
    });
    for (std::int64_t at = 0; at < n; ++at) fits = fits && end[at] == ptr[at + 1];
    if (!fits) throw std::invalid_argument("ptr and place must give every pair as many places as it has successors, each pair its own.");
    groups_ = Table();
    std::vector<std::pair<std::int64_t, std::int64_t>> own;
    for (std::int64_t at = 0; at < n; ++at) {
        own.clear();
        for (std::int64_t i = ptr[at]; i < ptr[at + 1]; ++i) own.emplace_back(state[i], count[i]);
        std::sort(own.begin(), own.end());
        for (std::size_t j = 0; j < own.size(); ++j) std::tie(state[ptr[at] + j], count[ptr[at] + j]) = own[j];
    }
}

void EpisodeCounter::write_sums(int stream, std::int64_t n, const std::int64_t* order, double* part) {
    const std::int64_t parts = n_parts();
    double unit[kPieces];
    for (int j = 0; j < kPieces; ++j) unit[j] = std::ldexp(1.0, 32 * j - unit_[stream]);
    for (std::int64_t i = 0; i < n; ++i, part += parts) {
        const std::size_t at = static_cast<std::size_t>(order[i]) * 2 * d_ + stream;
        prefetch_to_write(&sum_[static_cast<std::size_t>(order[std::min(i + kAhead, n - 1)]) * 2 * d_ + stream]);
        const Narrow& sum = sum_[at];
        part[0] = static_cast<double>(sum.low & 0xffffffffu) * unit[0];
        part[1] = static_cast<double>(sum.low >> 32) * unit[1];
        part[2] = static_cast<double>(static_cast<std::uint64_t>(sum.high) & 0xffffffffu) * unit[2];
        part[3] = static_cast<double>(sum.high >> 32) * unit[3];
        const std::uint32_t wide = at < wide_of_.size() ? wide_of_[at] : 0;
        if (wide) wide_[wide - 1].carry();
        for (std::int64_t j = kPieces; j < parts; ++j) part[j] = wide ? wide_[wide - 1].part(static_cast<int>(j) - kPieces) : 0.0;
    }
}

}  // namespace bettersafe
