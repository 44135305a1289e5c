#include "conformance/dist/check_run.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "conformance/cases/fixtures/collective_values.hpp"
#include "conformance/dist/values.hpp"
#include "conformance/numerics/dtype.hpp"

namespace bp::conformance::dist {
namespace {

constexpr uint64_t kHashedPieces = 16;

CheckResult failed(std::string text) { return {Outcome::kFail, std::move(text), false, {}}; }

// FNV-1a (Fowler, Noll, Vo).
uint64_t hash_of(std::span<const std::byte> bytes) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const std::byte byte : bytes) {
    hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001B3;
  }
  return hash;
}

// Returns why the work of a group has failed, with what its status() says.
CheckResult ended(const Place& place, const std::string& what) {
  const Answer status = place.group.status();
  CheckResult result =
      failed(what + (status.is_ok() ? "" : "; status of the group: ") + status.text);
  result.has_ended_group = true;
  return result;
}

// Submits calls and waits for them. Returns what is wrong, or a pass.
CheckResult carry_out(const Place& place, std::span<const bp_collective_call> calls) {
  const bp_process_group_ops& ops = place.group.ops();
  const Answer submitted = place.seat.submit(place.group, calls);
  if (!submitted.is_ok()) {
    const CheckResult result =
        ended(place, "submit of a call that supports() accepts: " + submitted.text);
    // The other ranks need not wait for a call that does not come.
    static_cast<void>(ops.abort(ops.self, place.group.get()));
    return result;
  }
  const Answer waited = place.seat.synchronize(place.patience_ns);
  if (waited.is_ok()) return {};
  if (!place.seat.stream_status().is_ok()) return ended(place, "the stream failed: " + waited.text);
  const CheckResult result =
      ended(place, "the call still runs " + std::to_string(place.patience_ns / 1'000'000) +
                       " ms after submit(); its timeout is " +
                       std::to_string(place.timeout_ns / 1'000'000) + " ms");
  // Work that went on would use memory of a check that is over.
  static_cast<void>(ops.abort(ops.self, place.group.get()));
  return result;
}

CheckResult run_call(const Place& place, const Check& check) {
  Call call(place, check, false);
  CheckResult result = carry_out(place, call.calls());
  if (result.outcome != Outcome::kPass) return result;
  Call::Found found = call.look();
  if (!found.text.empty()) return failed(found.text);
  result.hashes = std::move(found.hashes);
  return result;
}

// All ranks leave a mark before they submit. Behind the barrier each rank sees all marks.
CheckResult run_barrier(const Place& place, const Check& check, uint64_t index) {
  const auto mark_of = [&](uint32_t rank) {
    return "suite/barrier/" + std::to_string(index) + "/" + std::to_string(rank);
  };
  if (place.rank == place.world_size - 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  place.store.put(mark_of(place.rank), "");
  const bp_collective_call call = call_of(place.seat, place.group, check.claim.kind, 0, 0, 0);
  const CheckResult result = carry_out(place, {&call, 1});
  if (result.outcome != Outcome::kPass) return result;
  std::string ignored;
  for (uint32_t rank = 0; rank < place.world_size; ++rank) {
    if (!place.store.try_get(mark_of(rank), ignored)) {
      return failed("the barrier ended before rank " + std::to_string(rank) + " had reached it");
    }
  }
  return result;
}

// Checks what a group says of its place.
CheckResult check_place(const Group& group, uint32_t want_rank, uint32_t want_size,
                        const char* what) {
  uint32_t rank = UINT32_MAX, size = UINT32_MAX;
  const Answer answer = Answer::of(group.ops().rank(group.ops().self, group.get(), &rank, &size));
  const std::string name = std::string("rank() of ") + what;
  if (answer.status == BP_UNSUPPORTED) return {Outcome::kNotSupported, name + ": " + answer.text};
  if (!answer.is_ok()) return failed(name + ": " + answer.text);
  if (rank == want_rank && size == want_size) return {};
  return failed(name + " is rank " + std::to_string(rank) + " of " + std::to_string(size) +
                ", expected rank " + std::to_string(want_rank) + " of " +
                std::to_string(want_size));
}

// Gathers in a group that was split: each rank gives its old rank.
CheckResult check_order(const Place& place, Group& made, const std::vector<uint32_t>& members) {
  const Claim gather{BP_COLLECTIVE_ALL_GATHER, 0, BP_F32};
  if (confirmed_claims(made, {gather}).empty()) return {};
  const Range one = place.seat.reserve(0, 4, 0);
  const Range all = place.seat.reserve(1, 4 * members.size(), 0);
  const auto value = static_cast<float>(place.rank);
  place.seat.write(one, std::as_bytes(std::span(&value, 1)));
  place.seat.write(all, {});
  bp_collective_call call = call_of(place.seat, made, gather.kind, 0, gather.dtype, 1);
  call.send = one.part(0, one.size_bytes);
  call.receive = all.part(0, all.size_bytes);
  Place there{place.seat,       made,       place.store,      place.rank,
              place.world_size, place.seed, place.timeout_ns, place.patience_ns};
  const CheckResult result = carry_out(there, {&call, 1});
  if (result.outcome != Outcome::kPass) return result;
  const std::vector<std::byte> image = place.seat.read(all);
  for (size_t i = 0; i < members.size(); ++i) {
    float got = 0;
    std::memcpy(&got, &image[all.offset + 4 * i], 4);
    if (got == static_cast<float>(members[i])) continue;
    return failed("rank " + std::to_string(i) + " of a group that was split is rank " +
                  std::to_string(static_cast<int64_t>(got)) + " of the group as it was, expected " +
                  std::to_string(members[i]));
  }
  return {};
}

// Even ranks give one color and odd ranks another, and the keys turn the order around. From four
// ranks on the last one is in no group.
CheckResult run_split(const Place& place) {
  const bp_process_group_ops& ops = place.group.ops();
  const auto color_of = [&](uint32_t rank) {
    const bool is_out = place.world_size >= 4 && rank == place.world_size - 1;
    return is_out ? UINT32_MAX : rank % 2;
  };
  const uint32_t color = color_of(place.rank), key = place.world_size - place.rank;
  bp_process_group* const from = place.group.get();
  bp_process_group* out = nullptr;
  const Answer answer =
      Answer::of(ops.split(ops.self, 1, &from, &color, &key, place.timeout_ns, &out));
  if (answer.status == BP_UNSUPPORTED) return {Outcome::kNotSupported, "split: " + answer.text};
  if (!answer.is_ok()) return ended(place, "split: " + answer.text);
  Group made(ops, out);
  if (color == UINT32_MAX) {
    return out == nullptr ? CheckResult{} : failed("split with a color of UINT32_MAX gave a group");
  }
  if (out == nullptr) return failed("split gave no group");
  std::vector<uint32_t> members;
  for (uint32_t rank = place.world_size; rank-- > 0;) {
    if (color_of(rank) == color) members.push_back(rank);
  }
  const auto own = std::ranges::find(members, place.rank) - members.begin();
  CheckResult result = check_place(made, static_cast<uint32_t>(own),
                                   static_cast<uint32_t>(members.size()), "a group that was split");
  const CheckResult order = check_order(place, made, members);
  return result.outcome == Outcome::kFail ? result : order;
}

}  // namespace

std::vector<Claim> confirmed_claims(const Group& group, const std::vector<Claim>& possible) {
  std::vector<Claim> claims;
  const bp_process_group_ops& ops = group.ops();
  for (const Claim& claim : possible) {
    const bp_status status =
        ops.supports(ops.self, group.get(), claim.kind, claim.reduction, claim.dtype);
    if (status == BP_OK) claims.push_back(claim);
    if (status != BP_OK && status != BP_UNSUPPORTED) {
      throw RankError("supports() of " + claim_text(claim) + ": " + failure_text(status) +
                      "; allowed: BP_OK and BP_UNSUPPORTED");
    }
  }
  return claims;
}

CheckResult run_check(const Place& place, const Check& check, uint64_t index) {
  switch (check.sort) {
    case Sort::kRank:
      return check_place(place.group, place.rank, place.world_size, "the group");
    case Sort::kSplit:
      return run_split(place);
    case Sort::kBarrier:
      return run_barrier(place, check, index);
    case Sort::kCall:
    case Sort::kPairs:
      break;
  }
  return run_call(place, check);
}

// ---- Calls --------------------------------------------------------------------------------------

Call::Call(const Place& place, const Check& check, bool is_aligned, int first_slot)
    : place_(place),
      check_(check),
      item_(element_size(check.claim.dtype)),
      shape_(shape_of(check, place.rank, place.world_size)),
      sent_(Values(check, place.world_size, place.seed).sent(place.rank, shape_.sends)) {
  const uint64_t offset = is_aligned ? 0 : 3 * item_;
  const uint64_t sends = shape_.sends * item_, receives = shape_.receives * item_;
  is_shared_ = check.is_in_place;
  if (is_shared_) {
    first_ = place.seat.reserve(first_slot, std::max(sends, receives), offset);
    if (sends < receives) send_at_ = shape_.part_at * item_;
    if (receives < sends) receive_at_ = shape_.part_at * item_;
    if (sends == 0 || receives == 0) send_at_ = receive_at_ = 0;
    make_calls(first_.part(send_at_, sends), first_.part(receive_at_, receives));
  } else {
    first_ = place.seat.reserve(first_slot, sends, offset);
    second_ = place.seat.reserve(first_slot + 1, receives, offset);
    make_calls(first_.part(0, sends), second_.part(0, receives));
  }
  write();
}

void Call::make_calls(const bp_buffer_ref& send, const bp_buffer_ref& receive) {
  const Claim& claim = check_.claim;
  bp_collective_call call = call_of(place_.seat, place_.group, claim.kind, claim.reduction,
                                    claim.dtype, check_.is_uneven ? 0 : check_.count);
  const auto part = [&](const bp_buffer_ref& of, uint64_t at, uint64_t count) {
    return count == 0 ? bp_buffer_ref{}
                      : bp_buffer_ref{of.buffer, of.byte_offset + at * item_, count * item_};
  };
  if (claim.kind != BP_COLLECTIVE_SEND) {
    call.send = send;
    call.receive = receive;
    call.root = check_.root;
    if (!shape_.counts.empty()) call.counts = shape_.counts.data();
    if (!shape_.receive_counts.empty()) call.receive_counts = shape_.receive_counts.data();
    if (claim.reduction == BP_REDUCTION_SCALED_SUM) {
      call.scale = check_.data == Data::kNoise ? scale_of_rank(place_.rank) : 1;
    }
    calls_ = {call};
    return;
  }
  uint64_t sent = 0;
  for (uint32_t other = 0; other < place_.world_size; ++other) {
    const bool is_next = other == (place_.rank + 1) % place_.world_size;
    const uint64_t count = check_.sort == Sort::kPairs ? shape_.counts[other]
                           : is_next                   ? check_.count
                                                       : 0;
    if (check_.sort == Sort::kPairs ? other == place_.rank : !is_next) continue;
    call.count = count;
    call.root = other;
    call.send = part(send, sent, count);
    calls_.push_back(call);
    sent += count;
  }
  call.kind = BP_COLLECTIVE_RECEIVE;
  call.send = {};
  for (const Piece& piece : shape_.pieces) {
    if (check_.sort == Sort::kPairs && piece.from == place_.rank) continue;
    call.count = piece.count;
    call.root = piece.from;
    call.receive = part(receive, piece.at, piece.count);
    calls_.push_back(call);
  }
}

void Call::write() {
  if (!is_shared_) {
    place_.seat.write(first_, sent_);
    place_.seat.write(second_, {});
    return;
  }
  std::vector<std::byte> image(first_.size_bytes, Seat::kPoison);
  std::ranges::copy(sent_, image.begin() + static_cast<std::ptrdiff_t>(send_at_));
  place_.seat.write(first_, image);
}

std::string Call::guard_text(const std::vector<std::byte>& image, const Range& range) const {
  const uint64_t end = range.offset + range.size_bytes;
  for (uint64_t i = 0; i < image.size(); ++i) {
    const bool is_guard = i < range.offset || i >= end;
    if (!is_guard || image[i] == Seat::kPoison) continue;
    return i < range.offset
               ? "the byte " + std::to_string(range.offset - i) + " before the range was written"
               : "the byte " + std::to_string(i - end) + " behind the range was written";
  }
  return "";
}

Call::Found Call::look() {
  const Range& range = is_shared_ ? first_ : second_;
  const std::vector<std::byte> image = place_.seat.read(range);
  const std::byte* const received = image.data() + range.offset + receive_at_;
  const Values values(check_, place_.world_size, place_.seed);
  const Values::Wrong wrong = values.compare(shape_, received);
  Found found{wrong.count, wrong.first, {}};
  if (wrong.count != 0) {
    found.text += "; " + std::to_string(wrong.count) + " of " + std::to_string(shape_.receives) +
                  " elements are wrong";
  }
  if (found.text.empty()) found.text = guard_text(image, range);
  if (found.text.empty() && !is_shared_) {
    const std::vector<std::byte> kept = place_.seat.read(first_);
    const auto* const begin = kept.data() + first_.offset;
    if (!std::equal(sent_.begin(), sent_.end(), begin)) found.text = "the range `send` was changed";
    if (found.text.empty()) found.text = guard_text(kept, first_);
  }
  if (check_.claim.kind != BP_COLLECTIVE_ALL_REDUCE) return found;
  const uint64_t bytes = shape_.receives * item_;
  for (uint64_t k = 0; k < kHashedPieces; ++k) {
    const uint64_t from = bytes * k / kHashedPieces, to = bytes * (k + 1) / kHashedPieces;
    found.hashes.push_back(hash_of({received + from, to - from}));
  }
  return found;
}

}  // namespace bp::conformance::dist
