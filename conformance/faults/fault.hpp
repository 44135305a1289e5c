// The faults of generated mutants, as data: what is wrong, where in a result, and in which calls.
//
// A fault has a text, which names it in reports and travels to the plugin as an option:
//
//   matmul/f32/row_tail16/offset/small/71     op / dtype / place / when / kind / number
//   memory.copy/-/-/second/short16/5          table.entry / - / - / when / kind / number
//
// The number is the seed of what the fault still chooses, such as the index of the element.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace bp::faults {

// "-" stands for a part that the fault does not have.
struct Fault {
  std::string subject;  // An op, or a table and its entry.
  std::string dtype = "-";
  std::string place = "-";
  std::string when = "always";
  std::string kind;
  uint64_t number = 0;

  bool is_of_table() const { return subject.find('.') != std::string::npos; }
};

std::string text_of(const Fault& fault);

// Returns nothing if the text does not name a fault of the lists below.
std::optional<Fault> fault_from_text(std::string_view text);

// A word of a fault, and its meaning for people.
struct Word {
  std::string_view name;
  std::string_view meaning;
};

// The elements of an output that a fault of values changes.
std::span<const Word> places();

// The launches of a kernel, and the calls of an entry, that a fault strikes.
std::span<const Word> kernel_conditions();
std::span<const Word> entry_conditions();

// Which kernels can have a fault.
enum class Needs {
  kNothing,
  kFloat,     // An output holds floats.
  kHalf,      // An output holds f16 or bf16.
  kInputs,    // The op reads two tensors, so that they can be exchanged.
  kOptional,  // The op has an optional tensor.
  kNumber,    // The op has an attribute that is a number.
};

struct KindOfFault {
  std::string_view name;
  std::string_view family;
  std::string_view causes;  // The causes that name this fault rightly, as words.
  std::string_view meaning;
  Needs needs = Needs::kNothing;
  bool has_place = false;
};

std::span<const KindOfFault> kernel_kinds();
std::span<const KindOfFault> entry_kinds();

// Returns NULL if there is no such kind.
const KindOfFault* kind_of(const Fault& fault);

// The calls in which a plugin met its fault. The plugin and the selftest share it in a file, which
// outlives a plugin that crashes.
struct Sightings {
  uint64_t calls = 0;    // The calls of the op or of the entry.
  uint64_t met = 0;      // The calls that fit the dtype and the condition.
  uint64_t changed = 0;  // The calls whose results or effects the fault changed.
};

// Returns a number that depends on both arguments and looks random: splitmix64, Steele, Lea and
// Flood 2014.
uint64_t mixed(uint64_t seed, uint64_t index);

}  // namespace bp::faults
