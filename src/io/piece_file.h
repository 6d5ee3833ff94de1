// Pieces of a job that hold numbers: a JSON header, then the raw bytes it speaks of.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/matrix.h"
#include "io/file_map.h"
#include "io/file_write.h"
#include "io/json.h"
#include "io/work_dir.h"

namespace bw::io {

// Layout: 8 bytes little-endian length of the header, the header, the numbers in the order they were written.
class PieceWriter {
 public:
  PieceWriter(const PieceDir& dir, std::string_view name, const Json& header);
  void write(std::span<const std::byte> data) {
    file_.write(data);
    hasher_.update(data);
  }
  template <typename T>
  void write_values(std::span<const T> values) {
    write(std::as_bytes(values));
  }
  // Commits the file and seals it.
  void seal(std::string_view key);

 private:
  const PieceDir& dir_;
  std::string name_;
  AtomicFile file_;
  Hasher hasher_;  // of all that was written
};

class PieceReader {
 public:
  // Of a piece that PieceDir::check found whole. Throws Error(kModel) if it does not begin with a header.
  PieceReader(const PieceDir& dir, std::string_view name);
  const Json& header() const { return header_; }
  // A whole number of the header. Throws Error(kModel) if it is not there, or not one up to `most`.
  size_t number(const char* key, size_t most) const;
  // Bytes that have not been read.
  size_t left() const { return map_.bytes().size() - at_; }
  // The next bytes; Error(kModel) if there are fewer.
  std::span<const std::byte> take(size_t bytes);
  // Fills values with the next bytes.
  template <typename T>
  void read_values(std::span<T> values) {
    const std::span<const std::byte> bytes = take(values.size_bytes());
    std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(values).begin());
  }
  Matrix<float> read_matrix(size_t rows, size_t cols) {
    Matrix<float> matrix(rows, cols);
    read_values(matrix.span());
    return matrix;
  }

 private:
  FileMap map_;
  Json header_;
  size_t at_ = 0;
};

// Gives a piece that PieceDir::check found whole to `read`, which says whether it understands it: a whole piece may
// still be one that another program wrote, or a hand. False also where reading throws Error(kModel) or a JSON
// exception.
bool read_piece(const PieceDir& dir, std::string_view name, const std::function<bool(PieceReader& piece)>& read);

}  // namespace bw::io
