// Tests captures whose memory the host keeps, on an asynchronous device.
#include <thread>

#include "registry/tests/capture_fixture.hpp"

namespace bp {
namespace {

std::string refusal() { return bp_error_text(); }

TEST_F(CaptureTest, ReplaysAnOpThatNeedsWorkspaceOnWhateverTheInputsHoldNow) {
  Floats x(*target, {16, 8}), y(*target, {16, 8}, {1, 16}, 0, 128), z(*target, {16, 8});
  x.set(random_values<float>(128));
  synchronize();
  bp_capture* const capture = begin();
  const uint64_t before = cached_allocations();
  ASSERT_EQ(softmax(x, y), BP_OK) << bp_error_text();
  EXPECT_EQ(cached_allocations(), before) << "the workspace is of the capture";
  bp_captured_graph* const graph = end(capture);
  EXPECT_EQ(info(graph).node_count, 1u);
  EXPECT_GT(info(graph).pool_bytes, 0u);
  EXPECT_EQ(info(graph).block_count, 0u);
  EXPECT_EQ(y.elements(), std::vector<float>(128, 77)) << "a capture runs nothing";
  for (const float scale : {1.0f, 0.5f}) {
    std::vector<float> values = random_values<float>(128);
    for (float& value : values) value *= scale;
    x.set(values);
    ASSERT_EQ(softmax(x, z), BP_OK) << bp_error_text();
    replay(graph);
    EXPECT_EQ(y.elements(), z.elements());
  }
  destroy(graph);
}

TEST_F(CaptureTest, RecordsADecomposedOpWithItsIntermediateTensors) {
  Floats x(*target, {4, 8}), y(*target, {4, 8}), z(*target, {4, 8});
  const bp_log_softmax_args args{
      .struct_size = sizeof(args), .x = x.get(), .y = y.get(), .axis = 1};
  bp_kernel_choice choice{};
  ASSERT_EQ(bp_kernel_find(target, 0, BP_KERNEL_DECOMPOSED, BP_OP_LOG_SOFTMAX, &args, &choice),
            BP_OK)
      << bp_error_text();
  bp_capture* const capture = begin();
  ASSERT_EQ(bp_kernel_launch(target, nullptr, 0, choice.kernel, &args), BP_OK) << bp_error_text();
  bp_captured_graph* const graph = end(capture);
  EXPECT_GT(info(graph).node_count, 1u);
  x.set(random_values<float>(32));
  bp_log_softmax_args eager = args;
  eager.y = z.get();
  ASSERT_EQ(bp_kernel_launch(target, nullptr, 0, choice.kernel, &eager), BP_OK);
  replay(graph);
  EXPECT_EQ(y.elements(), z.elements());
  destroy(graph);
}

TEST_F(CaptureTest, ReusesFreedBlocksOfOneStreamAtOnceAndGivesNobodyElseThem) {
  bp_capture* const capture = begin();
  bp_block* const first = take(3 << 20);
  const bp_buffer_ref place = first->ref;
  bp_block_free(first);
  bp_block* const second = take(3 << 20);
  EXPECT_EQ(second->ref.buffer, place.buffer);
  EXPECT_EQ(second->ref.byte_offset, place.byte_offset);
  bp_block_free(second);
  bp_captured_graph* const graph = end(capture);
  bp_block* const later = take(3 << 20);
  EXPECT_NE(later->ref.buffer, place.buffer) << "the memory is the graph's";
  bp_block_free(later);
  EXPECT_EQ(bp_cache_empty(target), BP_OK);
  EXPECT_GT(info(graph).pool_bytes, 0u);
  destroy(graph);
}

TEST_F(CaptureTest, LeavesTheCallerTheBlocksThatItHoldsUntilBothHaveEnded) {
  const uint64_t before = room();
  bp_capture* capture = begin();
  bp_block* block = take(30 << 20);
  fill(block, 7);
  bp_captured_graph* graph = end(capture);
  EXPECT_EQ(info(graph).block_count, 1u);
  replay(graph);
  EXPECT_EQ(first_byte(block), 7);
  destroy(graph);
  EXPECT_EQ(first_byte(block), 7);
  EXPECT_LT(room(), before) << "the caller has the block";
  bp_block_free(block);
  synchronize();
  EXPECT_EQ(room(), before);

  capture = begin();
  block = take(30 << 20);
  fill(block, 8);
  graph = end(capture);
  bp_block_free(block);
  replay(graph);
  synchronize();
  EXPECT_LT(room(), before) << "the graph has the memory";
  destroy(graph);
  synchronize();
  EXPECT_EQ(room(), before);
}

TEST_F(CaptureTest, GivesMemoryBackOnlyBehindReplaysOnOtherStreams) {
  const uint64_t before = room();
  const StreamHandle other = make_stream();
  bp_capture* const capture = begin();
  bp_block* const block = take(30 << 20);
  fill(block, 7);
  bp_captured_graph* const graph = end(capture);
  const bp_event_desc desc{.struct_size = sizeof(desc),
                           .struct_type = BP_STRUCT_EVENT_DESC,
                           .flags = BP_EVENT_HOST_SIGNAL};
  EventHandle gate;
  ASSERT_TRUE(create_event(*target, &desc, &gate).ok());
  ASSERT_EQ(target->streams->wait_event(target->streams->self, other.get(), gate.get()), BP_OK);
  replay(graph, other.get());
  bp_block_free(block);
  destroy(graph);
  EXPECT_EQ(bp_cache_empty(target), BP_OK) << bp_error_text();
  EXPECT_LT(room(), before) << "the replay has not run";
  ASSERT_EQ(target->events->signal(target->events->self, gate.get(), BP_OK), BP_OK);
  synchronize();
  EXPECT_EQ(bp_cache_empty(target), BP_OK) << bp_error_text();
  synchronize();
  EXPECT_EQ(room(), before);
}

TEST_F(CaptureTest, KnowsStreamsThatJoin) {
  const StreamHandle a = make_stream(), b = make_stream();
  bp_capture* const capture = begin(a.get());
  order(a.get(), b.get());
  const uint64_t before = cached_allocations();
  bp_block* const block = take(4096, b.get());
  EXPECT_EQ(cached_allocations(), before);
  fill(block, 9, b.get());
  order(b.get(), a.get());
  bp_captured_graph* const graph = end(capture);
  replay(graph, a.get());
  synchronize();
  EXPECT_EQ(first_byte(block), 9);
  bp_block_free(block);
  destroy(graph);
}

TEST_F(CaptureTest, FailsIfAStreamWasNotJoinedAgainAndLeavesNothing) {
  const uint64_t before = room();
  const StreamHandle a = make_stream(), b = make_stream();
  bp_capture* const capture = begin(a.get());
  order(a.get(), b.get());
  bp_block* const block = take(30 << 20, b.get());
  fill(block, 9, b.get());
  bp_block_free(block);
  bp_captured_graph* graph = nullptr;
  EXPECT_EQ(bp_capture_end(capture, &graph), BP_INVALID_ARGUMENT);
  EXPECT_NE(refusal().find("joined"), std::string::npos) << refusal();
  EXPECT_EQ(graph, nullptr);
  synchronize();
  EXPECT_EQ(room(), before);
  bp_block* const eager = take(512, b.get());
  fill(eager, 1, b.get());
  bp_block_free(eager);
}

TEST_F(CaptureTest, DoesNotReuseABlockThatOtherStreamsUse) {
  const StreamHandle other = make_stream();
  bp_capture* const capture = begin();
  bp_block* const block = take(4096);
  const bp_buffer_ref place = block->ref;
  ASSERT_EQ(bp_block_record_stream(block, other.get()), BP_OK);
  ASSERT_EQ(bp_block_free(block), BP_OK) << bp_error_text();
  synchronize();
  bp_block* const next = take(4096);
  EXPECT_NE(next->ref.byte_offset, place.byte_offset);
  bp_block_free(next);
  destroy(end(capture));
}

TEST_F(CaptureTest, DefersTheFreeOfABlockThatACapturingStreamUses) {
  const StreamHandle a = make_stream();
  bp_block* const block = take(4096);
  const bp_buffer_ref place = block->ref;
  ASSERT_EQ(bp_block_record_stream(block, a.get()), BP_OK);
  bp_capture* const capture = begin(a.get());
  ASSERT_EQ(bp_block_free(block), BP_OK) << bp_error_text();
  bp_block* next = take(4096);
  EXPECT_NE(next->ref.byte_offset, place.byte_offset);
  bp_block_free(next);
  bp_captured_graph* const graph = end(capture);
  EXPECT_EQ(info(graph).node_count, 0u) << "the free recorded nothing";
  synchronize();
  bp_block_free(take(512));  // This looks for blocks whose streams have ended.
  next = take(4096);
  bp_block* const last = take(4096);
  const auto is_it = [&](const bp_block* b) { return b->ref.byte_offset == place.byte_offset; };
  EXPECT_TRUE(is_it(next) || is_it(last)) << "it is free again";
  bp_block_free(next);
  bp_block_free(last);
  destroy(graph);
}

TEST_F(CaptureTest, TwoCanBeOpenOnTwoStreamsOfTwoThreads) {
  constexpr int kCount = 2;
  bp_captured_graph* graphs[kCount] = {};
  bp_block* blocks[kCount] = {};
  std::vector<std::thread> threads;
  threads.reserve(kCount);
  StreamHandle streams[kCount];
  for (StreamHandle& stream : streams) stream = make_stream();
  for (int i = 0; i < kCount; ++i) {
    threads.emplace_back([&, i] {
      bp_capture* const capture = begin(streams[i].get());
      for (int k = 0; k < 200; ++k) {
        bp_block* const block = take(2048, streams[i].get());
        fill(block, 1, streams[i].get());
        bp_block_free(block);
      }
      blocks[i] = take(2048, streams[i].get());
      fill(blocks[i], static_cast<unsigned char>(10 + i), streams[i].get());
      graphs[i] = end(capture);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(blocks[0]->ref.buffer, blocks[1]->ref.buffer) << "each has a pool";
  for (int i = 0; i < kCount; ++i) {
    replay(graphs[i], streams[i].get());
    synchronize();
    EXPECT_EQ(first_byte(blocks[i]), 10 + i);
    bp_block_free(blocks[i]);
    destroy(graphs[i]);
  }
}

TEST_F(CaptureTest, RefusesASecondCaptureOfOneStream) {
  bp_capture* const capture = begin();
  bp_capture* second = nullptr;
  EXPECT_EQ(bp_capture_begin(target, nullptr, nullptr, &second), BP_INVALID_ARGUMENT);
  EXPECT_NE(refusal().find("captures already"), std::string::npos) << refusal();
  EXPECT_EQ(bp_capture_end(capture, nullptr), BP_OK) << bp_error_text();
}

TEST_F(CaptureTest, CanBeAbandoned) {
  const uint64_t before = room();
  bp_capture* const capture = begin();
  bp_block* const block = take(30 << 20);
  fill(block, 3);
  bp_block_free(block);
  EXPECT_EQ(bp_capture_end(capture, nullptr), BP_OK) << bp_error_text();
  synchronize();
  EXPECT_EQ(room(), before);
  bp_block* const eager = take(512);
  fill(eager, 4);
  EXPECT_EQ(first_byte(eager), 4) << "the stream runs work again";
  bp_block_free(eager);
}

TEST_F(CaptureTest, ReplacesSlots) {
  bp_block *from = take(512), *to = take(512), *other = take(512);
  fill(from, 5);
  fill(other, 6);
  const bp_capture_desc desc{.struct_size = sizeof(desc),
                             .struct_type = BP_STRUCT_CAPTURE_DESC,
                             .slots = &from->ref,
                             .slot_count = 1};
  bp_capture* const capture = begin(nullptr, &desc);
  ASSERT_EQ(target->allocator->copy(target->allocator->self, target->default_stream, &to->ref,
                                    &from->ref),
            BP_OK)
      << bp_error_text();
  bp_captured_graph* const graph = end(capture);
  EXPECT_EQ(info(graph).slot_count, 1u);
  replay(graph);
  EXPECT_EQ(first_byte(to), 5);
  ASSERT_EQ(bp_captured_graph_bind(graph, 0, &other->ref), BP_OK) << bp_error_text();
  replay(graph);
  EXPECT_EQ(first_byte(to), 6);
  EXPECT_EQ(bp_captured_graph_bind(graph, 1, &other->ref), BP_INVALID_ARGUMENT);
  destroy(graph);
  for (bp_block* block : {from, to, other}) bp_block_free(block);
}

TEST_F(CaptureTest, RefusesBlocksOfPrivatePools) {
  PoolHandle pool;
  ASSERT_TRUE(create_pool(*target, "mine", &pool).ok());
  bp_capture* const capture = begin();
  BlockHandle block;
  const Status status =
      allocate(*target, nullptr, bp_block_desc{.size_bytes = 8, .pool = pool.get()}, &block);
  EXPECT_EQ(status.code, BP_INVALID_ARGUMENT);
  EXPECT_NE(status.message.find("its own pool"), std::string::npos) << status.message;
  EXPECT_EQ(bp_capture_end(capture, nullptr), BP_OK);
  EXPECT_TRUE(
      allocate(*target, nullptr, bp_block_desc{.size_bytes = 8, .pool = pool.get()}, &block).ok());
}

TEST_F(CaptureTest, RefusesTheHostFallbackInWords) {
  ASSERT_NE(bp::load(registry, BACKPLANE_TEST_PLUGIN), nullptr);
  Floats x(*target, {4}), y(*target, {4});
  const bp_relu_args args{.struct_size = sizeof(args), .x = x.get(), .y = y.get()};
  bp_kernel_choice choice{};
  ASSERT_EQ(bp_kernel_find(target, 0, BP_KERNEL_HOST_FALLBACK, BP_OP_RELU, &args, &choice), BP_OK)
      << bp_error_text();
  bp_capture* const capture = begin();
  EXPECT_EQ(bp_kernel_launch(target, nullptr, 0, choice.kernel, &args), BP_INVALID_ARGUMENT);
  EXPECT_NE(refusal().find("relu: the stream captures, and "), std::string::npos) << refusal();
  EXPECT_NE(refusal().find("records no work of another device"), std::string::npos) << refusal();
  bp_captured_graph* const graph = end(capture);
  EXPECT_EQ(info(graph).node_count, 0u);
  destroy(graph);
}

}  // namespace
}  // namespace bp
