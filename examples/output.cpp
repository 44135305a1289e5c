#include "output.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace {

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

[[noreturn]] void fail_to_write(const std::string& name) {
  const int error = errno;
  fail(name +
       ": cannot be written: " + (error == 0 ? "an earlier write failed" : std::strerror(error)));
}

[[noreturn]] void fail_at_row(const std::string& path, const std::string& line, int64_t last) {
  fail(path + ": '" + line + "' is not a row of a step behind step " + std::to_string(last) +
       "; repair the log, or give a new file");
}

// Cuts the log of an interrupted run behind the row of step `done_steps`. Returns whether its
// header stays.
//
// The rows are in the order of their steps, so all that stays is at the beginning of the file. The
// rest goes in one call: a program that is killed here leaves either the old log or the new one. A
// line that a kill or a full disk cut has no line break, and goes as well.
bool keep_rows(const std::string& path, const std::string& header, int64_t done_steps) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;  // A new file, or a device.
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(path + ": cannot be read");
  std::string line;
  std::getline(file, line);
  if (file.eof() ? !header.starts_with(line) : line != header) {
    fail(path + ": the first line is not '" + header + "'; give the log of the run, or a new file");
  }
  uintmax_t kept_bytes = file.eof() ? 0 : line.size() + 1;
  int64_t last = 0;
  while (std::getline(file, line) && !file.eof()) {
    const int64_t step = std::atoll(line.c_str());
    if (step > done_steps) break;
    if (step <= last) fail_at_row(path, line, last);
    last = step;
    kept_bytes += line.size() + 1;
  }
  if (file.bad()) fail(path + ": cannot be read");
  std::filesystem::resize_file(path, kept_bytes);
  return kept_bytes > 0;
}

}  // namespace

LossLog::LossLog(const std::string& path, const std::string& header, int64_t done_steps)
    : path_(path) {
  if (path_.empty()) return;
  const bool has_header = done_steps > 0 && keep_rows(path_, header, done_steps);
  file_.reset(std::fopen(path_.c_str(), done_steps > 0 ? "a" : "w"));
  if (!file_) fail_to_write(path_);
  if (!has_header) write(header + "\n");
}

void LossLog::add(int64_t step, std::initializer_list<double> values) {
  if (!file_) return;
  std::ostringstream row;
  row.precision(9);
  row << step;
  for (const double value : values) row << "," << value;
  row << "\n";
  write(row.str());
}

void LossLog::write(const std::string& line) {
  if (std::fputs(line.c_str(), file_.get()) < 0 || std::fflush(file_.get()) != 0) {
    fail_to_write(path_);
  }
}

void flush_standard_output() {
  const bool has_failed = std::ferror(stdout) != 0;
  errno = 0;
  if (std::fflush(stdout) != 0 || has_failed) fail_to_write("standard output");
}
