#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_tables.h: where the Unicode versions of PCRE2/utf8proc and of `tokenizers` differ.

The `tokenizers` library matches regular expressions with newer Unicode data than PCRE2 of Debian 12 has (14.0), and
normalizes with much older data. The tables below let the C++ code give the same ids with any version of the two C
libraries. Needs: pip install tokenizers, and a Python whose unicodedata is version 14.0 (Python 3.11).

    python3 tools/make_unicode_tables.py
"""
import pathlib
import sys
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Cf".split()
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
# Stand-ins of new Han ideographs stay Han; all others avoid it.
HAN = [(0x2EBF0, 0x2EE5D), (0x31350, 0x323AF)]


def utf8_length(c):
    return len(chr(c).encode())


def stand_in(category, new):
    if any(first <= new <= last for first, last in HAN):
        return 0x20000
    for c in CODE_POINTS:
        if (c > 0x7F and utf8_length(c) == utf8_length(new) and unicodedata.category(chr(c)) == category
                and not unicodedata.name(chr(c), "CJK").startswith("CJK")):
            return c
    raise SystemExit(f"no stand-in for U+{new:04X} ({category})")


def new_code_points():
    """Code points without a category in Unicode 14 -> a code point of 14 with the category that the reference sees."""
    unassigned = [c for c in CODE_POINTS if unicodedata.category(chr(c)) == "Cn"]
    found = {}
    cache = {}
    for category in CATEGORIES:
        matcher = pre_tokenizers.Split(Regex(rf"\p{{{category}}}"), "removed")
        for c in unassigned:
            if not matcher.pre_tokenize_str(chr(c)):
                key = (category, utf8_length(c), any(a <= c <= b for a, b in HAN))
                if key not in cache:
                    cache[key] = stand_in(category, c)
                found[c] = cache[key]
    return found


def ranges(values):
    """Sorted [first, last, value] runs of a dict code point -> value."""
    result = []
    for c in sorted(values):
        if result and result[-1][1] == c - 1 and result[-1][2] == values[c]:
            result[-1][1] = c
        else:
            result.append([c, c, values[c]])
    return result


def unknown_marks():
    strip = normalizers.StripAccents()
    return {c: 0 for c in CODE_POINTS
            if unicodedata.category(chr(c))[0] == "M" and strip.normalize_str(chr(c)) != ""}


def unknown_punctuation():
    split = pre_tokenizers.Punctuation("isolated")
    return {c: 0 for c in CODE_POINTS
            if unicodedata.category(chr(c))[0] == "P" and len(split.pre_tokenize_str("a" + chr(c))) == 1}


def table(comment, kind, name, rows, with_value):
    text = [f"// {comment}", f"inline constexpr {kind} {name}[] = {{"]
    line = "   "
    for first, last, value in rows:
        item = f" {{0x{first:X}, 0x{last:X}, 0x{value:X}}}," if with_value else f" {{0x{first:X}, 0x{last:X}}},"
        if len(line) + len(item) > 118:
            text.append(line)
            line = "   "
        line += item
    return text + [line, "};", ""]


def main():
    if unicodedata.unidata_version != "14.0.0":
        sys.exit(f"this Python has Unicode {unicodedata.unidata_version}; Unicode 14.0.0 (Python 3.11) is needed")
    lines = ["// Written by tools/make_unicode_tables.py; do not edit.", "// clang-format off", "#pragma once", "",
             "namespace bw::tokenizer {", "", "struct CodePointRange {", "  char32_t first;", "  char32_t last;  // inclusive",
             "};", "struct StandInRange {", "  char32_t first;", "  char32_t last;  // inclusive",
             "  char32_t stand_in;  // of the same category and the same length in UTF-8, known to Unicode 14", "};", ""]
    lines += table("Code points assigned after Unicode 14.", "StandInRange", "kNewCodePoints",
                   ranges(new_code_points()), True)
    lines += table("Marks (category M) that the reference's normalizers do not know: neither reordered nor stripped.",
                   "CodePointRange", "kUnknownMarks", ranges(unknown_marks()), False)
    lines += table("Punctuation (category P) that the reference's Punctuation pre-tokenizer does not know.",
                   "CodePointRange", "kUnknownPunctuation", ranges(unknown_punctuation()), False)
    lines.append("}  // namespace bw::tokenizer")
    path = pathlib.Path(__file__).resolve().parent.parent / "src/tokenizer/unicode_tables.h"
    path.write_text("\n".join(lines) + "\n")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
