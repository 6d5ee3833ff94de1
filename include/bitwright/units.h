// Byte counts for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bw {

// "132.8 MB" (powers of 1000, as disks and model hubs count).
std::string format_bytes(uint64_t bytes);
// "3.2GB", "800 MiB", "1234567" -> bytes. Throws Error(kUsage) naming `option` for anything else.
uint64_t parse_bytes(std::string_view text, std::string_view option);

}  // namespace bw
