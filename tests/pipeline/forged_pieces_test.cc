// Pieces of a work folder that are sealed as they should be and yet make no sense: another program, or a hand, wrote
// them. They are made again.
#include <algorithm>
#include <cctype>
#include <fstream>
#include <map>

#include <gtest/gtest.h>

#include "bitwright/bitwright.h"
#include "io/file_write.h"
#include "io/piece_file.h"
#include "support/files.h"
#include "support/stopped.h"
#include "support/temp_dir.h"

namespace bw {
namespace {

namespace fs = std::filesystem;
using test::contents;

const fs::path kModel = fs::path(BW_FIXTURES) / "models" / "llama";
constexpr uint64_t kAnySize = uint64_t{1} << 30;

// A piece's file without its numbers, so that those of all layers are one kind.
std::string kind_of(const fs::path& piece) {
  std::string kind = piece.filename().string();
  std::erase_if(kind, [](unsigned char c) { return std::isdigit(c) != 0; });
  return kind;
}

// Headers that are none, and that begin well.
std::vector<io::Json> forged_headers(const io::Json& real) {
  std::vector<io::Json> headers = {io::Json::array(), io::Json::array({1, 2}), "text", 7, nullptr, io::Json::object()};
  if (!real.is_object()) return {};  // it says nothing: nobody looks at it
  for (const auto& [key, value] : real.items()) {
    for (const io::Json& wrong : {io::Json("text"), io::Json(-1), io::Json(1e300), io::Json(nullptr),
                                  io::Json::array({1}), io::Json::object({{"a", 1}}), io::Json(UINT64_MAX)}) {
      if (wrong.type() == value.type() && wrong != UINT64_MAX) continue;
      headers.push_back(real);
      headers.back()[key] = wrong;
    }
    if (headers.size() > 20) break;  // of many keys, the first stand for all
  }
  return headers;
}

class ForgedPieces : public testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; text.size() < 3000; ++i) text += "Entry " + std::to_string(i * 7) + " of the ledger is paid. ";
    std::ofstream(text_) << text;
  }

  QuantizeOptions options(bool self_calibrated = false) {
    QuantizeOptions o;
    o.model = kModel;
    o.output = dir_ / "out";
    o.bpw = {4.5, 6};
    o.calibration = {{text_}, 2, 32, 1};
    if (self_calibrated) o.calibration = {{}, 2, 8, 1};
    o.effort = Effort::kFast;
    o.overwrite = true;
    o.work.checkpoint_seconds = 0;
    o.engine.threads = 1;
    o.engine.progress = [this](const ProgressEvent& e) {
      damaged_ += e.kind == ProgressEvent::Kind::kWarning && e.text.find("is damaged") != std::string::npos;
    };
    return o;
  }

  void clear() {
    for (const char* name : {"out-4.5bpw", "out-6bpw", "out.work"}) fs::remove_all(dir_ / name);
  }

  std::map<std::string, std::string> outputs() const {
    std::map<std::string, std::string> all;
    for (const char* name : {"out-4.5bpw", "out-6bpw"}) {
      for (const auto& [file, bytes] : contents(dir_ / name)) all[std::string(name) + "/" + file] = bytes;
    }
    return all;
  }

  // For every kind of piece a folder, as a run that was stopped has left it, and the piece in it.
  void collect(const QuantizeOptions& options, std::map<std::string, std::pair<fs::path, fs::path>>& kinds) {
    for (int n = 1;; ++n) {
      clear();
      if (!test::stopped_at(options, n)) return;
      if (!fs::exists(dir_ / "out.work")) continue;
      const fs::path saved = dir_ / ("saved-" + std::to_string(folders_));
      for (const auto& entry : fs::recursive_directory_iterator(dir_ / "out.work")) {
        const fs::path piece = fs::relative(entry.path(), dir_ / "out.work");
        if (piece.extension() == ".seal" || !fs::exists(entry.path().string() + ".seal")) continue;
        if (!kinds.try_emplace(kind_of(piece), saved, piece).second || fs::exists(saved)) continue;
        fs::create_directory(saved);
        for (const char* name : {"out-4.5bpw", "out-6bpw", "out.work"}) {
          if (fs::exists(dir_ / name)) fs::copy(dir_ / name, saved / name, fs::copy_options::recursive);
        }
        ++folders_;
      }
    }
  }

  // The folders as they were saved, but for the bytes of one piece, under a seal that fits them.
  void restore(const fs::path& saved, const fs::path& piece, std::string_view bytes) {
    clear();
    fs::copy(saved, dir_.path(), fs::copy_options::recursive);
    const fs::path file = dir_ / "out.work" / piece;
    const io::PieceDir folder(file.parent_path());
    const std::string key = io::load_json(file.string() + ".seal").at("key").get<std::string>();
    std::ofstream(file, std::ios::binary) << bytes;
    folder.seal(file.filename().string(), key);
  }

  test::TempDir dir_;
  fs::path text_ = dir_ / "text.txt";
  size_t folders_ = 0, damaged_ = 0;
};

// Its bytes with another header.
std::string with_header(const std::string& piece, const io::Json& header) {
  uint64_t size = 0;
  std::copy_n(piece.data(), sizeof(size), reinterpret_cast<char*>(&size));
  const std::string text = header.dump(), data = piece.substr(sizeof(size) + size);
  size = text.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + text + data;
}

TEST_F(ForgedPieces, AreMadeAgain) {
  for (const bool self_calibrated : {false, true}) {
    const QuantizeOptions o = options(self_calibrated);
    clear();
    quantize(o);
    const auto whole = outputs();
    std::map<std::string, std::pair<fs::path, fs::path>> kinds;
    collect(o, kinds);
    if (self_calibrated) std::erase_if(kinds, [](const auto& kind) { return kind.first != "rows.piece"; });
    EXPECT_GE(kinds.size(), self_calibrated ? 1u : 8u);
    for (const auto& [kind, place] : kinds) {
      const auto& [saved, piece] = place;
      const std::string real = io::read_file(saved / "out.work" / piece, kAnySize);
      std::vector<std::string> forged = {"", "no piece", real + "more", real.substr(0, real.size() - 1)};
      if (kind == "place.piece") forged.resize(2);  // any bytes are a path
      const io::PieceDir folder((saved / "out.work" / piece).parent_path());
      for (const io::Json& header : forged_headers(io::PieceReader(folder, piece.filename().string()).header())) {
        forged.push_back(with_header(real, header));
      }
      for (const std::string& bytes : forged) {
        damaged_ = 0;
        restore(saved, piece, bytes);
        EXPECT_NO_THROW(quantize(o)) << kind << ": " << bytes.substr(0, 300);
        EXPECT_EQ(outputs(), whole) << kind << ": " << bytes.substr(0, 300);
        EXPECT_GE(damaged_, kind == "place.piece" ? 0u : 1u) << kind << ": " << bytes.substr(0, 300);
        EXPECT_FALSE(fs::exists(dir_ / "out.work"));
      }
    }
  }
}

}  // namespace
}  // namespace bw
