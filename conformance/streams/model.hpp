// What a stream program means: a vector clock per stream decides which accesses are ordered, and
// with it the one legal value of each byte.
//
// A time line is a stream from its creation to its destruction, or the host. Work of a stream comes
// after what the stream did before and after what the host knew when it submitted it; record copies
// the clock of a stream into an event, and wait and sync merge one clock into another. An access
// that none of this orders behind an earlier one to the same byte is a race, and the program then
// has no one meaning.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conformance/streams/program.hpp"

namespace bp::conformance {

// Moments of all time lines that have happened before. Shorter ones end in zeros.
class VectorClock {
 public:
  uint32_t of(size_t line) const { return line < ticks_.size() ? ticks_[line] : 0; }
  void set(size_t line, uint32_t tick);
  void merge(const VectorClock& other);

 private:
  std::vector<uint32_t> ticks_;
};

// Why a step may not come next.
struct Conflict {
  std::string problem;
  std::optional<uint32_t> stream;  // That must be waited for, where it still exists.
};

class Model {
 public:
  explicit Model(const Program& shape);

  // Nothing if the step has one meaning after those that were applied.
  std::optional<Conflict> conflict_of(const Step& step) const;

  // Applies a step without conflict.
  void apply(const Step& step);

  struct Cell {
    uint8_t value = 0;
    bool is_defined = true;    // Else of a new buffer, and nothing is written there yet.
    uint32_t writer_line = 0;  // The last write: its time line and moment.
    uint32_t writer_tick = 0;
    int32_t writer_step = -1;     // Its number in the program; -1 for the beginning.
    std::vector<uint32_t> reads;  // The moments of the last reads since, by time line.
  };
  const std::vector<Cell>& buffer(size_t index) const { return buffers_[index]; }

  // What each download gives, in the order of the program.
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

  const Program shape_;                   // Without its steps.
  std::vector<uint32_t> line_of_stream_;  // Changes where a stream is renewed.
  std::vector<VectorClock> streams_;      // By stream.
  std::vector<VectorClock> events_;
  VectorClock host_;
  uint32_t line_count_;
  int32_t step_count_ = 0;
  std::vector<std::vector<Cell>> buffers_;
  std::vector<std::vector<uint8_t>> downloads_;
};

// The meaning of a whole program; the problem of its first step that has none.
struct Meaning {
  std::string problem;  // "" if there is one.
  std::optional<Model> model;
};
Meaning meaning_of(const Program& program);

}  // namespace bp::conformance
