// The verb that explains a word: a tag, an op, a class of errors, a status, an outcome or a cause.
#include <algorithm>
#include <cctype>
#include <iostream>
#include <map>

#include "conformance/cli/verbs.hpp"
#include "conformance/explanations.hpp"
#include "conformance/tags.hpp"

namespace bp::conformance {
namespace {

std::string upper(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return result;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

// Prints the lines of a text with two spaces in front.
void print_lines(std::string_view text) {
  while (!text.empty()) {
    const std::string_view text_line = text.substr(0, text.find('\n'));
    std::cout << (text_line.empty() ? "" : "  ") << text_line << "\n";
    text.remove_prefix(std::min(text_line.size() + 1, text.size()));
  }
}

bool explain_tag(const std::string& tag) {
  const auto rows = tag_rows();
  const auto row = std::ranges::find(rows, tag, &TagRow::tag);
  if (row == rows.end()) return false;
  std::cout << "[" << row->tag << "] " << row->sentence << "\n  " << row->header << ":" << row->line
            << "\n";
  const CaseList& cases = CaseList::whole_suite();
  size_t count = 0;
  for (const Case& which : cases.cases()) {
    if (std::find(which.tags.begin(), which.tags.end(), tag) == which.tags.end()) continue;
    if (++count <= 20) std::cout << "  case " << which.id << "\n";
  }
  if (count > 20) std::cout << "  ... and " << count - 20 << " more cases\n";
  if (count == 0) std::cout << "  no case cites it; conformance/untestable.yaml says why\n";
  return true;
}

// Prints each row of the pages whose name is the word, in any case, or the word behind "BP_".
bool explain_rows(const std::string& word) {
  bool is_found = false;
  for (const ExplanationRow& row : explanation_rows()) {
    const std::string name = upper(row.name);
    if (name != word && name != "BP_" + word) continue;
    std::cout << row.kind << " " << row.name << ", from " << row.page << "\n";
    print_lines(row.text);
    is_found = true;
  }
  return is_found;
}

std::string kind_text(const bp_op_argument& argument) {
  constexpr const char* kKinds[] = {"?",
                                    "tensor",
                                    "optional tensor",
                                    "list of tensors",
                                    "output",
                                    "optional output",
                                    "list of outputs",
                                    "read and written",
                                    "list, read and written",
                                    "tensor or scalar",
                                    "scalar or tensor of one element",
                                    "i32",
                                    "i64",
                                    "u64",
                                    "f64",
                                    "list of i64",
                                    "dtype",
                                    "one of"};
  std::string text = argument.kind < std::size(kKinds) ? kKinds[argument.kind] : kKinds[0];
  for (uint32_t i = 0; i < argument.value_count; ++i) {
    text += std::string(i == 0 ? " " : ", ") + argument.value_names[i];
  }
  return text;
}

void print_argument(const bp_op_desc& op, const bp_op_argument& argument) {
  std::cout << "  " << argument.name << ": " << kind_text(argument);
  if (argument.dtype_rule != nullptr) std::cout << "; dtype " << argument.dtype_rule;
  if (argument.shape_rule != nullptr) std::cout << "; shape " << argument.shape_rule;
  if (argument.rank_rule != nullptr) std::cout << "; rank " << argument.rank_rule;
  if (argument.at_least != nullptr) std::cout << "; at least " << argument.at_least;
  if (argument.at_most != nullptr) std::cout << "; at most " << argument.at_most;
  if (argument.below != nullptr) std::cout << "; below " << argument.below;
  if (argument.default_text != nullptr) std::cout << "; default " << argument.default_text;
  if (argument.since > op.since) std::cout << "; since revision " << argument.since;
  std::cout << "\n";
  if (argument.doc != nullptr) std::cout << "      " << argument.doc << "\n";
}

void print_formula(const char* title, const char* formula) {
  if (formula == nullptr) return;
  std::cout << title << "\n";
  print_lines(formula);
}

void print_cases(uint32_t op) {
  std::map<std::string, size_t> counts;  // The cases of each dtype; "" for those without one.
  const CaseList& cases = CaseList::whole_suite();
  for (const Case& which : cases.cases()) {
    if (which.op == op) ++counts[which.dtype];
  }
  std::cout << "cases\n ";
  for (const auto& [dtype, count] : counts) {
    std::cout << " " << (dtype.empty() ? "any dtype" : dtype) << " " << count;
  }
  std::cout << (counts.empty() ? " none\n" : "\n");
  if (counts.empty()) return;
  std::cout << "  list them: bp-conformance list -k 'op." << bp_op_name(op) << ".*'\n";
}

bool explain_op(const std::string& name) {
  const uint32_t op = bp_op_from_name(name.c_str());
  const bp_op_desc* desc = nullptr;
  if (op == 0 || bp_op_describe(op, &desc) != BP_OK) return false;
  std::cout << "op " << desc->name << ": " << desc->doc << "\n";
  const auto* bytes = reinterpret_cast<const std::byte*>(desc->arguments);
  for (uint64_t i = 0; i < desc->argument_count; ++i) {
    print_argument(
        *desc, *reinterpret_cast<const bp_op_argument*>(bytes + i * desc->argument_stride_bytes));
  }
  if (desc->numerics != nullptr) {
    std::cout << "class of errors " << desc->numerics << "; bp-conformance explain "
              << desc->numerics << "\n";
  }
  print_formula("decomposition", desc->decomposition);
  print_formula("gradient", desc->backward);
  print_cases(op);
  return true;
}

[[noreturn]] void refuse(const std::string& word) {
  const std::string noun = upper(word).substr(0, word.find('-'));
  std::string known;
  for (const TagRow& row : tag_rows()) {
    if (row.tag.substr(0, row.tag.find('-')) != noun) continue;
    known += (known.empty() ? "" : ", ") + std::string(row.tag);
  }
  throw NothingMatched(
      "explain " + word +
      (known.empty() ? ": this is no tag (STREAM-3), op (softmax), class of errors (R1), status "
                       "(BP_TIMEOUT), outcome (Missing) or cause (stride)"
                     : ": no header has this tag; there are " + known));
}

}  // namespace

int explain_verb(const CommandLine& line) {
  const std::string word = upper(line.tag);  // The word in any case: "stream-3" means STREAM-3.
  const bool is_tag = explain_tag(word);
  const bool is_op = explain_op(lower(line.tag));
  const bool is_in_a_page = explain_rows(word);
  if (!is_tag && !is_op && !is_in_a_page) refuse(line.tag);
  return kExitOk;
}

}  // namespace bp::conformance
