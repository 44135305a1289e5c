// Converts tensors between f32 and the blocks of a format, through the table of layouts of a
// plugin, for tests that compare the bytes with those of another program.
//
//   convert_blocks decode|encode FORMAT ELEMENTS < input > output
//
// The program fails, with the plugin's words, if the plugin refuses.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "backends/shell/test_backend.hpp"
#include "backplane/layout.h"

namespace bp {
namespace {

void check(TestBackend& b, bp_status status, const char* what) {
  if (status != BP_OK) throw std::runtime_error(std::string(what) + ": " + b.text);
}

const bp_layout* layout_of(TestBackend& b, const char* format, const int64_t* shape) {
  const bp_layout_desc desc{.struct_size = sizeof(desc),
                            .struct_type = BP_STRUCT_LAYOUT_DESC,
                            .shape = shape,
                            .ndim = 1,
                            .kind = BP_LAYOUT_KIND_QUANTIZED,
                            .dtype = BP_F32,
                            .format_name = format};
  const bp_layout* layout = nullptr;
  check(b, b.layouts->from_desc(b.layouts->self, b.device, &desc, &layout), "from_desc");
  return layout;
}

std::vector<std::byte> read_input(size_t size_bytes) {
  std::vector<std::byte> bytes(size_bytes);
  if (std::fread(bytes.data(), 1, size_bytes, stdin) != size_bytes || std::fgetc(stdin) != EOF) {
    throw std::runtime_error("the input does not have " + std::to_string(size_bytes) + " bytes");
  }
  return bytes;
}

void convert(TestBackend& b, bool decodes, const char* format, int64_t count) {
  const bp_layout* const layout = layout_of(b, format, &count);
  const uint64_t dense_bytes = static_cast<uint64_t>(count) * sizeof(float);
  bp_buffer *const blocks = b.make_buffer(layout->physical_size_bytes), *const dense =
                                                                            b.make_buffer(
                                                                                dense_bytes);
  const int64_t stride = 1;
  const bp_tensor strided{
      .buffer = dense, .shape = &count, .strides = &stride, .ndim = 1, .dtype = BP_F32};
  bp_tensor laid = strided;
  laid.buffer = blocks;
  laid.layout = layout;
  const bp_tensor &src = decodes ? laid : strided, &dst = decodes ? strided : laid;
  const bp_buffer_ref from{src.buffer, 0, decodes ? layout->physical_size_bytes : dense_bytes},
      to{dst.buffer, 0, decodes ? dense_bytes : layout->physical_size_bytes};
  const std::vector<std::byte> input = read_input(from.size_bytes);
  std::vector<std::byte> output(to.size_bytes);
  const bp_allocator_ops& m = *b.allocator;
  bp_stream* const stream = b.default_stream();
  check(b, m.copy_from_host(m.self, stream, &from, input.data(), BP_BORROW_DURING_CALL),
        "copy_from_host");
  check(b, b.layouts->convert(b.layouts->self, stream, &dst, &src), "convert");
  check(b, m.copy_to_host(m.self, stream, output.data(), &to, BP_BORROW_DURING_CALL, UINT64_MAX),
        "copy_to_host");
  std::fwrite(output.data(), 1, output.size(), stdout);
  check(b, b.layouts->release(b.layouts->self, layout), "release");
  for (bp_buffer* buffer : {blocks, dense}) check(b, m.deallocate(m.self, buffer, stream), "free");
}

}  // namespace
}  // namespace bp

int main(int argument_count, char** arguments) {
  const std::string verb = argument_count == 4 ? arguments[1] : "";
  if (verb != "decode" && verb != "encode") {
    std::fputs("usage: convert_blocks decode|encode FORMAT ELEMENTS < input > output\n", stderr);
    return 2;
  }
  try {
    bp::TestBackend backend(BACKEND_PATH);
    if (backend.layouts == nullptr) throw std::runtime_error("the plugin has no table of layouts");
    bp::convert(backend, verb == "decode", arguments[2], std::atoll(arguments[3]));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "convert_blocks: %s\n", e.what());
    return 1;
  }
}
