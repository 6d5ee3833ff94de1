// A folder of this process for parsers that read files: the same one for every input, its files written anew.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "support/temp_dir.h"

namespace bw::fuzz {

class Folder {
 public:
  const std::filesystem::path& path() const { return folder_.path(); }
  // Without the care for crashes that io::write_file takes: thousands are written in a second.
  std::filesystem::path write(const std::string& name, std::string_view contents) const {
    const std::filesystem::path path = folder_ / name;
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(contents.data(), static_cast<std::streamsize>(contents.size()));
    return path;
  }

 private:
  test::TempDir folder_;
};

}  // namespace bw::fuzz
