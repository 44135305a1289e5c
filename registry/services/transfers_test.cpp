// Tests copies of bytes and tensors between host memory and two devices whose streams the test
// runs.
#include "registry/services/transfers.hpp"

#include <numeric>

#include "backplane/ops.h"
#include "registry/tests/fake_memory.hpp"

namespace bp::services {
namespace {

// How often a callback came, and with which status.
struct Calls {
  int count = 0;
  bp_status result = -1;
  Completion completion() {
    return {[](void* self, bp_status status) {
              ++static_cast<Calls*>(self)->count;
              static_cast<Calls*>(self)->result = status;
            },
            this};
  }
};

template <typename T>
double element(const unsigned char* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return static_cast<double>(value);
}

template <typename T>
void put(unsigned char* at, double value) {
  const auto typed = static_cast<T>(value);
  std::memcpy(at, &typed, sizeof(typed));
}

// The op `copy` of a fake device: strided, between f32, f64 and i32.
bp_status launch(const bp_target* target, bp_stream* stream, bp_launch_flags, uint32_t op,
                 const void* args) {
  EXPECT_EQ(op, BP_OP_COPY);
  const auto& copy = *static_cast<const bp_copy_args*>(args);
  const bp_tensor x = *copy.x, y = *copy.y;
  const std::vector<int64_t> shape(x.shape, x.shape + x.ndim), from(x.strides, x.strides + x.ndim),
      to(y.strides, y.strides + y.ndim);
  FakeMemory::from(target->allocator->self).submit(stream, [=] {
    const auto at = [](const bp_tensor& t, const std::vector<int64_t>& strides, int64_t i,
                       int64_t j) {
      const int64_t offset = i * strides[0] + j * strides[1];
      return reinterpret_cast<unsigned char*>(t.buffer) + t.byte_offset +
             offset * static_cast<int64_t>(bp_dtype_bits(t.dtype) / 8);
    };
    for (int64_t i = 0; i < shape[0]; ++i) {
      for (int64_t j = 0; j < shape[1]; ++j) {
        const unsigned char* const source = at(x, from, i, j);
        unsigned char* const result = at(y, to, i, j);
        const double value = x.dtype == BP_F32   ? element<float>(source)
                             : x.dtype == BP_F64 ? element<double>(source)
                                                 : element<int32_t>(source);
        if (y.dtype == BP_F32) put<float>(result, value);
        if (y.dtype == BP_F64) put<double>(result, value);
        if (y.dtype == BP_I32) put<int32_t>(result, value);
      }
    }
    return true;
  });
  return BP_OK;
}

// A tensor (2, 3), row-major or transposed.
struct Matrix {
  int64_t shape[2] = {2, 3};
  int64_t strides[2];
  bp_tensor tensor{};
  bp_block* block = nullptr;
  std::vector<unsigned char> host;

  Matrix(bp_dtype dtype, bool is_transposed, FakeMemory* fake = nullptr)
      : strides{is_transposed ? 1 : 3, is_transposed ? 2 : 1} {
    const uint64_t size = 6 * bp_dtype_bits(dtype) / 8;
    tensor.shape = shape;
    tensor.strides = strides;
    tensor.ndim = 2;
    tensor.dtype = dtype;
    if (fake != nullptr) {
      block = fake->take(size);
      tensor.buffer = block->ref.buffer;
      tensor.byte_offset = block->ref.byte_offset;
    } else {
      host.resize(size);
      tensor.buffer = reinterpret_cast<bp_buffer*>(host.data());
    }
  }
  ~Matrix() { Cache::free(block); }

  unsigned char* at(int i, int j) const {
    return reinterpret_cast<unsigned char*>(tensor.buffer) + tensor.byte_offset +
           (i * strides[0] + j * strides[1]) *
               static_cast<int64_t>(bp_dtype_bits(tensor.dtype) / 8);
  }
  void fill() const {
    for (int k = 0; k < 6; ++k) {
      unsigned char* const place = at(k / 3, k % 3);
      tensor.dtype == BP_F64 ? put<double>(place, k) : put<float>(place, k);
    }
  }
  bool is_filled() const {
    for (int k = 0; k < 6; ++k) {
      const unsigned char* const place = at(k / 3, k % 3);
      if ((tensor.dtype == BP_F64 ? element<double>(place) : element<float>(place)) != k) {
        return false;
      }
    }
    return true;
  }
};

CopySide side(FakeMemory& fake, const Matrix& matrix, uintptr_t stream = 1) {
  return {&fake.target, fake.first, FakeMemory::stream(stream), &matrix.tensor};
}
CopySide host_side(const Matrix& matrix) { return {nullptr, nullptr, nullptr, &matrix.tensor}; }

DevicePlace place(FakeMemory& fake, const bp_block* block) {
  return {fake.target, nullptr, FakeMemory::stream(1), block->ref};
}

TEST(Transfers, CallBackWhenTheCopyHasEnded) {
  for (const bool has_on_complete : {true, false}) {
    FakeMemory fake;
    fake.has_on_complete = has_on_complete;
    bp_block* const block = fake.take(64);
    std::vector<unsigned char> bytes(64), back(64);
    std::iota(bytes.begin(), bytes.end(), uint8_t{1});
    Calls up, down;
    EXPECT_EQ(upload(place(fake, block), bytes.data(), up.completion()), BP_OK);
    EXPECT_EQ(download(back.data(), place(fake, block), down.completion()), BP_OK);
    EXPECT_EQ(up.count + down.count, 0);
    fake.run();
    EXPECT_EQ(up.count, 1);
    EXPECT_EQ(down.count, 1);
    EXPECT_EQ(down.result, BP_OK);
    EXPECT_EQ(back, bytes);
    Cache::free(block);
  }
}

TEST(Transfers, TakeTheBytesDuringTheCallWithoutARelease) {
  FakeMemory fake;
  bp_block* const block = fake.take(4);
  uint32_t value = 7;
  EXPECT_EQ(upload(place(fake, block), &value, {}), BP_OK);
  value = 8;
  fake.run();
  EXPECT_EQ(element<uint32_t>(FakeMemory::bytes(block->ref)), 7);
  Cache::free(block);
}

TEST(Transfers, RefuseAReleaseWhereTheStreamCaptures) {
  FakeMemory fake;
  fake.streams.is_capturing = [](void*, bp_stream*, uint32_t* out) -> bp_status {
    *out = 1;
    return BP_OK;
  };
  bp_block* const block = fake.take(4);
  uint32_t value = 7;
  Calls calls;
  EXPECT_EQ(upload(place(fake, block), &value, calls.completion()), BP_INVALID_ARGUMENT);
  EXPECT_EQ(upload(place(fake, block), &value, {}), BP_OK);
  EXPECT_EQ(calls.count, 0);
  Cache::free(block);
}

TEST(Transfers, FindThePlaceOfARangeAndRecordTheStream) {
  FakeMemory fake;
  bp_block* const block = fake.take(64);
  bp_buffer_ref place{};
  const bp_target* target = nullptr;
  bp_stream* stream = nullptr;
  EXPECT_EQ(Cache::find_place(block, 8, 56, "upload", stream, place, target), BP_OK);
  EXPECT_EQ(place.byte_offset, block->ref.byte_offset + 8);
  EXPECT_EQ(stream, fake.target.default_stream);
  EXPECT_EQ(target, &fake.target);
  for (const auto& [offset, size] : {std::pair{uint64_t{65}, uint64_t{0}}, {8, 57}, {1, ~0ull}}) {
    EXPECT_EQ(Cache::find_place(block, offset, size, "upload", stream, place, target),
              BP_INVALID_ARGUMENT);
  }
  bp_stream* other = FakeMemory::stream(2);
  EXPECT_EQ(Cache::find_place(block, 0, 64, "upload", other, place, target), BP_OK);
  Cache::free(block);
  EXPECT_EQ(fake.live_events, 1) << "the block waits for the other stream";
  EXPECT_EQ(Cache::find_place(block, 0, 64, "upload", other, place, target), BP_INVALID_ARGUMENT);
}

TEST(CopyTensor, GoesFromHostToDeviceAndBackInAllForms) {
  for (const bp_dtype dtype : {BP_F32, BP_F64}) {
    for (int form = 0; form < 8; ++form) {
      FakeMemory fake;
      const Matrix from(BP_F32, form & 1), to(dtype, form & 4);
      const Matrix on(dtype, form & 2, &fake);
      from.fill();
      Calls up, down;
      EXPECT_EQ(copy_tensor(side(fake, on), host_side(from), up.completion(), launch), BP_OK);
      EXPECT_EQ(copy_tensor(host_side(to), side(fake, on), down.completion(), launch), BP_OK);
      fake.run();
      EXPECT_TRUE(on.is_filled()) << form;
      EXPECT_TRUE(to.is_filled()) << form;
      EXPECT_EQ(up.count, 1);
      EXPECT_EQ(down.count, 1);
    }
  }
}

TEST(CopyTensor, OrdersItselfOnBothStreamsOfOneDevice) {
  FakeMemory fake;
  const Matrix from(BP_F32, false, &fake), to(BP_F64, true, &fake);
  from.fill();
  Calls calls;
  EXPECT_EQ(copy_tensor(side(fake, to, 2), side(fake, from, 1), calls.completion(), launch), BP_OK);
  fake.submit(FakeMemory::stream(1), [&] {
    std::memset(from.at(0, 0), 0, 24);  // It is ordered behind the copy.
    return true;
  });
  fake.run();
  EXPECT_TRUE(to.is_filled());
  EXPECT_EQ(calls.count, 1);
}

// A device without pinned memory may read other memory during the call, so the bytes come first.
TEST(CopyTensor, GoesBetweenDevicesInTurnWithoutPinnedMemory) {
  for (int form = 0; form < 8; ++form) {
    FakeMemory a, b;
    const bp_plugin plugins[2] = {};
    a.target.plugin = &plugins[0];
    b.target.plugin = &plugins[1];
    const Matrix from(BP_F32, form & 1, &a), to(form & 4 ? BP_F64 : BP_F32, form & 2, &b);
    from.fill();
    Calls calls;
    EXPECT_EQ(copy_tensor(side(b, to), side(a, from), calls.completion(), launch), BP_OK);
    EXPECT_EQ(calls.count, 1);
    b.run();
    EXPECT_TRUE(to.is_filled()) << form;
  }
}

TEST(CopyTensor, WaitsWhereADeviceHasNoHostSignals) {
  FakeMemory a, b;
  const bp_plugin plugins[2] = {};
  a.target.plugin = &plugins[0];
  b.target.plugin = &plugins[1];
  b.has_host_signals = false;
  const Matrix from(BP_F32, true, &a), to(BP_F64, true, &b);
  from.fill();
  Calls calls;
  EXPECT_EQ(copy_tensor(side(b, to), side(a, from), calls.completion(), launch), BP_OK);
  EXPECT_EQ(calls.count, 1);
  b.run();
  EXPECT_TRUE(to.is_filled());
}

TEST(CopyTensor, LeavesNothingBehindIfTheSecondDeviceRefuses) {
  FakeMemory a, b;
  const bp_plugin plugins[2] = {};
  a.target.plugin = &plugins[0];
  b.target.plugin = &plugins[1];
  b.allocator.copy_from_host = [](void*, bp_stream*, const bp_buffer_ref*, const void*,
                                  bp_borrow) -> bp_status { return BP_DEVICE_LOST; };
  const Matrix from(BP_F32, false, &a), to(BP_F32, false, &b);
  Calls calls;
  EXPECT_EQ(copy_tensor(side(b, to), side(a, from), calls.completion(), launch), BP_DEVICE_LOST);
  a.run();
  b.run();
  EXPECT_EQ(calls.count, 0);
}

TEST(CopyTensor, RefusesWhatCannotBeCopied) {
  FakeMemory fake;
  const Matrix a(BP_F32, false, &fake), b(BP_F32, false);
  const auto copy = [&](const bp_tensor& dst) {
    Matrix other(BP_F32, false);
    other.tensor = dst;
    return copy_tensor(side(fake, a), host_side(other), {}, launch);
  };
  EXPECT_EQ(copy_tensor(host_side(b), host_side(b), {}, launch), BP_INVALID_ARGUMENT);
  bp_tensor bad = b.tensor;
  bad.ndim = 1;
  EXPECT_EQ(copy(bad), BP_INVALID_ARGUMENT);
  bad = b.tensor;
  bad.buffer = nullptr;
  EXPECT_EQ(copy(bad), BP_INVALID_ARGUMENT);
  bad = b.tensor;
  bad.strides = nullptr;
  EXPECT_EQ(copy(bad), BP_INVALID_ARGUMENT);
  bad = b.tensor;
  bad.dtype = BP_I4;
  const int64_t gaps[] = {4, 1};
  bad.strides = gaps;
  EXPECT_EQ(copy(bad), BP_UNSUPPORTED);
  bad = b.tensor;
  bad.layout = reinterpret_cast<const bp_layout*>(&bad);
  EXPECT_EQ(copy(bad), BP_UNSUPPORTED);
}

}  // namespace
}  // namespace bp::services
