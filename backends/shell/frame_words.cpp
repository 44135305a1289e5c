// Writes frames as words that another process can read, and reads them.
#include <algorithm>
#include <cstring>
#include <string>

#include "backplane/shell/boundary.hpp"
#include "backplane/shell/frame.hpp"

namespace bp {
namespace {

constexpr uint64_t kMaxFrameBytes = 4096;
constexpr uint64_t kMaxListLength = 1 << 20;

[[noreturn]] void damaged(const char* what) {
  throw StatusError(BP_INCOMPATIBLE, std::string("deserialize: ") + what + " is damaged");
}

uint64_t next(const std::vector<uint64_t>& words, size_t& position) {
  if (position >= words.size()) damaged("the end");
  return words[position++];
}

void write_tensor(const bp_tensor& tensor, std::vector<uint64_t>& words) {
  const bool has_strides = tensor.ndim == 0 || tensor.strides != nullptr;
  words.insert(words.end(),
               {tensor.byte_offset, tensor.dtype, tensor.ndim, uint64_t{has_strides ? 1u : 0u}});
  words.insert(words.end(), tensor.shape, tensor.shape + tensor.ndim);
  if (has_strides) words.insert(words.end(), tensor.strides, tensor.strides + tensor.ndim);
}

// Holds what is read until the frame has its own copy.
struct Storage {
  std::deque<bp_tensor> tensors;
  std::deque<std::vector<int64_t>> numbers;
  std::deque<std::vector<const bp_tensor*>> lists;

  const int64_t* read_numbers(const std::vector<uint64_t>& words, size_t& position,
                              uint64_t count) {
    if (count > kMaxListLength) damaged("the length of a list");
    std::vector<int64_t>& list = numbers.emplace_back();
    for (uint64_t i = 0; i < count; ++i) {
      list.push_back(static_cast<int64_t>(next(words, position)));
    }
    return list.data();
  }

  const bp_tensor* read_tensor(const std::vector<uint64_t>& words, size_t& position) {
    bp_tensor& tensor = tensors.emplace_back();
    tensor.byte_offset = next(words, position);
    tensor.dtype = static_cast<bp_dtype>(next(words, position));
    const uint64_t ndim = next(words, position);
    if (ndim > BP_MAX_RANK) damaged("the rank of a tensor");
    tensor.ndim = static_cast<uint32_t>(ndim);
    const uint64_t has_strides = next(words, position);
    if (has_strides > 1) damaged("the strides of a tensor");
    tensor.shape = read_numbers(words, position, ndim);
    if (has_strides == 1) tensor.strides = read_numbers(words, position, ndim);
    return &tensor;
  }
};

// Writes a pointer into the words of a frame.
template <typename T>
void put(std::vector<uint64_t>& frame, size_t offset, T pointer) {
  // NOLINTNEXTLINE(bugprone-sizeof-expression): the pointer itself is written.
  std::memcpy(reinterpret_cast<std::byte*>(frame.data()) + offset, &pointer, sizeof(pointer));
}

uint64_t get(const std::vector<uint64_t>& frame, size_t offset) {
  uint64_t word = 0;
  std::memcpy(&word, reinterpret_cast<const std::byte*>(frame.data()) + offset, sizeof(word));
  return word;
}

// What stands for the number of an op that was described at run time, whose name follows.
constexpr uint32_t kDescribed = UINT32_MAX;
constexpr uint64_t kMaxTextBytes = 1 << 16;

void write_text(std::string_view text, std::vector<uint64_t>& words) {
  words.push_back(text.size());
  const size_t begin = words.size();
  words.resize(begin + (text.size() + 7) / 8);
  std::memcpy(words.data() + begin, text.data(), text.size());
}

std::string read_text(const std::vector<uint64_t>& words, size_t& position) {
  const uint64_t size_bytes = next(words, position);
  if (size_bytes > kMaxTextBytes) damaged("a name");
  std::vector<uint64_t> text((size_bytes + 7) / 8);
  for (uint64_t& word : text) word = next(words, position);
  return {reinterpret_cast<const char*>(text.data()), size_bytes};
}

// Returns the members that a frame of `size_bytes` has, as a text that is the same in every process
// with the same description.
std::string text_of(std::span<const FrameMember> members, uint64_t size_bytes) {
  std::string text;
  for (const FrameMember& member : members) {
    if (member.offset >= size_bytes) continue;
    text += std::string(member.name) + " " + std::string(member.kind) + " " +
            std::to_string(member.offset) + " " + std::string(member.dtype_rule) + "\n";
  }
  return text;
}

// Reads what names an op that was described at run time.
const bp_op_desc& read_described(const std::vector<uint64_t>& words, size_t& position,
                                 uint64_t size_bytes, const bp_host* host) {
  const std::string name = read_text(words, position), members = read_text(words, position);
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_.";
  if (name.find_first_not_of(kLetters) != name.npos) damaged("a name");
  const auto refuse = [&](const std::string& why) {
    throw StatusError(BP_INCOMPATIBLE, "deserialize: the program has the op " + name + ", " + why);
  };
  if (host == nullptr) refuse("which was described at run time, and nobody describes ops here");
  uint32_t op = 0;
  if (host->op_find(host->self, name.c_str(), &op) != BP_OK) {
    refuse("which nobody describes here; load the backend that describes it");
  }
  const bp_op_desc& desc = described_op(*host, op);
  if (size_bytes > desc.frame_size_bytes || text_of(frame_members(desc), size_bytes) != members) {
    refuse("whose frame is described in another way here; compile the program again");
  }
  return desc;
}

// Reads the frame and what it points to, and returns make(frame).
template <typename Make>
OwnedFrame read_rest(const std::vector<uint64_t>& words, size_t& position, uint64_t size_bytes,
                     std::span<const FrameMember> members, const Make& make) {
  std::vector<uint64_t> frame((size_bytes + 7) / 8);
  for (uint64_t& word : frame) word = next(words, position);
  Storage storage;
  for (const FrameMember& member : members) {
    const bool is_pointer = member.is_tensor() || member.is_list();
    if (!is_pointer || member.offset + sizeof(void*) > size_bytes) continue;
    const uint64_t mark = get(frame, member.offset);
    if (mark > 1) damaged("a pointer");
    if (mark == 0) continue;
    if (member.is_tensor()) {
      put(frame, member.offset, storage.read_tensor(words, position));
      continue;
    }
    const uint64_t count = get(frame, member.offset - sizeof(uint64_t));
    if (count > kMaxListLength) damaged("the length of a list");
    if (member.is_numbers()) {
      put(frame, member.offset, storage.read_numbers(words, position, count));
      continue;
    }
    std::vector<const bp_tensor*>& list = storage.lists.emplace_back();
    for (uint64_t i = 0; i < count; ++i) list.push_back(storage.read_tensor(words, position));
    put(frame, member.offset, list.data());
  }
  return make(frame.data());
}

}  // namespace

void OwnedFrame::write_to(std::vector<uint64_t>& words) const {
  words.insert(words.end(), {desc_ == nullptr ? op_ : kDescribed, size_bytes_});
  const std::vector<FrameMember> members = this->members();
  if (desc_ != nullptr) {
    write_text(name(), words);
    write_text(text_of(members, size_bytes_), words);
  }
  const size_t begin = words.size();
  words.insert(words.end(), words_.begin(), words_.end());
  const auto* const bytes = reinterpret_cast<const std::byte*>(words_.data());
  for (const FrameMember& member : members) {
    const bool is_pointer = member.is_tensor() || member.is_list();
    if (!is_pointer || member.offset + sizeof(void*) > size_bytes_) continue;
    const bool is_given = get(words_, member.offset) != 0;
    const uint64_t mark = is_given ? 1 : 0;
    std::memcpy(reinterpret_cast<std::byte*>(words.data() + begin) + member.offset, &mark,
                sizeof(mark));
    if (!is_given) continue;
    if (member.is_tensor()) {
      write_tensor(**reinterpret_cast<const bp_tensor* const*>(bytes + member.offset), words);
      continue;
    }
    const uint64_t count = get(words_, member.offset - sizeof(uint64_t));
    if (member.is_numbers()) {
      const auto* const numbers = *reinterpret_cast<const int64_t* const*>(bytes + member.offset);
      words.insert(words.end(), numbers, numbers + count);
      continue;
    }
    const auto* const list =
        *reinterpret_cast<const bp_tensor* const* const*>(bytes + member.offset);
    for (uint64_t i = 0; i < count; ++i) write_tensor(*list[i], words);
  }
}

OwnedFrame OwnedFrame::read_from(const std::vector<uint64_t>& words, size_t& position,
                                 const bp_host* host) {
  const uint64_t op = next(words, position), size_bytes = next(words, position);
  if (size_bytes < sizeof(uint64_t) || size_bytes > kMaxFrameBytes) damaged("a frame");
  if (op == kDescribed) {
    const bp_op_desc& desc = read_described(words, position, size_bytes, host);
    return read_rest(words, position, size_bytes, frame_members(desc), [&](const void* args) {
      return OwnedFrame(desc, args, static_cast<uint32_t>(size_bytes));
    });
  }
  const auto known = static_cast<uint32_t>(op);
  if (known == 0 || known != op || op_name(known) == nullptr) damaged("a frame");
  return read_rest(words, position, size_bytes, frame_members(known), [&](const void* args) {
    return OwnedFrame(known, args, static_cast<uint32_t>(size_bytes));
  });
}

}  // namespace bp
