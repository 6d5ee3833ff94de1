// The checks themselves: each must find what it is there for.
#include "layout/source_checks.h"

#include <gtest/gtest.h>

namespace bw::layout {
namespace {

std::vector<std::string> some_layers() { return {"base", "io", "model"}; }

TEST(LayersOf, FollowsTheOrderOfTheDeclarations) {
  EXPECT_EQ(layers_of("# bw_layer(NAME)\n\nbw_layer(base LIBS x)\nbw_layer(io)\n"),
            (std::vector<std::string>{"base", "io"}));
}

TEST(CheckLayering, AllowsOwnLayerLowerLayersAndPublicHeaders) {
  EXPECT_TRUE(check_layering({"src/io/a.cc",
                              "#include <vector>\n#include \"io/a.h\"\n#include \"base/b.h\"\n"
                              "#include \"bitwright/error.h\"\n"},
                             some_layers())
                  .empty());
}

TEST(CheckLayering, FindsAnIncludeOfALayerAbove) {
  EXPECT_EQ(check_layering({"src/io/a.cc", "\n#include \"model/m.h\"\n"}, some_layers()),
            Violations{"src/io/a.cc:2: io includes \"model/m.h\" of a layer above it"});
}

TEST(CheckLayering, FindsFoldersThatAreNoLayers) {
  EXPECT_EQ(check_layering({"src/odd/a.cc", ""}, some_layers()).size(), 1u);
  EXPECT_EQ(check_layering({"src/io/a.cc", "  #  include \"a.h\"\n#include \"../base/b.h\"\n"}, some_layers()).size(),
            2u);
}

TEST(CheckPublicOnly, FindsTheLibrarysInside) {
  const std::string text =
      "#include \"bitwright/error.h\"\n#include \"cli/args.h\"\n#include \"args.h\"\n#include \"io/json.h\"\n";
  EXPECT_EQ(check_public_only({"cli/main.cc", text}), Violations{"cli/main.cc:4: \"io/json.h\" is not public"});
  EXPECT_EQ(check_public_only({"include/bitwright/a.h", text}).size(), 3u);
}

TEST(Blanking, KeepsCodeAndLines) {
  EXPECT_EQ(blank_comments_and_literals("a \"x\\\"y\" b // c\nd /* e\nf */ g 'h' 1'000 u"),
            "a        b     \nd     \n     g     1'000 u");
  EXPECT_EQ(blank_comments_and_literals("R\"x(\n\" )\")x\" z"), "    \n        z");
  EXPECT_EQ(blank_comments_and_literals("\"open"), "     ");
}

TEST(CheckSilent, FindsOutputAndExits) {
  for (const char* text : {"std::cout << x;", "std :: cerr << 1;", "printf(\"\");", "fprintf (f, s);", "std::exit(1);",
                           "abort();", "std::terminate();", "fmt::print(\"x\");"}) {
    EXPECT_EQ(check_silent({"src/io/a.cc", text}).size(), 1u) << text;
  }
}

TEST(CheckSilent, ReadsCodeOnly) {
  for (const char* text : {"// abort() it", "\"std::cout\"", "snprintf(b, n, f);", "exit_code(1);", "bool aborted;",
                           "static_assert(true);"}) {
    EXPECT_TRUE(check_silent({"src/io/a.cc", text}).empty()) << text;
  }
}

TEST(CheckFileLength, CountsLines) {
  EXPECT_TRUE(check_file_length({"a", "1\n2\n3\n"}, 3).empty());
  EXPECT_EQ(check_file_length({"a", "1\n2\n3\n4"}, 3).size(), 1u);
}

// A definition of five lines, in many guises.
class FunctionLength : public testing::TestWithParam<const char*> {};

TEST_P(FunctionLength, IsCounted) {
  const SourceFile file{"a.cc", std::string("namespace n {\nint x = 1;\n") + GetParam() + "\n}\n"};
  EXPECT_EQ(check_function_length(file, 4), Violations{"a.cc:3: a function of 5 lines"});
  EXPECT_TRUE(check_function_length(file, 5).empty());
}

INSTANTIATE_TEST_SUITE_P(
    Guises, FunctionLength,
    testing::Values("void f() {\n\n  if (a) { b(); }\n\n}", "int\nf(int a = 1)\nconst {\n  return \"}\"[0] + '}';\n}",
                    "template <class T, size_t N>\nrequires C<T>\nvoid f() {\n  g();\n}",
                    "A::A(int b)\n    : b_(b), c_(1) {\n  const auto f = [&](int x) {\n    return x; };\n}",
                    "bool operator==(A a,\n                B b) {\n  struct L { int x; };\n\n}",
                    "TEST(A, B) {\n#if X\n  int y[] = {1, 2};\n#endif\n}"));

TEST(FunctionLength, LooksInsideTypesAndLeavesThemAlone) {
  const std::string members = "struct S {\n  void f() {\n\n  }\n  void g() {\n  }\n  int a[2] = {\n\n\n\n\n1};\n};\n";
  EXPECT_EQ(check_function_length({"a.h", members}, 2), Violations{"a.h:2: a function of 3 lines"});
}

TEST(CheckMachinePaths, FindsAbsolutePathsOnly) {
  const std::string home = std::string("/ho") + "me/somebody", root = std::string("/ro") + "ot",
                    work = std::string("/wo") + "rk";
  EXPECT_EQ(check_machine_paths({"a", "x\ncd " + root + "/a\n\"" + home + "\"\n" + work}).size(), 3u);
  EXPECT_TRUE(
      check_machine_paths({"a", "src" + work + " OUT." + work.substr(1) + " " + work + "ing ." + root}).empty());
}

}  // namespace
}  // namespace bw::layout
