#include "backend/trace.h"

#include <set>

#include <gtest/gtest.h>

#include "backend/backend.h"
#include "io/json.h"

namespace bw::backend {
namespace {

io::Json events_of(const Trace& trace) { return io::parse_json(trace.chrome_json(), "trace").at("traceEvents"); }

TEST(Trace, IsValidJsonWhateverTheNames) {
  Trace trace;
  trace.add({"stages", "quote \" backslash \\ line\nend", 1500, 4500, 0, 0});
  trace.add({"upload", "upload", 2000, 3000, 4096, 0});
  trace.add({"compute", "gemm", 2000, 2000, 0, 1e12});
  const io::Json events = events_of(trace);
  size_t spans = 0;
  for (const io::Json& e : events) {
    if (e.at("ph") != "X") continue;
    ++spans;
    if (e.at("name") == "upload") {
      EXPECT_EQ(e.at("ts"), 2.0);  // microseconds
      EXPECT_EQ(e.at("dur"), 1.0);
      EXPECT_EQ(e.at("args").at("bytes"), 4096);
    }
  }
  EXPECT_EQ(spans, 3u);
}

TEST(Trace, NamesEachTrackOnce) {
  Trace trace;
  for (int i = 0; i < 3; ++i) {
    trace.add({"stages", "a", i, i + 1, 0, 0});
    trace.add({"compute", "b", i, i + 1, 0, 0});
  }
  std::multiset<std::string> names;
  for (const io::Json& e : events_of(trace)) {
    if (e.at("name") == "thread_name") names.insert(e.at("args").at("name").get<std::string>());
  }
  EXPECT_EQ(names, (std::multiset<std::string>{"compute", "stages"}));
}

TEST(Trace, RecordsOperationsInOrder) {
  Trace trace;
  const auto device = make_cpu_backend(1);
  device->trace_to(&trace);
  const Tensor x = device->allocate(2, 3);
  device->enqueue(op::Fill{x, 1.0f});
  device->enqueue(op::Scale{x, 2.0f});
  device->read<float>(x, "test");
  const auto spans = trace.spans();
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].name, "fill");
  EXPECT_EQ(spans[1].name, "scale");
  EXPECT_EQ(spans[2].track, "waits");
  EXPECT_EQ(spans[2].name, "test");
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_LE(spans[i].begin_ns, spans[i].end_ns);
    EXPECT_LE(i > 0 ? spans[i - 1].end_ns : 0, spans[i].begin_ns);
  }
}

}  // namespace
}  // namespace bw::backend
