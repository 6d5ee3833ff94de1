#include "codec/exl2.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "bitwright/error.h"
#include "model/tensor_names.h"

namespace bw::codec {
namespace {

using backend::DType;
using backend::Tensor;
namespace op = backend::op;

uint64_t padded(uint32_t out) { return (uint64_t{out} + kColumnAlign - 1) / kColumnAlign * kColumnAlign; }

[[noreturn]] void damaged(const std::string& name, const std::string& why) {
  throw Error(ErrorCode::kModel, fmt::format("{}: damaged EXL2 tensors: {}", name, why));
}

// Words of 32 bits that a group takes in each column.
uint32_t group_words(const quant::Group& g) { return g.rows * static_cast<uint32_t>(g.bits) / 32; }

// Groups of a stored linear, from q_groups, the height of q_weight and the inputs.
std::vector<quant::Group> stored_groups(std::span<const int16_t> q_groups, size_t words, size_t in,
                                        const std::string& name) {
  const size_t n = q_groups.size() / 2;
  if (q_groups.size() % 2 != 0 || n == 0) damaged(name, "q_groups has an odd or zero length");
  std::vector<quant::Group> groups;
  uint64_t row = 0;
  for (size_t g = 0; g < n; ++g) {
    const int bits = q_groups[2 * g];
    const int64_t first = q_groups[2 * g + 1];
    const int64_t end = g + 1 < n ? q_groups[2 * g + 3] : static_cast<int64_t>(words);
    if (std::find(std::begin(quant::kBitWidths), std::end(quant::kBitWidths), bits) == std::end(quant::kBitWidths)) {
      damaged(name, fmt::format("group {} has {} bits", g, bits));
    }
    if (first < 0 || end <= first || (g == 0 && first != 0))
      damaged(name, fmt::format("group {} covers words {} to {}", g, first, end));
    if ((end - first) * 32 % bits != 0) damaged(name, fmt::format("group {} ends inside a row of {} bits", g, bits));
    const uint64_t rows = static_cast<uint64_t>((end - first) * 32 / bits);
    if (row + rows > in) damaged(name, fmt::format("groups hold more than {} rows", in));
    groups.push_back({bits, static_cast<uint32_t>(row), static_cast<uint32_t>(rows)});
    row += rows;
  }
  if (row != in) damaged(name, fmt::format("groups hold {} rows, q_invperm {}", row, in));
  return groups;
}

// (in, 1): the input feature of each stored row.
void invert_permutation(const std::vector<int32_t>& perm, std::span<int32_t> order, const std::string& name) {
  std::fill(order.begin(), order.end(), -1);
  for (size_t i = 0; i < perm.size(); ++i) {
    const auto at = static_cast<uint32_t>(perm[i]);
    if (at >= perm.size() || order[at] != -1) damaged(name, "q_invperm is no permutation");
    order[at] = static_cast<int32_t>(i);
  }
}

// Runs of stored groups, which may have 16 rows. A run's group size is that of its largest group (a run of one short
// group: its rows).
quant::Layout layout_of(const std::vector<quant::Group>& groups, const std::string& name) {
  quant::Layout layout;
  for (const quant::Group& g : groups) {
    if (layout.runs.empty() || layout.runs.back().bits != g.bits) layout.runs.push_back({g.bits, 0, 0});
    layout.runs.back().rows += g.rows;
    layout.runs.back().group_size = std::max(layout.runs.back().group_size, g.rows);
  }
  for (const quant::BitRun& run : layout.runs) {
    if (run.rows % quant::kRowStep != 0) damaged(name, fmt::format("{} rows of {} bits", run.rows, run.bits));
  }
  return layout;
}

bool same_groups(const std::vector<quant::Group>& a, const std::vector<quant::Group>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const quant::Group& x, const quant::Group& y) {
    return x.bits == y.bits && x.first == y.first && x.rows == y.rows;
  });
}

uint32_t run_words(const quant::BitRun& run) { return run.rows * static_cast<uint32_t>(run.bits) / 32; }

// body(run, first row, first word) for every run.
template <typename Body>
void for_runs(const quant::Layout& layout, const Body& body) {
  uint32_t row = 0, word = 0;
  for (const quant::BitRun& run : layout.runs) {
    body(run, row, word);
    row += run.rows;
    word += run_words(run);
  }
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

PackedLinear pack(backend::Backend& device, const quant::QuantizedLinear& q) {
  const size_t columns = q.padded_out();
  uint32_t words = 0;
  for (const quant::Group& g : q.layout.groups()) words += group_words(g);
  BW_CHECK(words <= INT16_MAX);  // kMaxIn rows of 8 bits take half of it
  const Tensor weight = device.allocate(words, columns, DType::kI32);
  const Tensor scale = device.allocate(q.scale_codes.rows, columns / 8, DType::kI32);
  const Tensor differences = device.zeros(1, 1, DType::kI32);
  for_runs(q.layout, [&](const quant::BitRun& run, uint32_t row, uint32_t word) {
    const Tensor codes = q.codes.rows_slice(row, run.rows), back = device.allocate(run.rows, columns, DType::kU8);
    const Tensor packed = weight.rows_slice(word, run_words(run));
    device.enqueue(op::PackBits{codes, run.bits, packed});
    device.enqueue(op::UnpackBits{packed, run.bits, back});
    device.enqueue(op::CountDifferences{codes, back, differences});
  });
  const Tensor back = device.allocate(q.scale_codes.rows, columns, DType::kU8);
  device.enqueue(op::PackNibbles{q.scale_codes, scale});
  device.enqueue(op::UnpackNibbles{scale, back});
  device.enqueue(op::CountDifferences{q.scale_codes, back, differences});
  return {q.layout,
          q.in,
          q.out,
          device.download(weight),
          device.download(scale),
          device.download(q.scale_max),
          device.download(q.order),
          device.download(differences)};
}

Exl2Linear finish(backend::Backend& device, PackedLinear packed, const std::string& name) {
  device.wait(packed.differences, "packed linear");  // the last download: the others have passed with it
  for (const backend::HostTensor* t : {&packed.q_weight, &packed.q_scale, &packed.q_scale_max, &packed.order}) {
    device.wait(*t, "packed linear");
  }
  if (packed.differences.as<int32_t>()[0] != 0) {
    throw Error(ErrorCode::kInternal, fmt::format("{}: unpacking does not give the packed codes back", name));
  }
  Exl2Linear p{packed.in,
               packed.out,
               std::move(packed.q_weight),
               std::move(packed.q_scale),
               std::move(packed.q_scale_max),
               {},
               std::vector<int32_t>(packed.in)};
  uint32_t word = 0;
  for (const quant::Group& g : packed.layout.groups()) {
    p.q_groups.push_back(static_cast<int16_t>(g.bits));
    p.q_groups.push_back(static_cast<int16_t>(word));
    word += group_words(g);
  }
  const auto order = packed.order.as<int32_t>();
  for (uint32_t r = 0; r < p.in; ++r) p.q_invperm[static_cast<uint32_t>(order[r])] = static_cast<int32_t>(r);
  return p;
}

quant::QuantizedLinear unpack(backend::Backend& device, Exl2Linear p, const std::string& name) {
  const size_t columns = p.q_weight.cols;
  if (p.out == 0 || columns != padded(p.out))
    damaged(name, fmt::format("q_weight has {} columns for {} outputs", columns, p.out));
  if (p.q_invperm.size() != p.in) damaged(name, "q_invperm has another length than the linear has inputs");
  const std::vector<quant::Group> groups = stored_groups(p.q_groups, p.q_weight.rows, p.in, name);
  if (p.q_scale.rows != groups.size() || p.q_scale.cols != columns / 8 || p.q_scale_max.rows != groups.size()) {
    damaged(name, fmt::format("{} groups, but q_scale is {} x {} and q_scale_max has {}", groups.size(), p.q_scale.rows,
                              p.q_scale.cols, p.q_scale_max.rows));
  }
  for (const Half max : p.q_scale_max.as<Half>()) {
    if (!std::isfinite(to_float(max))) damaged(name, "q_scale_max is not finite");
  }
  backend::HostTensor order = device.stage(p.in, 1, DType::kI32);
  invert_permutation(p.q_invperm, order.as<int32_t>(), name);
  quant::QuantizedLinear q{layout_of(groups, name),
                           p.in,
                           p.out,
                           {},
                           device.allocate(p.in, columns, DType::kU8),
                           device.allocate(groups.size(), columns, DType::kU8),
                           {},
                           {}};
  if (!same_groups(q.layout.groups(), groups)) damaged(name, "groups of one width have uneven sizes");
  q.order = device.upload(std::move(order));
  q.scale_max = device.upload(std::move(p.q_scale_max));
  const Tensor weight = device.upload(std::move(p.q_weight)), scale = device.upload(std::move(p.q_scale));
  for_runs(q.layout, [&](const quant::BitRun& run, uint32_t row, uint32_t word) {
    device.enqueue(
        op::UnpackBits{weight.rows_slice(word, run_words(run)), run.bits, q.codes.rows_slice(row, run.rows)});
  });
  device.enqueue(op::UnpackNibbles{scale, q.scale_codes});
  return q;
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
      return p.q_weight.raw();
    case 1:
      return p.q_scale.raw();
    case 2:
      return p.q_scale_max.raw();
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

namespace {

// Tensor `i` of linear `key`, which must be of this type.
io::TensorData stored_tensor(const io::ShardSet& tensors, const std::string& key, size_t i, io::TensorType type,
                             size_t dimensions) {
  const std::string_view suffix = model::kPackedSuffixes[i];
  io::TensorData t = tensors.require(key + std::string(suffix));
  if (t.type() != type || t.shape().size() != dimensions) {
    damaged(key, fmt::format("{} is {} with {} dimensions, expected {} with {}", suffix.substr(1),
                             io::type_name(t.type()), t.shape().size(), io::type_name(type), dimensions));
  }
  return t;
}

void copy_bytes(const io::TensorData& t, std::span<std::byte> to) {
  if (!t.bytes.empty()) std::memcpy(to.data(), t.bytes.data(), t.bytes.size());
}

std::vector<int16_t> load_groups(const io::ShardSet& tensors, const std::string& key) {
  const io::TensorData t = stored_tensor(tensors, key, 3, io::TensorType::kI16, 1);
  std::vector<int16_t> groups(t.shape()[0]);
  copy_bytes(t, std::as_writable_bytes(std::span(groups)));
  return groups;
}

}  // namespace

quant::Layout stored_layout(const io::ShardSet& tensors, const std::string& key) {
  const io::TensorData weight = stored_tensor(tensors, key, 0, io::TensorType::kI32, 2);
  const io::TensorData perm = stored_tensor(tensors, key, 4, io::TensorType::kI32, 1);
  return layout_of(stored_groups(load_groups(tensors, key), weight.shape()[0], perm.shape()[0], key), key);
}

Exl2Linear load(backend::Backend& device, const io::ShardSet& tensors, const std::string& key, uint32_t out) {
  const auto staged = [&](const io::TensorData& t, DType dtype) {
    backend::HostTensor host = device.stage(t.shape()[0], t.shape().size() == 2 ? t.shape()[1] : 1, dtype);
    copy_bytes(t, host.raw());
    return host;
  };
  const io::TensorData perm = stored_tensor(tensors, key, 4, io::TensorType::kI32, 1);
  Exl2Linear p{static_cast<uint32_t>(perm.shape()[0]),
               out,
               staged(stored_tensor(tensors, key, 0, io::TensorType::kI32, 2), DType::kI32),
               staged(stored_tensor(tensors, key, 1, io::TensorType::kI32, 2), DType::kI32),
               staged(stored_tensor(tensors, key, 2, io::TensorType::kF16, 1), DType::kF16),
               load_groups(tensors, key),
               std::vector<int32_t>(perm.shape()[0])};
  copy_bytes(perm, std::as_writable_bytes(std::span(p.q_invperm)));
  return p;
}

}  // namespace bw::codec
