#include "calib/mix.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "base/utf8.h"
#include "bitwright/error.h"
#include "calib/held_out.h"
#include "io/text_rows.h"

namespace bw::calib {
namespace {

// What rows are cut from: a text, or rows as they are.
struct Part {
  std::vector<uint32_t> ids;
  std::vector<size_t> ends;          // of each of its sources, in ids
  size_t row_length = 0;             // 0: a text
  std::vector<std::string> origins;  // of each row
  std::string name;
};

std::string text_of(const tokenizer::Tokenizer& tokenizer, std::span<const uint32_t> ids) {
  return replace_invalid_utf8(tokenizer.decode(ids, false));
}

class Reader {
 public:
  Reader(const tokenizer::Tokenizer& tokenizer, const tokenizer::ChatTemplate* chat)
      : tokenizer_(tokenizer), chat_(chat) {}

  // Appends what the source holds to the part.
  CalibrationSource read(const Source& source, Part& part) const {
    CalibrationSource found;
    found.name = source.name;
    found.files = source.files.size();
    const size_t before = part.ids.size();
    for (const auto& file : source.files) {
      for (const io::TextDocument& document : io::read_documents(file)) {
        add(document, file, source, part);
        ++found.texts;
      }
    }
    found.tokens = part.ids.size() - before;
    part.ends.push_back(part.ids.size());
    part.name += (part.name.empty() ? "" : ", ") + source.name;
    return found;
  }

 private:
  void add(const io::TextDocument& document, const std::filesystem::path& file, const Source& source,
           Part& part) const {
    const bool is_row = !document.ids.empty(), first = part.ids.empty();
    if (!first && is_row != (part.row_length > 0)) {
      throw Error(
          ErrorCode::kUsage,
          fmt::format("{}, line {}: rows of token ids and text cannot be one text", file.string(), document.line),
          "give them as sources of their own with weights, such as rows.jsonl:1 text.txt:2");
    }
    if (!is_row) {
      const std::vector<uint32_t> ids = tokenize(document, file);
      part.ids.insert(part.ids.end(), ids.begin(), ids.end());
      return;
    }
    if (first) part.row_length = document.ids.size();
    check_row(document, file, part.row_length);
    part.ids.insert(part.ids.end(), document.ids.begin(), document.ids.end());
    part.origins.push_back(document.source.empty() ? source.name : document.source);
  }

  std::vector<uint32_t> tokenize(const io::TextDocument& document, const std::filesystem::path& file) const {
    if (!document.is_chat) return tokenize_long(tokenizer_, document.text, false);
    if (chat_ == nullptr) {
      throw Error(ErrorCode::kModel,
                  fmt::format("{}, line {}: it holds messages, but the model has no chat template", file.string(),
                              document.line),
                  "give plain text (\"text\" keys) for this model");
    }
    return tokenize_long(tokenizer_, chat_->render(document.messages, false), true);
  }

  void check_row(const io::TextDocument& row, const std::filesystem::path& file, size_t length) const {
    const std::string where = fmt::format("{}, line {}", file.string(), row.line);
    if (row.ids.size() != length) {
      throw Error(ErrorCode::kModel,
                  fmt::format("{}: a row of {} tokens among rows of {}", where, row.ids.size(), length));
    }
    for (const uint32_t id : row.ids) {
      if (id < tokenizer_.vocab_size()) continue;
      throw Error(ErrorCode::kModel, fmt::format("{}: the model's tokenizer has no token {}", where, id),
                  "make the rows anew with the text and this model (bitwright calib)");
    }
    if (row.text.empty() || text_of(tokenizer_, row.ids) == row.text) return;
    throw Error(ErrorCode::kModel,
                fmt::format("{}: with this model's tokenizer the ids do not read as the text beside them", where),
                "make the rows anew with the text and this model (bitwright calib)");
  }

  const tokenizer::Tokenizer& tokenizer_;
  const tokenizer::ChatTemplate* chat_;
};

// Rows for each of the weights, `count` in all: what is left after rounding down goes to the largest remainders.
std::vector<size_t> shares(std::span<const Source> sources, size_t count) {
  double all = 0;
  for (const Source& s : sources) all += *s.weight;
  std::vector<size_t> rows, order(sources.size());
  std::vector<double> remainders;
  for (const Source& s : sources) {
    const double exact = static_cast<double>(count) * (*s.weight / all);
    rows.push_back(std::min(count, static_cast<size_t>(exact)));
    remainders.push_back(exact - static_cast<double>(rows.back()));
  }
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return remainders[a] > remainders[b]; });
  size_t left = count - std::min(count, std::accumulate(rows.begin(), rows.end(), size_t{0}));
  for (size_t i = 0; left > 0; i = (i + 1) % order.size(), --left) ++rows[order[i]];
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] > 0) continue;
    throw Error(
        ErrorCode::kUsage,
        fmt::format("--calib {}: of {} rows its weight {} gives it none", sources[i].name, count, *sources[i].weight),
        "ask for more rows (--calib-rows), or give it more weight");
  }
  return rows;
}

// sources: those of the part, in order.
void take_text(const Part& part, std::span<const uint32_t> prefix, size_t count, size_t held_out,
               std::span<CalibrationSource> sources, Mix& mix) {
  const Rows rows = rows_from_stream(part.ids, prefix, count, mix.rows.length, part.name);
  mix.rows.ids.insert(mix.rows.ids.end(), rows.ids.begin(), rows.ids.end());
  hold_out(part.ids, prefix, count, rows.length, held_out, mix.held_out);
  const size_t body = mix.rows.length - prefix.size();
  for (size_t i = 0; i < count; ++i) {
    const size_t start = row_start(i, count, part.ids.size(), body);
    size_t at = start;
    for (size_t s = 0; s < sources.size(); ++s) {
      if (part.ends[s] <= at) continue;
      const size_t end = std::min(part.ends[s], start + body);
      if (at == start) {
        ++sources[s].rows;
        sources[s].used_tokens += prefix.size();
        mix.row_sources.push_back(sources[s].name);
      }
      sources[s].used_tokens += end - at;
      at = end;
      if (at == start + body) break;
    }
  }
}

void take_rows(const Part& part, size_t count, std::span<CalibrationSource> sources, Mix& mix) {
  const size_t there = part.origins.size(), length = mix.rows.length;
  if (part.row_length != length || count > there || count == 0) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{}: {} rows of {} tokens are asked for, it holds {} rows of {}", part.name, count, length,
                            there, part.row_length),
                fmt::format("give --calib-rows of at most {} and --calib-length {}", there, part.row_length));
  }
  for (size_t i = 0; i < count; ++i) {
    const size_t row = spread_row(i, count, there);  // of all of them: each
    const auto first = part.ids.begin() + static_cast<ptrdiff_t>(row * length);
    mix.rows.ids.insert(mix.rows.ids.end(), first, first + static_cast<ptrdiff_t>(length));
    mix.row_sources.push_back(part.origins[row]);
    size_t s = 0;
    while (part.ends[s] <= row * length) ++s;
    ++sources[s].rows;
    sources[s].used_tokens += length;
  }
}

void take(const Part& part, std::span<const uint32_t> prefix, size_t count, size_t held_out,
          std::span<CalibrationSource> sources, Mix& mix) {
  if (part.row_length > 0) {
    take_rows(part, count, sources, mix);
  } else {
    take_text(part, prefix, count, held_out, sources, mix);
  }
}

}  // namespace

Mix mix_sources(const tokenizer::Tokenizer& tokenizer, const tokenizer::ChatTemplate* chat,
                std::span<const Source> sources, size_t count, size_t length) {
  const Reader reader(tokenizer, chat);
  const std::vector<uint32_t>& prefix = tokenizer.prefix_ids();
  const bool weighed = !sources.empty() && sources.front().weight.has_value();
  const std::vector<size_t> counts = weighed ? shares(sources, count) : std::vector<size_t>{count};
  Mix mix;
  const HeldOutShape held_out = held_out_shape(count, length);
  mix.rows.length = length;
  mix.held_out.length = held_out.length;
  Part part;
  for (size_t i = 0; i < sources.size(); ++i) {
    mix.sources.push_back(reader.read(sources[i], part));
    mix.rows.source += (i == 0 ? "" : ", ") + sources[i].name;
    if (!weighed) continue;
    const size_t share = (held_out.count * counts[i] + count / 2) / count;
    take(part, prefix, counts[i], share, std::span(mix.sources).last(1), mix);
    part = {};
  }
  if (!weighed) take(part, prefix, count, held_out.count, mix.sources, mix);
  mix.held_out.source = mix.rows.source;
  for (CalibrationSource& s : mix.sources) {
    s.share = static_cast<double>(s.used_tokens) / static_cast<double>(mix.rows.ids.size());
  }
  return mix;
}

Mix mix_of(Rows rows, Rows held_out) {
  Mix mix;
  mix.row_sources.assign(rows.count(), rows.source);
  CalibrationSource source;
  source.name = rows.source;
  source.texts = source.rows = rows.count();
  source.tokens = source.used_tokens = rows.ids.size();
  source.share = 1;
  mix.sources.push_back(std::move(source));
  mix.rows = std::move(rows);
  mix.held_out = std::move(held_out);
  return mix;
}

std::string rows_file(const Mix& mix, const tokenizer::Tokenizer& tokenizer) {
  std::string lines;
  for (size_t i = 0; i < mix.rows.count(); ++i) {
    io::TextDocument row;
    const auto ids = mix.rows.row(i);
    row.ids.assign(ids.begin(), ids.end());
    row.text = text_of(tokenizer, ids);
    row.source = mix.row_sources[i];
    lines += io::row_line(row);
  }
  return lines;
}

}  // namespace bw::calib
