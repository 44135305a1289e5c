#include "runtime/io/onnx/test_folder.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "runtime/io/onnx/composed.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp::onnx {
namespace {

namespace fs = std::filesystem;

std::vector<Tensor> load_numbered(const fs::path& folder, const std::string& kind, Device device) {
  std::vector<Tensor> tensors;
  for (size_t i = 0;; ++i) {
    const fs::path file = folder / (kind + "_" + std::to_string(i) + ".pb");
    if (!fs::exists(file)) return tensors;
    tensors.push_back(load_onnx_tensor(file, device));
  }
}

std::string shown(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

// Returns the first place at which the values differ, or -1.
template <typename T, typename Agrees>
int64_t first_difference(const std::vector<T>& a, const std::vector<T>& b, const Agrees& agrees) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!agrees(a[i], b[i])) return static_cast<int64_t>(i);
  }
  return -1;
}

std::string float_difference(const HostTensor& a, const HostTensor& b,
                             const Tolerances& tolerances) {
  const std::vector<double> given = a.to_doubles("the output");
  const std::vector<double> expected = b.to_doubles("the expected output");
  const int64_t i = first_difference(given, expected, [&](double x, double y) {
    if (std::isnan(y)) return std::isnan(x);
    if (x == y) return true;
    return std::abs(x - y) <= tolerances.absolute + tolerances.relative * std::abs(y);
  });
  if (i < 0) return "";
  const auto place = static_cast<size_t>(i);
  return "element " + std::to_string(i) + " is " + shown(given[place]) + ", expected " +
         shown(expected[place]);
}

std::string integer_difference(const HostTensor& a, const HostTensor& b) {
  const std::vector<int64_t> given = a.to_ints("the output");
  const std::vector<int64_t> expected = b.to_ints("the expected output");
  const int64_t i = first_difference(given, expected, std::equal_to<>());
  if (i < 0) return "";
  const auto place = static_cast<size_t>(i);
  return "element " + std::to_string(i) + " is " + std::to_string(given[place]) + ", expected " +
         std::to_string(expected[place]);
}

// The data sets of ONNX 1.12 hold the bits of bf16 as UINT16.
Tensor as_declared(const Tensor& tensor, const OnnxValueInfo& info) {
  if (info.dtype != BP_BF16 || tensor.dtype() != BP_U16) return tensor;
  HostTensor host = to_host(tensor);
  host.dtype = BP_BF16;
  return to_device(host, tensor.device());
}

// Returns what is wrong with the outputs of one data set, or "".
std::string run_data_set(const OnnxModel& model, const fs::path& folder,
                         const Tolerances& tolerances, bool& is_random) {
  const std::vector<Tensor> inputs = load_numbered(folder, "input", model.device());
  const std::vector<Tensor> expected = load_numbered(folder, "output", model.device());
  if (inputs.size() > model.inputs().size() || expected.size() != model.outputs().size()) {
    return folder.filename().string() + " has " + std::to_string(inputs.size()) + " inputs and " +
           std::to_string(expected.size()) + " outputs, the model " +
           std::to_string(model.inputs().size()) + " and " + std::to_string(model.outputs().size());
  }
  TensorMap named;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const OnnxValueInfo& info = model.inputs()[i];
    named[info.name] = as_declared(inputs[i], info);
  }
  const TensorMap outputs =
      model.run(named, [&](const OnnxNodeRun& run) { is_random |= run.is_random; });
  for (size_t i = 0; i < expected.size(); ++i) {
    const OnnxValueInfo& info = model.outputs()[i];
    const Tensor& given = outputs.at(info.name);
    std::string wrong = difference(given, as_declared(expected[i], info), tolerances);
    const bool is_wrong_value = wrong.starts_with("element");
    if (wrong.empty() || (is_random && is_wrong_value)) continue;
    return wrong.insert(0, "output '" + info.name + "': ");
  }
  return "";
}

}  // namespace

std::string difference(const Tensor& given, const Tensor& expected, const Tolerances& tolerances) {
  if (given.dtype() != expected.dtype() || !(given.shape() == expected.shape())) {
    return "it is " + dtype_text(given.dtype()) + " " + bp::to_string(given.shape()) +
           ", expected " + dtype_text(expected.dtype()) + " " + bp::to_string(expected.shape());
  }
  const auto read = [](const Tensor& x) {
    return to_host(detail::is_coded(x.dtype()) ? detail::decoded(x) : x);
  };
  const HostTensor a = read(given), b = read(expected);
  return is_plain_float(a.dtype) ? float_difference(a, b, tolerances) : integer_difference(a, b);
}

TestResult run_test_folder(const fs::path& folder, Device device, const Tolerances& tolerances) {
  TestResult result{folder.filename()};
  const Stream stream(device);  // If the work of a test fails, the stream stays failed.
  const StreamGuard guard(stream);
  try {
    const OnnxModel model = OnnxModel::load(folder / "model.onnx", device);
    bool is_random = false;
    size_t sets = 0;
    for (;; ++sets) {
      const fs::path data = folder / ("test_data_set_" + std::to_string(sets));
      if (!fs::exists(data)) break;
      result.reason = run_data_set(model, data, tolerances, is_random);
      if (!result.reason.empty()) return result;
    }
    if (sets == 0) {
      result.reason = "there is no folder test_data_set_0";
      return result;
    }
    result.outcome = is_random ? Outcome::kPassedInShape : Outcome::kPassed;
  } catch (const Error& error) {
    result.outcome = error.code() == BP_UNSUPPORTED ? Outcome::kUnsupported : Outcome::kFailed;
    result.reason = error.what();
    const std::string prefix = folder.string() + "/";
    if (result.reason.starts_with(prefix)) result.reason.erase(0, prefix.size());
  }
  return result;
}

std::vector<fs::path> find_tests(const fs::path& folder) {
  if (fs::exists(folder / "model.onnx")) return {folder};
  std::vector<fs::path> tests;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (fs::exists(entry.path() / "model.onnx")) tests.push_back(entry.path());
  }
  if (error) throw Error(BP_NOT_FOUND, folder.string() + ": " + error.message());
  std::ranges::sort(tests);
  return tests;
}

std::string group_of(const std::string& reason) {
  if (const size_t line = reason.find('\n'); line != std::string::npos) {
    return group_of(reason.substr(0, line));
  }
  const size_t node = reason.rfind("node ");
  const size_t open = node == std::string::npos ? node : reason.find('(', node);
  const size_t of = open == std::string::npos ? open : reason.find(" of ", open);
  const size_t close = of == std::string::npos ? of : reason.find("): ", of);
  if (close != std::string::npos) {
    return reason.substr(open + 1, of - open - 1) + ": " + reason.substr(close + 3);
  }
  const size_t quote = reason.rfind("' ");
  return quote == std::string::npos ? reason : "a value " + reason.substr(quote + 2);
}

std::map<std::string, std::string> read_expectation(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(BP_NOT_FOUND, path + ": the file cannot be read");
  std::map<std::string, std::string> expectation;
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (line.empty() || line[0] == '#') continue;
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) {
      throw Error(BP_INVALID_ARGUMENT,
                  path + ":" + std::to_string(number) + ": the line is not 'NAME: REASON'");
    }
    expectation[line.substr(0, colon)] = line.substr(colon + 2);
  }
  return expectation;
}

}  // namespace bp::onnx
