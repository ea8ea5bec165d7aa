// Checks of arguments from Python: types, memory layout, shapes, ranges. An invalid argument raises TypeError or ValueError with a
// message that names it. Every check is one pass without branches.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "wide.hpp"

namespace bettersafe {

namespace nb = nanobind;

constexpr std::int64_t kAny = -1;  // in a shape
constexpr std::int64_t kMostThreads = 4096;

[[noreturn]] inline void refuse(const std::string& sentence) { throw nb::value_error(sentence.c_str()); }

inline std::string text(double number) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.9g", number);
    return digits;
}
template <typename Integer, typename = std::enable_if_t<std::is_integral<Integer>::value>>
std::string text(Integer number) {
    return std::to_string(number);
}

using Shape = std::initializer_list<std::int64_t>;

template <typename Sizes>
std::string shape_text(const Sizes& sizes) {
    std::string all;
    for (const std::int64_t size : sizes) all += (all.empty() ? "" : ", ") + (size == kAny ? "any" : std::to_string(size));
    return "[" + all + "]";
}

template <typename T>
constexpr const char* type_name() {
    if constexpr (std::is_same<T, double>::value) return "float64";
    if constexpr (std::is_same<T, std::int64_t>::value) return "int64";
    if constexpr (std::is_same<T, std::int32_t>::value) return "int32";
    if constexpr (std::is_same<T, std::uint8_t>::value) return "uint8";
    if constexpr (std::is_same<T, std::int8_t>::value) return "int8";
}

// Kind of a value, for messages: "list", "float32 array", "read-only float64 array".
inline std::string kind_of(nb::handle value) {
    try {
        const nb::object dtype = nb::getattr(value, "dtype"), flags = nb::getattr(value, "flags");
        const bool contiguous = nb::cast<bool>(flags["C_CONTIGUOUS"]), writable = nb::cast<bool>(flags["WRITEABLE"]);
        return std::string(contiguous ? "" : "non-contiguous ") + (writable ? "" : "read-only ") + nb::str(nb::handle(dtype)).c_str() + " array";
    } catch (const std::exception&) {
        return Py_TYPE(value.ptr())->tp_name;
    }
}

// Contiguous array with its name; T is const for input arrays.
template <typename T>
class Array {
public:
    using Held = nb::ndarray<T, nb::c_contig, nb::device::cpu>;

    Array(const char* name, Held held) : name_(name), held_(std::move(held)), data_(held_.data()) {}

    std::string name() const { return name_; }
    T* data() const { return data_; }
    T& operator[](std::int64_t i) const { return data_[i]; }
    std::int64_t size() const { return static_cast<std::int64_t>(held_.size()); }
    std::int64_t shape(std::size_t axis) const { return static_cast<std::int64_t>(held_.shape(axis)); }

private:
    const char* name_;
    Held held_;
    T* data_;
};

// Arguments of one call. Call `check_apart` after all: no output array may share memory with another array.
class Arguments {
public:
    template <typename T>
    Array<const T> in(const char* name, nb::handle value, Shape shape) {
        return array<const T>(name, value, shape);
    }
    template <typename T>
    Array<T> out(const char* name, nb::handle value, Shape shape) {
        return array<T>(name, value, shape);
    }

    void check_apart() const {
        for (const Range& own : ranges_) {
            if (!own.written) continue;
            for (const Range& other : ranges_) {
                if (&own != &other && std::less<>()(own.begin, other.end) && std::less<>()(other.begin, own.end))
                    refuse(std::string(own.name) + " is written and must not share memory with " + other.name + ".");
            }
        }
    }

private:
    struct Range {
        const char* name;
        const char *begin, *end;
        bool written;
    };
    std::vector<Range> ranges_;

    template <typename T>
    Array<T> array(const char* name, nb::handle value, Shape shape) {
        using Plain = std::remove_const_t<T>;
        constexpr bool written = !std::is_const<T>::value;
        typename Array<T>::Held held;
        if (!nb::try_cast(value, held, false)) {
            const std::string message = std::string(name) + " must be a contiguous" + (written ? ", writable" : "") + " array of " +
                                        type_name<Plain>() + "; got " + kind_of(value) + ".";
            throw nb::type_error(message.c_str());
        }
        bool fits = held.ndim() == shape.size();
        for (std::size_t axis = 0; fits && axis < shape.size(); ++axis)
            fits = shape.begin()[axis] == kAny || static_cast<std::int64_t>(held.shape(axis)) == shape.begin()[axis];
        if (!fits) {
            std::vector<std::int64_t> own;
            for (std::size_t axis = 0; axis < held.ndim(); ++axis) own.push_back(static_cast<std::int64_t>(held.shape(axis)));
            refuse(std::string(name) + " must have shape " + shape_text(shape) + "; got " + shape_text(own) + ".");
        }
        if (held.size() != 0) {
            if (reinterpret_cast<std::uintptr_t>(held.data()) % alignof(Plain) != 0) refuse(std::string(name) + " must be aligned in memory.");
            const auto* begin = reinterpret_cast<const char*>(held.data());
            if (ranges_.empty()) ranges_.reserve(32);
            ranges_.push_back({name, begin, begin + held.nbytes(), written});
        }
        return {name, std::move(held)};
    }
};

// A number in [low, high].
inline double number(const char* name, nb::handle value, double low, double high) {
    double found;
    if (!nb::try_cast(value, found)) throw nb::type_error((std::string(name) + " must be a number; got " + kind_of(value) + ".").c_str());
    if (!(found >= low && found <= high)) refuse(std::string(name) + " must be in [" + text(low) + ", " + text(high) + "]; got " + text(found) + ".");
    return found;
}

// An integer in [low, high].
template <typename Integer = std::int64_t>
Integer whole(const char* name, nb::handle value, Integer low, Integer high) {
    Integer found;
    if (!nb::try_cast(value, found)) {
        const std::string message = std::string(name) + " must be a whole number from " + text(low) + " to " + text(high) + "; got " + kind_of(value) + ".";
        throw nb::type_error(message.c_str());
    }
    if (found < low || found > high) refuse(std::string(name) + " must be from " + text(low) + " to " + text(high) + "; got " + text(found) + ".");
    return found;
}

inline bool truth(const char* name, nb::handle value) {
    if (value.ptr() != Py_True && value.ptr() != Py_False)
        throw nb::type_error((std::string(name) + " must be True or False; got " + kind_of(value) + ".").c_str());
    return value.ptr() == Py_True;
}

inline int threads_of(nb::handle value) { return static_cast<int>(whole("threads", value, std::int64_t{1}, kMostThreads)); }

inline double discount_of(nb::handle value) { return number("discount", value, 0.0, 1.0); }

// Raises unless the entries from begin to end are in [low, high).
template <typename T>
void check_within(const Array<const T>& array, std::int64_t low, std::int64_t high, std::int64_t begin, std::int64_t end) {
    using Bits = std::make_unsigned_t<T>;
    const T* data = array.data();
    const auto first = static_cast<Bits>(low), last = static_cast<Bits>(std::min<std::int64_t>(high - 1, std::numeric_limits<T>::max()) - low);
    Bits outside = 0;  // the sign bit is set if an entry is below `low` or beyond the last
    for (std::int64_t i = begin; i < end; ++i) {
        const Bits from_low = static_cast<Bits>(data[i]) - first;
        outside |= from_low | (last - from_low);
    }
    if (high > low && !(outside >> (std::numeric_limits<Bits>::digits - 1))) return;
    for (std::int64_t i = begin; i < end; ++i) {
        if (data[i] < low || data[i] >= high)
            refuse(array.name() + "[" + text(i) + "] is " + text(data[i]) + "; it must be at least " + text(low) + " and less than " + text(high) + ".");
    }
}
template <typename T>
void check_within(const Array<const T>& array, std::int64_t low, std::int64_t high) {
    check_within(array, low, high, 0, array.size());
}

// Raises unless pointers rise from 0 to `last`.
template <typename T>
void check_rising(const Array<const T>& ptr, std::int64_t last) {
    const T* data = ptr.data();
    const std::int64_t n = ptr.size() - 1;
    if (n < 0 || data[0] != 0) refuse(ptr.name() + " must begin with 0.");
    using Bits = std::make_unsigned_t<T>;
    Bits falls = 0;  // the sign bit is set if an entry is negative or less than the one before
    for (std::int64_t i = 0; i < n; ++i)
        falls |= static_cast<Bits>(data[i + 1]) | (static_cast<Bits>(data[i + 1]) - static_cast<Bits>(data[i]));
    if (falls >> (std::numeric_limits<Bits>::digits - 1)) {
        for (std::int64_t i = 0; i < n; ++i) {
            if (data[i + 1] < data[i])
                refuse(ptr.name() + " must rise; it falls from " + text(data[i]) + " to " + text(data[i + 1]) + " at " + text(i + 1) + ".");
        }
    }
    if (data[n] != last) refuse(ptr.name() + " must end with " + text(last) + "; it ends with " + text(data[n]) + ".");
}

// Index of the first entry for which `outside` of its bits has the sign bit set; −1 if there is none.
template <typename Outside>
std::int64_t first_outside(const double* data, std::int64_t size, const Outside& outside) {
    std::uint64_t found = 0;
    for (std::int64_t i = 0; i < size; ++i) {
        std::uint64_t bits;
        std::memcpy(&bits, data + i, sizeof bits);
        found |= outside(bits);
    }
    if (!(found >> 63)) return -1;
    for (std::int64_t i = 0;; ++i) {
        std::uint64_t bits;
        std::memcpy(&bits, data + i, sizeof bits);
        if (outside(bits) >> 63) return i;
    }
}

constexpr std::uint64_t kInfinityBits = 0x7ffULL << 52, kSignBit = 1ULL << 63;  // without the sign, the bits of NaN exceed those of infinity

BETTERSAFE_WIDE static std::int64_t first_not_finite(const double* data, std::int64_t size) {
    return first_outside(data, size, [](std::uint64_t bits) { return kInfinityBits - 1 - (bits & ~kSignBit); });
}

inline void check_finite(const Array<const double>& array) {
    const std::int64_t i = first_not_finite(array.data(), array.size());
    if (i >= 0) refuse(array.name() + " must be finite; entry " + text(i) + " is " + text(array[i]) + ".");
}

BETTERSAFE_WIDE static std::int64_t first_negative(const double* data, std::int64_t size) {
    return first_outside(data, size, [](std::uint64_t bits) { return (bits & (bits - 1)) | (kInfinityBits - (bits & ~kSignBit)); });
}

// Raises unless all numbers are ≥ 0; −0 and infinity are allowed.
inline void check_not_negative(const Array<const double>& array) {
    const std::int64_t i = first_negative(array.data(), array.size());
    if (i >= 0) refuse(array.name() + " must be 0 or more; entry " + text(i) + " is " + text(array[i]) + ".");
}

// Raises unless all numbers are below infinity; −∞ is allowed.
inline void check_below_infinity(const Array<const double>& array) {
    const std::int64_t i = first_outside(
        array.data(), array.size(), [](std::uint64_t bits) { return (~bits & (kInfinityBits - 1 - bits)) | (kInfinityBits - (bits & ~kSignBit)); });
    if (i >= 0) refuse(array.name() + " must be below infinity; entry " + text(i) + " is " + text(array[i]) + ".");
}

// Rows of a CSR matrix with `n_rows` rows; `check_columns` checks the columns, once their number is known.
template <typename Index>
struct CsrRows {
    Array<const Index> indptr, indices;
    Array<const double> data;

    CsrRows(Arguments& arguments, nb::handle indptr_, nb::handle indices_, nb::handle data_, std::int64_t n_rows)
        : indptr(arguments.in<Index>("indptr", indptr_, {n_rows == kAny ? kAny : n_rows + 1})),
          indices(arguments.in<Index>("indices", indices_, {kAny})),
          data(arguments.in<double>("data", data_, {indices.size()})) {
        check_rising(indptr, indices.size());
    }
    void check_columns(std::int64_t n) const { check_within(indices, 0, n); }
};

// Calls f with a zero of the type of an index array: int32 or int64.
template <typename F>
auto with_index_type(nb::handle indptr, F&& f) {
    nb::ndarray<const std::int32_t, nb::device::cpu> narrow;
    return nb::try_cast(indptr, narrow, false) ? f(std::int32_t{}) : f(std::int64_t{});
}

}  // namespace bettersafe
