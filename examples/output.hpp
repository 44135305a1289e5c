// The programs that train write a log of their losses, and text on standard output. Both functions
// here throw a std::runtime_error that names the file and the reason if a write fails.
#pragma once

#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <string>

// A CSV file with a row for each step of training. A row is in the file when add() returns, so a
// program that is killed leaves the rows of all steps that it has done.
class LossLog {
 public:
  // Begins a new log whose first line is `header`. With `done_steps`, it continues the log of the
  // run that did these steps, and drops the rows of later steps, which will be done again. If
  // `path` is empty, there is no log, and add() does nothing.
  LossLog(const std::string& path, const std::string& header, int64_t done_steps = 0);

  void add(int64_t step, std::initializer_list<double> values);

 private:
  void write(const std::string& line);

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, std::fclose};
};

// Writes what standard output still keeps in memory. A program calls it before it reports success.
void flush_standard_output();
