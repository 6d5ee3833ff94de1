#include "codec/exl2.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "bitwright/error.h"
#include "model/tensor_names.h"

namespace bw::codec {
namespace {

constexpr size_t kColumnTile = 64;

uint64_t padded(uint32_t out) { return (uint64_t{out} + kColumnAlign - 1) / kColumnAlign * kColumnAlign; }

[[noreturn]] void damaged(const std::string& name, const std::string& why) {
  throw Error(ErrorCode::kModel, fmt::format("{}: damaged EXL2 tensors: {}", name, why));
}

// Words of 32 bits that a group takes in each column.
uint32_t group_words(const quant::Group& g) { return g.rows * static_cast<uint32_t>(g.bits) / 32; }

// Packs `rows` values of `bits` bits, one every `stride`, into a bit stream, one word every `word_stride`.
void pack_column(const uint8_t* codes, size_t stride, uint32_t rows, int bits, uint32_t* words, size_t word_stride) {
  uint64_t pending = 0;
  int filled = 0;
  for (uint32_t r = 0; r < rows; ++r) {
    pending |= static_cast<uint64_t>(codes[r * stride]) << filled;
    filled += bits;
    if (filled >= 32) {
      *words = static_cast<uint32_t>(pending);
      words += word_stride;
      pending >>= 32;
      filled -= 32;
    }
  }
}

void unpack_column(const uint32_t* words, size_t word_stride, uint32_t rows, int bits, uint8_t* codes, size_t stride) {
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  uint64_t pending = 0;
  int left = 0;
  for (uint32_t r = 0; r < rows; ++r) {
    if (left < bits) {
      pending |= static_cast<uint64_t>(*words) << left;
      words += word_stride;
      left += 32;
    }
    codes[r * stride] = static_cast<uint8_t>(pending & mask);
    pending >>= bits;
    left -= bits;
  }
}

// Groups of a stored linear, from q_groups and the height of q_weight.
std::vector<quant::Group> stored_groups(const Exl2Linear& p, const std::string& name) {
  const size_t n = p.q_groups.size() / 2;
  if (p.q_groups.size() % 2 != 0 || n == 0) damaged(name, "q_groups has an odd or zero length");
  std::vector<quant::Group> groups;
  uint64_t row = 0;
  for (size_t g = 0; g < n; ++g) {
    const int bits = p.q_groups[2 * g];
    const int64_t first = p.q_groups[2 * g + 1];
    const int64_t end = g + 1 < n ? p.q_groups[2 * g + 3] : static_cast<int64_t>(p.q_weight.rows());
    if (std::find(std::begin(quant::kBitWidths), std::end(quant::kBitWidths), bits) == std::end(quant::kBitWidths)) {
      damaged(name, fmt::format("group {} has {} bits", g, bits));
    }
    if (first < 0 || end <= first || (g == 0 && first != 0))
      damaged(name, fmt::format("group {} covers words {} to {}", g, first, end));
    uint64_t rows = static_cast<uint64_t>(end - first) * 32 / static_cast<uint64_t>(bits);
    if (g + 1 == n && row + rows > p.in) rows = p.in - row;  // the last group may end inside its last word
    if (rows == 0 || row + rows > p.in ||
        (rows * static_cast<uint64_t>(bits) + 31) / 32 != static_cast<uint64_t>(end - first)) {
      damaged(name, fmt::format("groups hold more than {} rows", p.in));
    }
    groups.push_back({bits, static_cast<uint32_t>(row), static_cast<uint32_t>(rows)});
    row += rows;
  }
  if (row != p.in) damaged(name, fmt::format("groups hold {} rows, q_invperm {}", row, p.in));
  return groups;
}

std::vector<uint32_t> inverse_permutation(const std::vector<int32_t>& perm, const std::string& name) {
  std::vector<uint32_t> inverse(perm.size(), UINT32_MAX);
  for (size_t i = 0; i < perm.size(); ++i) {
    const auto at = static_cast<uint32_t>(perm[i]);
    if (at >= perm.size() || inverse[at] != UINT32_MAX) damaged(name, "q_invperm is no permutation");
    inverse[at] = static_cast<uint32_t>(i);
  }
  return inverse;
}

// Runs of stored groups. A run's group size is that of its largest group (a run of one short group: its rows).
quant::Layout layout_of(const std::vector<quant::Group>& groups) {
  quant::Layout layout;
  for (const quant::Group& g : groups) {
    if (layout.runs.empty() || layout.runs.back().bits != g.bits) layout.runs.push_back({g.bits, 0, 0});
    layout.runs.back().rows += g.rows;
    layout.runs.back().group_size = std::max(layout.runs.back().group_size, g.rows);
  }
  return layout;
}

bool same_groups(const std::vector<quant::Group>& a, const std::vector<quant::Group>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const quant::Group& x, const quant::Group& y) {
    return x.bits == y.bits && x.first == y.first && x.rows == y.rows;
  });
}

}  // namespace

bool can_store(size_t in, size_t out) { return in > 0 && out > 0 && in % quant::kRowStep == 0 && in <= kMaxIn; }

uint64_t stored_bits(const quant::Layout& layout, uint32_t out) {
  const uint64_t columns = padded(out);
  uint64_t bits = uint64_t{32} * layout.rows();
  for (const quant::Group& g : layout.groups()) {
    bits += uint64_t{g.rows} * static_cast<uint64_t>(g.bits) * columns + 48 + 4 * columns;
  }
  return bits;
}

Exl2Linear pack(ThreadPool& pool, const quant::QuantizedLinear& q) {
  const std::vector<quant::Group> groups = q.layout.groups();
  const size_t columns = q.codes.cols();
  Exl2Linear p;
  p.in = q.in;
  p.out = q.out;
  uint32_t words = 0;
  for (const quant::Group& g : groups) {
    p.q_groups.push_back(static_cast<int16_t>(g.bits));
    p.q_groups.push_back(static_cast<int16_t>(words));
    words += group_words(g);
  }
  BW_CHECK(words <= INT16_MAX);  // kMaxIn rows of 8 bits take half of it
  p.q_weight = Matrix<uint32_t>(words, columns);
  p.q_scale = Matrix<uint32_t>(groups.size(), columns / 8);
  p.q_scale_max = q.scale_max;
  p.q_invperm.resize(q.in);
  for (uint32_t r = 0; r < q.in; ++r) p.q_invperm[q.order[r]] = static_cast<int32_t>(r);
  pool.parallel_for((columns + kColumnTile - 1) / kColumnTile, [&](size_t tile, size_t) {
    const size_t first = tile * kColumnTile, last = std::min(columns, first + kColumnTile);
    uint32_t word = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      for (size_t c = first; c < last; ++c) {
        pack_column(q.codes.row(groups[g].first) + c, columns, groups[g].rows, groups[g].bits, p.q_weight.row(word) + c,
                    columns);
      }
      word += group_words(groups[g]);
      for (size_t c = first; c < last; c += 8) {
        uint32_t nibbles = 0;
        for (uint32_t i = 0; i < 8; ++i) nibbles |= uint32_t{q.scale_codes(g, c + i)} << (4 * i);
        p.q_scale(g, c / 8) = nibbles;
      }
    }
  });
  return p;
}

quant::QuantizedLinear unpack(ThreadPool& pool, const Exl2Linear& p, const std::string& name) {
  const size_t columns = p.q_weight.cols();
  if (p.out == 0 || columns != padded(p.out))
    damaged(name, fmt::format("q_weight has {} columns for {} outputs", columns, p.out));
  if (p.q_invperm.size() != p.in) damaged(name, "q_invperm has another length than the linear has inputs");
  const std::vector<quant::Group> groups = stored_groups(p, name);
  if (p.q_scale.rows() != groups.size() || p.q_scale.cols() != columns / 8 || p.q_scale_max.size() != groups.size()) {
    damaged(name, fmt::format("{} groups, but q_scale is {} x {} and q_scale_max has {}", groups.size(),
                              p.q_scale.rows(), p.q_scale.cols(), p.q_scale_max.size()));
  }
  for (const Half max : p.q_scale_max) {
    if (!std::isfinite(to_float(max))) damaged(name, "q_scale_max is not finite");
  }
  quant::QuantizedLinear q{layout_of(groups),
                           p.in,
                           p.out,
                           inverse_permutation(p.q_invperm, name),
                           Matrix<uint8_t>(p.in, columns),
                           Matrix<uint8_t>(groups.size(), columns),
                           p.q_scale_max,
                           0};
  if (!same_groups(q.layout.groups(), groups)) damaged(name, "groups of one width have uneven sizes");
  pool.parallel_for((columns + kColumnTile - 1) / kColumnTile, [&](size_t tile, size_t) {
    const size_t first = tile * kColumnTile, last = std::min(columns, first + kColumnTile);
    for (size_t g = 0; g < groups.size(); ++g) {
      const auto word = static_cast<uint16_t>(p.q_groups[2 * g + 1]);
      for (size_t c = first; c < last; ++c) {
        unpack_column(p.q_weight.row(word) + c, columns, groups[g].rows, groups[g].bits,
                      q.codes.row(groups[g].first) + c, columns);
        q.scale_codes(g, c) = static_cast<uint8_t>(p.q_scale(g, c / 8) >> (4 * (c % 8)) & 15u);
      }
    }
  });
  return q;
}

quant::Layout stored_layout(const Exl2Linear& packed, const std::string& name) {
  return layout_of(stored_groups(packed, name));
}

std::vector<io::TensorPlan> tensor_plans(const std::string& key, const quant::Layout& layout, uint32_t out) {
  const uint64_t columns = padded(out);
  const std::vector<quant::Group> groups = layout.groups();
  uint64_t words = 0;
  for (const quant::Group& g : groups) words += group_words(g);
  const uint64_t n = groups.size();
  const auto name = [&](size_t i) { return key + std::string(model::kPackedSuffixes[i]); };
  return {{name(0), io::TensorType::kI32, {words, columns}},
          {name(1), io::TensorType::kI32, {n, columns / 8}},
          {name(2), io::TensorType::kF16, {n}},
          {name(3), io::TensorType::kI16, {2 * n}},
          {name(4), io::TensorType::kI32, {layout.rows()}}};
}

std::span<const std::byte> tensor_bytes(const Exl2Linear& p, size_t i) {
  switch (i) {
    case 0:
      return std::as_bytes(p.q_weight.span());
    case 1:
      return std::as_bytes(p.q_scale.span());
    case 2:
      return std::as_bytes(std::span(p.q_scale_max));
    case 3:
      return std::as_bytes(std::span(p.q_groups));
    default:
      BW_CHECK(i == 4);
      return std::as_bytes(std::span(p.q_invperm));
  }
}

bool is_stored(const io::ShardSet& tensors, const std::string& key) {
  return tensors.find_entry(key + std::string(model::kPackedSuffixes[0])) != nullptr;
}

Exl2Linear load(const io::ShardSet& tensors, const std::string& key, uint32_t out) {
  const auto get = [&](size_t i, io::TensorType type, size_t dimensions) {
    const std::string_view suffix = model::kPackedSuffixes[i];
    io::TensorData t = tensors.require(key + std::string(suffix));
    if (t.type() != type || t.shape().size() != dimensions) {
      damaged(key, fmt::format("{} is {} with {} dimensions, expected {} with {}", suffix.substr(1),
                               io::type_name(t.type()), t.shape().size(), io::type_name(type), dimensions));
    }
    return t;
  };
  const auto copy = [](const io::TensorData& t, void* to) {
    if (!t.bytes.empty()) std::memcpy(to, t.bytes.data(), t.bytes.size());
  };
  const io::TensorData weight = get(0, io::TensorType::kI32, 2), scale = get(1, io::TensorType::kI32, 2);
  const io::TensorData max = get(2, io::TensorType::kF16, 1), groups = get(3, io::TensorType::kI16, 1);
  const io::TensorData perm = get(4, io::TensorType::kI32, 1);
  Exl2Linear p;
  p.in = static_cast<uint32_t>(perm.shape()[0]);
  p.out = out;
  p.q_weight = Matrix<uint32_t>(weight.shape()[0], weight.shape()[1]);
  p.q_scale = Matrix<uint32_t>(scale.shape()[0], scale.shape()[1]);
  p.q_scale_max.resize(max.shape()[0]);
  p.q_groups.resize(groups.shape()[0]);
  p.q_invperm.resize(perm.shape()[0]);
  copy(weight, p.q_weight.data());
  copy(scale, p.q_scale.data());
  copy(max, p.q_scale_max.data());
  copy(groups, p.q_groups.data());
  copy(perm, p.q_invperm.data());
  return p;
}

}  // namespace bw::codec
