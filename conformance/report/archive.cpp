#include "conformance/report/archive.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "conformance/usage_error.hpp"

namespace bp::conformance {
namespace {

constexpr size_t kBlock = 512;
constexpr size_t kMaxName = 80;

// The offsets and sizes of the fields of a header.
struct Field {
  size_t offset, size;
};
constexpr Field kName{0, 100}, kMode{100, 8}, kOwner{108, 8}, kGroup{116, 8}, kSize{124, 12},
    kTime{136, 12}, kSum{148, 8}, kMagic{257, 8};
constexpr size_t kType = 156;

void put(std::string& header, const Field& field, std::string_view text) {
  header.replace(field.offset, text.size(), text);
}

void put_octal(std::string& header, const Field& field, uint64_t value) {
  char digits[16];
  std::snprintf(digits, sizeof(digits), "%0*llo", static_cast<int>(field.size) - 1,
                static_cast<unsigned long long>(value));
  put(header, field, digits);
}

// Returns the sum of the bytes of a header, with blanks in the place of the sum.
uint64_t sum_of(std::string_view header) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kBlock; ++i) {
    const bool is_sum = i >= kSum.offset && i < kSum.offset + kSum.size;
    sum += is_sum ? uint64_t{' '} : static_cast<unsigned char>(header[i]);
  }
  return sum;
}

std::string header_of(const std::string& path, uint64_t size) {
  std::string header(kBlock, '\0');
  put(header, kName, path);
  put_octal(header, kMode, 0644);
  put_octal(header, kOwner, 0);
  put_octal(header, kGroup, 0);
  put_octal(header, kSize, size);
  put_octal(header, kTime, 0);
  header[kType] = '0';
  put(header, kMagic, std::string_view("ustar\00000", 8));
  char sum[8];
  std::snprintf(sum, sizeof(sum), "%06llo", static_cast<unsigned long long>(sum_of(header)));
  put(header, kSum, std::string_view(sum, 7));
  header[kSum.offset + 7] = ' ';
  return header;
}

std::string_view text_of(std::string_view header, const Field& field) {
  const std::string_view all = header.substr(field.offset, field.size);
  return all.substr(0, std::min(all.find('\0'), all.size()));
}

// Returns false if the field is no octal number.
bool read_octal(std::string_view header, const Field& field, uint64_t& out_value) {
  std::string_view digits = text_of(header, field);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  const char* const last = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), last, out_value, 8);
  return error == std::errc() && end == last;
}

[[noreturn]] void refuse(const std::string& name, size_t offset, const std::string& why) {
  throw UsageError(name + ": is not a package of bp-conformance: at byte " +
                   std::to_string(offset) + " " + why);
}

bool is_zero(std::string_view block) {
  return std::ranges::all_of(block, [](char c) { return c == '\0'; });
}

// Returns the name of a file without its folder.
std::string file_name(std::string_view path, const std::string& archive, size_t offset) {
  const size_t slash = path.find('/');
  const bool has_folder = slash != path.npos && slash > 0 && path.substr(0, slash) != "..";
  const std::string_view file = has_folder ? path.substr(slash + 1) : std::string_view();
  if (file.empty() || file.find('/') != file.npos || file == "..") {
    refuse(archive, offset, "a file has no name of the form folder/name");
  }
  return std::string(file);
}

}  // namespace

std::string write_archive(const std::string& folder, const std::vector<ArchivedFile>& files) {
  std::string text;
  for (const ArchivedFile& file : files) {
    const std::string path = folder + "/" + file.name;
    const bool is_named = !file.name.empty() && file.name.find('/') == std::string::npos;
    if (!is_named || path.size() > kMaxName) {
      throw std::invalid_argument("an archive takes no file '" + file.name + "'");
    }
    text += header_of(path, file.bytes.size()) + file.bytes;
    text.append((kBlock - file.bytes.size() % kBlock) % kBlock, '\0');
  }
  return text.append(2 * kBlock, '\0');
}

std::vector<ArchivedFile> read_archive(std::string_view bytes, const std::string& name) {
  std::vector<ArchivedFile> files;
  size_t at = 0;
  for (; at + kBlock <= bytes.size() && !is_zero(bytes.substr(at, kBlock));) {
    const std::string_view header = bytes.substr(at, kBlock);
    uint64_t size = 0, sum = 0;
    if (!text_of(header, kMagic).starts_with("ustar")) refuse(name, at, "no file begins");
    const char end_of_sum = header[kSum.offset + kSum.size - 1];
    const bool has_sum = read_octal(header, kSum, sum) && (end_of_sum == ' ' || end_of_sum == 0);
    if (!has_sum || sum != sum_of(header)) {
      refuse(name, at, "the header of a file has another sum than it says");
    }
    if (header[kType] != '0') refuse(name, at, "there is no regular file");
    if (!read_octal(header, kSize, size)) refuse(name, at, "the size of a file is no number");
    const std::string file = file_name(text_of(header, kName), name, at);
    const auto is_same = [&](const ArchivedFile& other) { return other.name == file; };
    if (std::ranges::any_of(files, is_same)) refuse(name, at, "a file has the name of another");
    at += kBlock;
    if (size > bytes.size() - at) refuse(name, at, "the end of " + file + " is missing");
    files.push_back({file, std::string(bytes.substr(at, size))});
    at += (size + kBlock - 1) / kBlock * kBlock;
  }
  if (bytes.size() != at + 2 * kBlock || !is_zero(bytes.substr(at))) {
    refuse(name, at, "the end of the package is missing, or bytes follow it");
  }
  return files;
}

}  // namespace bp::conformance
