#include "conformance/shrink/program.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <sstream>

#include "conformance/cases/engine/host_call.hpp"
#include "conformance/cases/engine/op_judge.hpp"
#include "conformance/runner/setup.hpp"
#include "conformance/shrink/program_text.hpp"
#include "registry/boundary/number_text.hpp"
#include "registry/tensors/strides.hpp"

namespace bp::conformance {
namespace {

constexpr size_t kWidth = 100;
constexpr int64_t kTriedAlternatives = 4096;  // The most indices that are tried as other right
                                              // answers.

uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

std::string hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

// Returns a double as an exact constant of C11.
std::string constant(double value) {
  if (std::isnan(value)) return "NAN";
  if (std::isinf(value)) return value < 0 ? "-INFINITY" : "INFINITY";
  const std::string text = short_text(value, 17);
  const bool is_integer = text.find_first_of(".e") == std::string::npos;
  return text + (is_integer ? ".0" : "");
}

// A text as a literal of C; three octal digits end where they should, whatever follows.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\%03o", static_cast<unsigned>(c));
      result += escape;
      continue;
    }
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

std::string macro_of(bp_dtype dtype) {
  std::string text = dtype_text(dtype);
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return "BP_" + text;
}

uint64_t bits_of(bp_dtype dtype, DoubleDouble value) {
  std::byte bytes[8] = {};
  store_element(dtype, value, bytes);
  return element_bits_at(dtype, bytes);
}

class Program {
 public:
  Program(Context& t, const OpCase& op_case)
      : t_(t), case_(op_case), data_(op_case, t.seed()), declared_(declared_numerics()) {}

  std::string write() {
    write_comment();
    out_ << kProgramHead;
    write_settings();
    write_operands();
    write_alsos();
    out_ << kProgramBody;
    write_launch();
    return out_.str();
  }

 private:
  // Returns the declaration of the kernel that takes the call; the strictest one if no kernel does.
  const bp_numerics* declared_numerics() const {
    HostCall call(case_);
    bp_kernel_choice choice{};
    const bp_status status =
        bp_kernel_find(&t_.target(), 0, BP_KERNEL_NATIVE, case_.op, call.frame().data(), &choice);
    bp_error_clear();
    return status == BP_OK ? choice.kernel->numerics : nullptr;
  }

  void write_comment() {
    out_
        << "/* A call that fails on a backend, written by bp-conformance, suite " << kSuiteVersion
        << ".\n *\n *   " << t_.this_case().id << ", shrunk\n *\n"
        << " *   cc repro.c -lbackplane -lm -o repro && ./repro [PLUGIN [KEY=VALUE ...]]\n *\n"
        << " * Exits with 0 if every element is right, with 1 if one is not, with 2 if the plugin\n"
        << " * does not load.\n */";
  }

  void write_settings() {
    out_ << "static const char kPlugin[] = " << quoted(t_.target().plugin->path) << ";\n"
         << "enum { kDevice = " << t_.target().index
         << ", kOptionCount = " << t_.subject().options.size()
         << ", kOperandCount = " << case_.tensors.size() << " };\n#define kOptions";
    for (const bp_option& option : t_.subject().options) {
      out_ << " {" << quoted(option.key) << ", " << quoted(option.value) << "},";
    }
    out_ << (t_.subject().options.empty() ? " {0}\n" : "\n");
  }

  void write_array(const std::string& type, const std::string& name,
                   std::vector<std::string> values) {
    if (values.empty()) values.emplace_back("0");  // C has no array without elements.
    std::string line = "static const " + type + " " + name + "[] = {";
    for (size_t i = 0; i < values.size(); ++i) {
      const std::string word = values[i] + (i + 1 < values.size() ? "," : "};");
      if (line.size() + 1 + word.size() > kWidth) {
        out_ << line << "\n";
        line = "   ";
      }
      line += (line.back() == '{' ? "" : " ") + word;
    }
    out_ << line << "\n";
  }

  static std::vector<std::string> texts(const Shape& values) {
    std::vector<std::string> all;
    for (const int64_t value : values) all.push_back(std::to_string(value));
    return all;
  }

  void write_operands() {
    const Expectation expected = expectation(case_, data_, declared_);
    const Expectation other = expectation(case_, flushed(data_), declared_);
    size_t output = 0;
    for (size_t i = 0; i < case_.tensors.size(); ++i) {
      const TensorArgument& argument = case_.tensors[i];
      const std::string number = std::to_string(i);
      write_array("int64_t", "shape_" + number, texts(argument.shape));
      write_array("int64_t", "strides_" + number,
                  texts(place(argument.layout, argument.shape).strides));
      if (argument.role != Role::kOutput) write_elements(i);
      if (argument.role == Role::kInput) continue;
      const bool may_flush = expected.numerics.flush_inputs;
      write_expected(i, expected.outputs.at(output), other.outputs.at(output), may_flush);
      ++output;
    }
    out_ << "\nstatic struct operand operands[] = {\n";
    for (size_t i = 0; i < case_.tensors.size(); ++i) write_operand(i);
    out_ << "};\n";
  }

  void write_elements(size_t i) {
    const TensorArgument& argument = case_.tensors[i];
    std::vector<std::string> words;
    for (const DoubleDouble& value : data_.tensors()[i].data) {
      words.push_back(hex(bits_of(argument.dtype, value)));
    }
    const std::string type = "uint" + std::to_string(8 * element_size(argument.dtype)) + "_t";
    write_array(type, "elements_" + std::to_string(i), std::move(words));
  }

  // Returns the values that accept() allows for one element.
  static Interval interval_of(bp_dtype dtype, const Exact& exact, const Numerics& numerics) {
    if (isnan(exact.value)) return {NAN, NAN};
    Interval interval = accepted_interval(dtype, exact, numerics);
    const double least = std::fabs(exact.value.hi) - exact.bound;
    if (numerics.flush_outputs && least < float_format(dtype)->smallest_normal()) {
      interval = {std::min(interval.low, 0.0), std::max(interval.high, 0.0)};
    }
    // The sign of a zero matters only if the expectation says so.
    if (!exact.sign_of_zero && interval.low == 0 && interval.high == 0) interval = {-0.0, 0.0};
    return interval;
  }

  void write_expected(size_t i, const Expected& expected, const Expected& other, bool may_flush) {
    const bp_dtype dtype = case_.tensors[i].dtype;
    const Numerics numerics = resolve_numerics(declared_, dtype);
    std::vector<std::string> low, high, right;
    for (size_t at = 0; at < expected.value.size(); ++at) {
      const auto element = static_cast<int64_t>(at);
      collect_alsos(i, expected, element);
      if (!is_float(dtype)) {
        right.push_back(hex(bits_of(dtype, expected.value[at])));
        continue;
      }
      Interval interval = interval_of(dtype, exact_at(expected, element), numerics);
      const Interval flushed_one = interval_of(dtype, exact_at(other, element), numerics);
      if (may_flush && !std::isnan(interval.low) && !std::isnan(flushed_one.low)) {
        interval = {std::min(interval.low, flushed_one.low),
                    std::max(interval.high, flushed_one.high)};
      }
      low.push_back(constant(interval.low));
      high.push_back(constant(interval.high));
    }
    const std::string number = std::to_string(i);
    if (!is_float(dtype)) return write_array("uint64_t", "right_" + number, std::move(right));
    write_array("double", "low_" + number, std::move(low));
    write_array("double", "high_" + number, std::move(high));
  }

  void collect_alsos(size_t i, const Expected& expected, int64_t element) {
    if (!expected.also_right) return;
    const auto add = [&](double value) {
      alsos_.push_back("{" + std::to_string(i) + ", " + std::to_string(element) + ", " +
                       constant(value) + "}");
    };
    if (is_float(case_.tensors[i].dtype)) {
      if (expected.also_right(element, DoubleDouble(NAN))) add(NAN);
      return;
    }
    for (int64_t value = 0; value < kTriedAlternatives; ++value) {
      if (expected.also_right(element, DoubleDouble::from_int64(value))) {
        add(static_cast<double>(value));
      }
    }
  }

  void write_alsos() {
    if (alsos_.empty()) alsos_.emplace_back("{-1, 0, 0}");
    write_array("struct also", "alsos", alsos_);
  }

  // Writes the memory of an operand, as the cases of the suite lay it out.
  void write_operand(size_t i) {
    const TensorArgument& argument = case_.tensors[i];
    const Placement placement = place(argument.layout, argument.shape);
    const uint64_t bits = dtype_bits(argument.dtype);
    const auto bytes_of = [&](int64_t count) {
      return tensors::packed_bytes(static_cast<uint64_t>(count), static_cast<uint32_t>(bits));
    };
    const uint64_t heap =
        std::max<uint64_t>(t_.target().properties->heaps->tensor_offset_alignment_bytes, 1);
    const uint64_t multiple = std::max<uint64_t>(heap, 256);
    const uint64_t canary = round_up(std::max(t_.options().canary_bytes, multiple), multiple);
    uint64_t front = canary;
    if (argument.layout == Layout::kOffset) front += std::max(heap, element_size(argument.dtype));
    const uint64_t before = bytes_of(-placement.lowest);
    const uint64_t bytes = front + before + bytes_of(placement.highest + 1) + canary;
    size_t shares = i;
    for (size_t earlier = i; earlier-- > 0 && !argument.alias.empty();) {
      if (case_.tensors[earlier].name == argument.alias) shares = earlier;
    }
    const std::string number = std::to_string(i);
    const bool is_input = argument.role == Role::kInput;
    const auto or_null = [&](bool has, const char* name) {
      return has ? name + number : std::string("NULL");
    };
    out_ << "    {\"" << argument.name << "\", " << bits << ", " << bytes << ", " << shares << ", "
         << or_null(argument.role != Role::kOutput, "elements_") << ", "
         << or_null(!is_input && is_float(argument.dtype), "low_") << ", "
         << or_null(!is_input && is_float(argument.dtype), "high_") << ", "
         << or_null(!is_input && !is_float(argument.dtype), "right_")
         << ",\n     {.byte_offset = " << front + before << ", .shape = shape_" << number
         << ", .strides = strides_" << number << ", .ndim = " << argument.shape.size()
         << ",\n      .dtype = " << macro_of(argument.dtype) << "},\n     NULL, NULL},\n";
  }

  void write_launch() {
    const OpInfo& info = op_info(case_.op);
    std::string upper(info.name);
    std::ranges::transform(upper, upper.begin(),
                           [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    out_ << "  bp_" << info.name << "_args args = {.struct_size = sizeof(args)};\n";
    write_tensors(info);
    for (const Attribute& attribute : case_.attributes) write_attribute(attribute);
    out_ << "  bp_status status = bp_op_launch(target, NULL, 0, BP_OP_" << upper << ", &args);\n"
         << kProgramEnd;
    if (case_.fails_on_device) {
      out_ << "  if (status != BP_OK) return puts(\"the stream fails, as it must\"), 0;\n"
              "  return puts(\"the stream did not fail\"), 1;\n}\n";
    } else {
      out_ << "  return status == BP_OK ? check(target) : fail(\"synchronize\", status);\n}\n";
    }
  }

  void write_tensors(const OpInfo& info) {
    std::set<std::string_view> lists;
    for (size_t i = 0; i < case_.tensors.size(); ++i) {
      const std::string_view name = case_.tensors[i].name;
      if (!info.member(name).is_list()) {
        out_ << "  args." << name << " = &operands[" << i << "].tensor;\n";
      } else if (lists.insert(name).second) {
        write_tensor_list(name);
      }
    }
  }

  void write_tensor_list(std::string_view name) {
    size_t count = 0;
    out_ << "  const bp_tensor* list_" << name << "[] = {";
    for (size_t i = 0; i < case_.tensors.size(); ++i) {
      if (case_.tensors[i].name != name) continue;
      out_ << (count++ == 0 ? "" : ", ") << "&operands[" << i << "].tensor";
    }
    out_ << "};\n  args." << name << " = list_" << name << ";\n  args." << name
         << "_count = " << count << ";\n";
  }

  void write_attribute(const Attribute& attribute) {
    const std::string name = "args." + std::string(attribute.name);
    if (const auto* integer = std::get_if<int64_t>(&attribute.value)) {
      out_ << "  " << name << " = " << *integer << ";\n";
    } else if (const auto* number = std::get_if<double>(&attribute.value)) {
      out_ << "  " << name << " = " << constant(*number) << ";\n";
    } else if (const auto* list = std::get_if<Shape>(&attribute.value)) {
      out_ << "  ";
      write_array("int64_t", "list_" + std::string(attribute.name), texts(*list));
      out_ << "  " << name << " = list_" << attribute.name << ";\n  " << name
           << "_count = " << list->size() << ";\n";
    } else {
      const auto& scalar = std::get<bp_scalar>(attribute.value);
      out_ << "  " << name << "_scalar = (bp_scalar){" << macro_of(scalar.dtype) << ", 0, UINT64_C("
           << hex(scalar.bits) << "), UINT64_C(" << hex(scalar.imaginary_bits) << ")};\n";
    }
  }

  Context& t_;
  const OpCase& case_;
  CallData data_;
  const bp_numerics* declared_;
  std::vector<std::string> alsos_;
  std::ostringstream out_;
};

}  // namespace

std::string standalone_program(Context& t, const OpCase& op_case) {
  return Program(t, op_case).write();
}

}  // namespace bp::conformance
