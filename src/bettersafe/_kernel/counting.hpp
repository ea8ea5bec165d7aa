// Counts of a log in one pass over its rows, with exact sums.
//
// Rows are sorted by episode and step, with whole episodes. For labels x (states), a (actions) and outcomes (the next row's x,
// the end, or unknown), the counter counts every x, a, pair (x, a) and group (pair, outcome). It sums, by pair, r_k and r_k² over rows
// with a known outcome and, over episodes, G_k and G_k², G_k = Σ_t γ_k^t r_k,t. If a row breaks a rule, `add` or `close` returns
// False, and the log is counted by SQL (`logs/_reader`), which reports errors. Labels are integers.
//
// Sums are those of `logs/_reader/exact_sql.py`: all bits of r and G from 2^-600 up, of squares from 2^-288 up. A sum by pair is a
// 128-bit integer in units chosen from the first rows; terms with bits outside its range are added to a wide sum.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "memory.hpp"

namespace bettersafe {

// 64-bit keys -> numbers, by open addressing.
class Table {
public:
    Table();
    // Number of a key; a new key gets `fresh`.
    std::uint64_t& at(std::uint64_t key, std::uint64_t fresh) {
        std::uint64_t i = place(key);
        while (slots_[i].value != kEmpty && slots_[i].key != key) i = (i + 1) & mask_;
        if (slots_[i].value == kEmpty) return insert(i, key, fresh);
        return slots_[i].value;
    }
    void prefetch(std::uint64_t key) const { prefetch_to_write(&slots_[place(key)]); }
    std::int64_t size() const { return size_; }
    // Memory with `more` keys added: while the table grows, the old slots coexist with twice as many new ones.
    double bytes(std::int64_t more) const {
        return (is_full(size_ + more) ? 3.0 : 1.0) * static_cast<double>(slots_.size() * sizeof(Slot));
    }
    template <typename Visit>
    void each(Visit visit) const {
        for (const Slot& slot : slots_)
            if (slot.value != kEmpty) visit(slot.key, slot.value);
    }

private:
    static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
    struct Slot {
        std::uint64_t key, value;
    };
    std::uint64_t place(std::uint64_t key) const { return ((key ^ (key >> 29)) * 0x9e3779b97f4a7c15ULL) >> shift_; }
    std::uint64_t& insert(std::uint64_t i, std::uint64_t key, std::uint64_t fresh);
    // A half-empty table is fastest. In a large table every access waits for memory anyway, so a quarter empty is enough.
    bool is_full(std::int64_t size) const {
        const auto keys = static_cast<std::uint64_t>(size);
        return slots_.size() <= kSmallTable ? 2 * keys > slots_.size() : 4 * keys > 3 * slots_.size();
    }
    static constexpr std::uint64_t kSmallTable = 1 << 21;

    std::vector<Slot> slots_;
    std::uint64_t mask_;
    int shift_;  // the highest bits of a product are mixed best
    std::int64_t size_ = 0;
};

// Labels -> 0, 1, 2, ... in order of appearance. Small labels, the common case, are looked up in an array.
class Numbering {
public:
    std::uint32_t at(std::int64_t label) {
        if (static_cast<std::uint64_t>(label) < kSmall && small_[label] != 0) return small_[label] - 1;
        return look_up(label);
    }
    std::int64_t size() const { return table_.size(); }
    double bytes(std::int64_t more) const { return table_.bytes(more); }
    template <typename Visit>
    void each(Visit visit) const {
        table_.each([&](std::uint64_t label, std::uint64_t i) { visit(static_cast<std::int64_t>(label), i); });
    }

private:
    static constexpr std::uint64_t kSmall = 1 << 12;
    std::uint32_t look_up(std::int64_t label);

    Table table_;
    std::vector<std::uint32_t> small_ = std::vector<std::uint32_t>(kSmall);  // one more than the number, or 0
};

constexpr int kFloor = -600, kSquareFloor = -288;  // FLOOR and SQUARE_FLOOR of logs/_reader/exact_sql.py

// A sum of any doubles from 2^-600 to 2^744, in limbs of 32 bits.
class Wide {
public:
    static constexpr int kLimbs = 44;
    // sign · m · 2^e, with e ≥ kFloor and m < 2^53.
    void add(bool negative, std::uint64_t m, int e);
    // Normalises all limbs but the last to [0, 2^32).
    void carry();
    // Limb i as a double; the limbs add up to the sum.
    double part(int i) const;

private:
    std::array<std::int64_t, kLimbs> limb_{};
    std::int64_t room_ = 0;  // terms since the last carry
};

struct Narrow {
    std::uint64_t low = 0;
    std::int64_t high = 0;  // the sum is high·2^64 + low, in units
};

struct Bitmap {
    const std::uint8_t* bits = nullptr;  // bit order of Arrow; null: all bits are set
    std::int64_t offset = 0;
    bool operator[](std::int64_t i) const {
        return bits == nullptr || ((bits[(offset + i) >> 3] >> ((offset + i) & 7)) & 1);
    }
};

struct Rows {
    std::int64_t n;
    const std::int64_t* episode;  // [n], like all columns; columns that are not in `Columns` are not read
    const std::int64_t* step;
    const std::int64_t* state;
    const std::int64_t* action;
    const std::int64_t* next;
    Bitmap has_next, terminated, truncated;
    const double* prob;
    std::vector<const double*> reward;  // [d]
};

struct Columns {
    bool step, next, terminated, truncated, prob;
};

class EpisodeCounter {
public:
    // cost: the reward is 0 − r. largest: upper limit of |r|. with_marks: keep marks of episodes that may continue in other logs.
    EpisodeCounter(std::vector<double> discount, std::vector<bool> cost, Columns columns, double largest, bool with_marks);

    // False if a row breaks a rule, and in all later calls.
    bool add(const Rows& rows);
    // Call after the last row. True if the results can be written.
    bool close();
    bool closed() const { return closed_; }
    const Columns& columns() const { return columns_; }
    std::int64_t n_objectives() const { return d_; }

    struct Mark {
        std::int64_t episode, step;
    };
    std::vector<Mark> open_ends, late_starts;  // (episode, step after the last), (episode, first step)

    std::int64_t n_rows = 0, n_episodes = 0, n_truncated = 0, n_dropped = 0, shortest = 0, longest = 0;
    std::int64_t n_states() const { return states_.size(); }
    std::int64_t n_actions() const { return actions_.size(); }
    std::int64_t n_pairs() const { return pairs_.size(); }
    std::int64_t n_groups() const { return groups_.size(); }
    std::int64_t n_parts() const { return kPieces + (wide_.empty() ? 0 : Wide::kLimbs); }
    double bytes() const;  // memory, including the next batch of rows

    struct Result {
        std::int64_t* state;         // [X] labels
        std::int64_t* initial;       // [X]
        std::int64_t* action;        // [A] labels
        std::int64_t* pair;          // [2, P] indices of x and a
        double* prob;                // [2, P] least and largest; not written without the column
        double* reward_range;        // [2, d]
        double* return_part;         // [2 d, kLimbs]: Σ G_0, Σ G_0², Σ G_1, ... as doubles that add up to them
        double* return_range;        // [2, d]
    };
    void write(const Result& out);
    // Number of known successors of every pair, [P], and of its terminations, [P].
    void count_outcomes(std::int64_t* successors, std::int64_t* ended) const;
    // Successors of pair p and their counts, from ptr[place[p]] on, x' as rank[x'] in rising order; none if place is −1.
    // Frees the counts by group. Throws if ptr has too little room for the successors of a pair.
    void write_outcomes(const std::int64_t* place, const std::int64_t* rank, std::int64_t n, const std::int64_t* ptr, std::int64_t* state,
                        std::int64_t* count);
    // One of Σ r_0, Σ r_0², Σ r_1, ... of n pairs in some order, as doubles [n, n_parts] that add up to it.
    void write_sums(int stream, std::int64_t n, const std::int64_t* order, double* part);

private:
    static constexpr int kPieces = 4;    // 32 bits of a Narrow
    static constexpr int kPlaces = 44;   // number of 24-bit digits, from 2^-600 up
    static constexpr int kPowers = 1 << 16;
    static constexpr std::int64_t kBlock = 1 << 10;
    static constexpr std::int64_t kAhead = 16;  // rows
    struct Return {
        std::array<std::int64_t, kPlaces> digit{};
        int low = kPlaces, high = -1;    // range of digits in use
    };

    void choose_units(const Rows& rows);
    bool add_rows(const Rows& rows);
    bool add_block(const Rows& rows, std::int64_t from, std::int64_t n);
    bool take_columns(const Rows& rows, std::int64_t from, std::int64_t n);
    bool follow_episodes(const Rows& rows, std::int64_t from, std::int64_t n);
    bool end_episode(std::int64_t last);
    void add_returns(std::int64_t n);
    void end_return(int k);
    void settle(std::int64_t last);
    std::uint64_t group(std::int64_t i) const;
    void add_far(std::size_t at, int stream, double term);
    double weight(std::size_t k, std::int64_t t) const;

    const std::vector<double> discount_;
    const std::vector<bool> cost_;
    const Columns columns_;
    const double largest_;
    const bool with_marks_;
    const int d_;

    Numbering states_, actions_;
    Table pairs_, groups_;
    std::vector<std::int64_t> initial_;     // [X]
    std::vector<Narrow> sum_;               // [P, 2d]
    std::vector<double> prob_;              // [P, 2]
    std::vector<int> unit_;                 // [2d]: sums count in 2^-unit
    std::vector<std::uint32_t> wide_of_;    // [P, 2d], one more than the index in wide_, or 0; may be shorter
    std::vector<Wide> wide_;
    std::vector<double> power_;             // [d, kPowers]: filled up to powers_
    std::int64_t powers_ = 0;
    std::array<double, kPlaces> unit_of_place_;
    std::vector<Return> return_;            // [d] of the current episode
    std::vector<Wide> return_sum_;          // [2d]
    std::vector<double> reward_range_, return_range_;  // [2, d]

    // A block of rows at 1 .. n. Row 0 is the row before, if any, whose outcome is not known yet.
    bool open_ = false, refused_ = false, closed_ = false;
    std::vector<std::int64_t> pair_, outcome_, time_;  // [kBlock + 1]; time since the start of the episode
    std::vector<double> reward_, prob_of_row_;         // [d, kBlock + 1], [kBlock + 1]
    // The current episode, and its last row.
    std::int64_t episode_ = 0, first_step_ = 0, step_ = 0, t_ = 0, next_ = 0;
    bool has_next_ = false, terminated_ = false, truncated_ = false, saw_one_ = false, saw_below_one_ = false;
};

}  // namespace bettersafe
