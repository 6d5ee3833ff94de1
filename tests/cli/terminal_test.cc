// Lines that fit a terminal.
#include "cli/terminal.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace bw::cli {
namespace {

const Look kAscii{true, false, false}, kUtf8{true, false, true}, kColours{true, true, true};

Progress some_progress() { return {"gradients", "back to layer 12", "layers", 12, 30, 0.5, 36.0, 1234567890}; }

// Without the sequences that set colours.
std::string plain(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      out += text[i];
      continue;
    }
    while (text[i] != 'm') ++i;
  }
  return out;
}

TEST(ProgressLine, FitsEveryWidth) {
  Progress odd = some_progress();
  odd.stage = "a stage with quite a long name";
  odd.text = "\u00fcber \u6f22\u5b57\u6f22\u5b57\u6f22\u5b57 \U0001F600\U0001F600 e\u0301e\u0301";
  for (const Progress& p : {some_progress(), odd, Progress{}}) {
    for (const Look& look : {kAscii, kUtf8, kColours}) {
      for (size_t columns = 0; columns <= 200; ++columns) {
        const std::string line = plain(progress_line(p, columns, look));
        EXPECT_LE(width_of(line), columns) << line;
        EXPECT_FALSE(find_invalid_utf8(line)) << line;
      }
    }
  }
}

TEST(ProgressLine, OnAUsualTerminalItHasAll) {
  const std::string line = progress_line(some_progress(), 79, kAscii);
  EXPECT_EQ(line, "gradients [####--------]  40 %  ETA 0:36  2.0 s/layer  1.2 GB  back to layer 12");
  const std::string blocks = progress_line(some_progress(), 79, kUtf8);
  EXPECT_NE(blocks.find("\u2588\u2588\u2588\u2588\u2588\u258c\u2591\u2591\u2591\u2591\u2591\u2591\u2591\u2591"),
            std::string::npos)
      << blocks;
}

TEST(ProgressLine, OnANarrowTerminalWhatMattersMostStays) {
  EXPECT_EQ(progress_line(some_progress(), 39, kAscii), "gradients [##----]  40 %  ETA 0:36");
  EXPECT_EQ(progress_line(some_progress(), 30, kAscii), "gradients  40 %  ETA 0:36");
  EXPECT_EQ(progress_line(some_progress(), 45, kAscii), "gradients [##----]  40 %  ETA 0:36  back to..");
  Progress long_name = some_progress();
  long_name.stage = "self-calibration";
  EXPECT_EQ(progress_line(long_name, 39, kAscii), "self-calibration  40 %  ETA 0:36");
}

TEST(ProgressLine, AnEtaIsShownWhenItIsKnown) {
  Progress p = some_progress();
  p.eta.reset();
  EXPECT_NE(progress_line(p, 79, kAscii).find("ETA -:--"), std::string::npos);
  EXPECT_EQ(plain_line(p), "gradients 40 %  back to layer 12  2.0 s/layer  ETA -:--  1.2 GB");
}

TEST(ProgressLine, ColoursAreForTerminalsThatHaveThem) {
  EXPECT_EQ(progress_line(some_progress(), 79, kUtf8).find('\x1b'), std::string::npos);
  const std::string line = progress_line(some_progress(), 79, kColours);
  EXPECT_NE(line.find("\x1b[36m"), std::string::npos);
  EXPECT_EQ(plain(line), progress_line(some_progress(), 79, kUtf8));
  EXPECT_EQ(coloured("warning:", Colour::kYellow, kUtf8), "warning:");
  EXPECT_EQ(coloured("warning:", Colour::kYellow, kColours), "\x1b[33mwarning:\x1b[0m");
}

TEST(Cut, KeepsWholeCharactersAndSaysThatItCut) {
  EXPECT_EQ(cut("abcdef", 6), "abcdef");
  EXPECT_EQ(cut("abcdef", 5), "abc..");
  EXPECT_EQ(cut("abcdef", 1), ".");
  EXPECT_EQ(cut("abcdef", 0), "");
  EXPECT_EQ(cut("\u00e4\u00f6\u00fc\u00df", 3), "\u00e4..");
  EXPECT_EQ(cut("\u6f22\u5b57\u6f22", 6), "\u6f22\u5b57\u6f22");  // two columns each
  EXPECT_EQ(cut("\u6f22\u5b57\u6f22", 5), "\u6f22..");
  EXPECT_EQ(width_of("e\u0301"), 1u);
}

TEST(Shown, HasNothingThatWouldMoveTheCursor) {
  EXPECT_EQ(shown("a\nb\x1b[2Jc\td", kUtf8), "a?b?[2Jc?d");
  EXPECT_EQ(shown("bad \xff\xc3", kUtf8), "bad ??");
  EXPECT_EQ(shown("a\u202eb", kUtf8), "a?b");  // right to left from here
  EXPECT_EQ(shown("\u00fcber", kUtf8), "\u00fcber");
  EXPECT_EQ(shown("\u00fcber", kAscii), "?ber");
}

TEST(Duration, IsForPeople) {
  EXPECT_EQ(duration(0), "0:00");
  EXPECT_EQ(duration(6.2), "0:07");
  EXPECT_EQ(duration(725), "12:05");
  EXPECT_EQ(duration(3 * 3600 + 4 * 60 + 5), "3:04:05");
  EXPECT_EQ(duration(4 * 86400 + 5 * 3600), "4 d 5 h");
  EXPECT_EQ(duration(-1), "0:00");
}

TEST(RateText, CountsWhatItCan) {
  EXPECT_EQ(rate_text(0, 10, "layers"), "");
  EXPECT_EQ(rate_text(3.41, 10, "layers"), "3.4 layers/s");
  EXPECT_EQ(rate_text(1234.5, 10, "tokens"), "1234 tokens/s");
  EXPECT_EQ(rate_text(0.5, 10, "layers"), "2.0 s/layer");
  EXPECT_EQ(rate_text(0.05, 10, "layers"), "20 s/layer");
  EXPECT_EQ(rate_text(1 / 720.0, 10, "layers"), "12 min/layer");
  EXPECT_EQ(rate_text(83.2e6, 1e9, "bytes"), "83.2 MB/s");
  EXPECT_EQ(rate_text(0.01, 26, ""), "2.3 %/min");
}

}  // namespace
}  // namespace bw::cli
