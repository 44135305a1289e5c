// The meaning of a stream program. A vector clock for each stream shows which accesses are ordered,
// and so gives the one legal value of each byte.
//
// A time line is a stream from its creation to its destruction, or the host. Work of a stream comes
// after the earlier work of the stream, and after everything that the host knew when it submitted
// the work. A record copies the clock of a stream into an event, and wait and sync merge one clock
// into another. An access that these rules do not order behind an earlier access to the same byte
// is a race, and a program with a race has no single meaning.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conformance/streams/program.hpp"

namespace bp::conformance {

// The moments of all time lines that have happened before. A shorter clock ends in zeros.
class VectorClock {
 public:
  uint32_t of(size_t line) const { return line < ticks_.size() ? ticks_[line] : 0; }
  void set(size_t line, uint32_t tick);
  void merge(const VectorClock& other);

 private:
  std::vector<uint32_t> ticks_;
};

// The reason why a step may not come next.
struct Conflict {
  std::string problem;
  std::optional<uint32_t> stream;  // The stream that must be waited for, if it still exists.
};

class Model {
 public:
  explicit Model(const Program& shape);

  // Returns nothing if the step has one meaning after the steps that were applied.
  std::optional<Conflict> conflict_of(const Step& step) const;

  // Applies a step that has no conflict.
  void apply(const Step& step);

  struct Cell {
    uint8_t value = 0;
    bool is_defined = true;    // If false, the byte is in a new buffer and was never written.
    uint32_t writer_line = 0;  // The time line of the last write; the next member is its moment.
    uint32_t writer_tick = 0;
    int32_t writer_step = -1;     // The number of that step in the program; -1 for the beginning.
    std::vector<uint32_t> reads;  // The moments of the last reads since that write, by time line.
  };
  const std::vector<Cell>& buffer(size_t index) const { return buffers_[index]; }

  // Returns the bytes of each download, in the order of the program.
  const std::vector<std::vector<uint8_t>>& downloads() const { return downloads_; }

 private:
  struct Access {
    const Bytes* bytes;
    bool is_write;
  };
  std::vector<Access> accesses_of(const Step& step) const;
  std::optional<Conflict> conflict_at(const Cell& cell, const VectorClock& clock,
                                      bool is_write) const;
  Conflict race_with(uint32_t line, const char* what) const;
  VectorClock clock_of_next(const Step& step) const;
  void order(const Step& step);
  void mark(const Step& step, uint32_t line, uint32_t tick);
  void write(const Bytes& to, const std::vector<uint8_t>& bytes);
  std::vector<uint8_t> values(const Bytes& from) const;
  void work(const Step& step);

  const Program shape_;                   // The program without its steps.
  std::vector<uint32_t> line_of_stream_;  // A renewed stream gets a new line.
  std::vector<VectorClock> streams_;      // The clock of each stream.
  std::vector<VectorClock> events_;
  VectorClock host_;
  uint32_t line_count_;
  int32_t step_count_ = 0;
  std::vector<std::vector<Cell>> buffers_;
  std::vector<std::vector<uint8_t>> downloads_;
};

// The meaning of a whole program, or the problem of its first step without a meaning.
struct Meaning {
  std::string problem;  // "" if the program has a meaning.
  std::optional<Model> model;
};
Meaning meaning_of(const Program& program);

}  // namespace bp::conformance
