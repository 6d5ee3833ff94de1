#include "backend/cpu/matmul.h"

#include <string>
#include <unordered_map>

#include <malloc.h>
#include <omp.h>
#include <sys/resource.h>
#include <dnnl.hpp>

#include "base/check.h"

namespace bw::backend::cpu {
namespace {

using dnnl::memory;

// oneDNN crashes where it finds no memory for the code that it makes. So under a limit of address space (elsewhere
// memory is always given) it is called only while there is some left; else std::bad_alloc. glibc reserves 64 MiB or
// more for each thread that allocates for the first time: there it must not, or the room is gone before oneDNN asks.
void require_room() {
  constexpr size_t kRoomBytes = size_t{64} << 20;
  static const bool limited = [] {
    rlimit limit{};
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
#ifdef M_ARENA_MAX
    mallopt(M_ARENA_MAX, 1);
#endif
    return true;
  }();
  if (limited) AlignedBuffer<std::byte>{kRoomBytes};  // pages that nobody touches cost nothing
}

// While it lives, oneDNN works on the calling thread alone (its parallel regions ask OpenMP, whose setting is one per
// thread). The setting is put back, since the thread may be the user's.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) {
    require_room();
    omp_set_num_threads(1);
  }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

dnnl::stream& stream() {
  thread_local dnnl::stream s(engine());
  return s;
}

// Grows to the largest that this thread has asked for.
void* scratch(size_t bytes) {
  thread_local AlignedBuffer<std::byte> buffer;
  if (buffer.size() < bytes) buffer = AlignedBuffer<std::byte>(bytes);
  return buffer.data();
}

// oneDNN's own exception as ours.
template <typename F>
auto guarded(const F& f) {
  try {
    return f();
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_out_of_memory) throw std::bad_alloc();
    throw Error(ErrorCode::kInternal, std::string("oneDNN: ") + e.what());
  }
}

memory::data_type data_type(TileType type) {
  return type == TileType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory::dim dim(size_t n) { return static_cast<memory::dim>(n); }

memory::desc matrix_desc(memory::data_type type, size_t rows, size_t cols, size_t row_stride, size_t col_stride) {
  return {memory::dims{dim(rows), dim(cols)}, type, memory::dims{dim(row_stride), dim(col_stride)}};
}

// The layout of packed weights. It is asked for with a middling number of rows, and serves any.
memory::desc packed_desc(TileType type, size_t n, size_t k) {
  constexpr size_t kRows = 256;
  const memory::desc any({dim(k), dim(n)}, data_type(type), memory::format_tag::any);
  const dnnl::matmul::desc d(matrix_desc(data_type(type), kRows, k, k, 1), any,
                             matrix_desc(memory::data_type::f32, kRows, n, n, 1));
  return dnnl::matmul::primitive_desc(d, engine()).weights_desc();
}

class OneDnnMatmul final : public TileMatmul {
 public:
  explicit OneDnnMatmul(const TileShape& s) {
    const OneThread one;
    const auto type = data_type(s.type);
    const memory::desc a = matrix_desc(type, s.m, s.k, s.a_row, s.a_col);
    const memory::desc b =
        s.b_row == 0 && s.b_col == 0 ? packed_desc(s.type, s.n, s.k) : matrix_desc(type, s.k, s.n, s.b_row, s.b_col);
    const memory::desc c = matrix_desc(memory::data_type::f32, s.m, s.n, s.c_row, 1);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (s.accumulate) {
      dnnl::post_ops ops;
      ops.append_sum(1.0f);
      attributes.set_post_ops(ops);
    }
    const memory::desc bias = s.bias ? matrix_desc(memory::data_type::f32, 1, s.n, s.n, 1) : memory::desc();
    const auto desc = s.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
    const dnnl::matmul::primitive_desc chosen(desc, attributes, engine());
    primitive_ = dnnl::matmul(chosen);
    a_ = chosen.src_desc();
    b_ = chosen.weights_desc();
    c_ = chosen.dst_desc();
    if (s.bias) bias_ = chosen.bias_desc();
    pad_ = chosen.scratchpad_desc();
  }

  void run(const void* a, const void* b, const float* bias, float* c) const override {
    guarded([&] {
      const OneThread one;
      const auto bound = [](const memory::desc& d, const void* p) { return memory(d, engine(), const_cast<void*>(p)); };
      std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, bound(a_, a)},
                                                {DNNL_ARG_WEIGHTS, bound(b_, b)},
                                                {DNNL_ARG_DST, bound(c_, c)},
                                                {DNNL_ARG_SCRATCHPAD, bound(pad_, scratch(pad_.get_size()))}};
      if (bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, bound(bias_, bias));
      primitive_.execute(stream(), arguments);
    });
  }

 private:
  dnnl::matmul primitive_;
  memory::desc a_, b_, c_, bias_, pad_;
};

}  // namespace

std::shared_ptr<const TileMatmul> TileMatmuls::get(const TileShape& shape) {
  constexpr size_t kMost = 1024;  // shapes of one model: a few dozen
  const std::lock_guard lock(mutex_);
  const auto found = made_.find(shape);
  if (found != made_.end()) return found->second;
  if (made_.size() >= kMost) made_.clear();
  auto made = guarded([&] { return std::make_shared<const OneDnnMatmul>(shape); });
  made_.emplace(shape, made);
  return made;
}

size_t packed_bytes(TileType type, size_t n, size_t k) {
  return guarded([&] {
    const OneThread one;
    return packed_desc(type, n, k).get_size();
  });
}

void pack_panel(TileType type, MatrixView<const float> w, std::byte* out) {
  guarded([&] {
    const OneThread one;
    const memory::desc packed = packed_desc(type, w.rows, w.cols);
    const memory::desc plain = matrix_desc(memory::data_type::f32, w.cols, w.rows, 1, w.stride);
    memory from(plain, engine(), const_cast<float*>(w.data)), to(packed, engine(), out);
    dnnl::reorder(from, to).execute(stream(), from, to);
  });
}

bool packed_panels_join(TileType type, size_t panel, size_t n, size_t k) {
  return guarded([&] {
    const OneThread one;
    if (n <= panel) return true;
    // Equal blocks, of which those along n lie outermost: then the whole is a row of panels.
    const dnnl_memory_desc_t whole = packed_desc(type, n, k).data, part = packed_desc(type, panel, k).data;
    const dnnl_blocking_desc_t &a = whole.format_desc.blocking, &b = part.format_desc.blocking;
    bool same = whole.format_kind == dnnl_blocked && part.format_kind == dnnl_blocked && a.inner_nblks == b.inner_nblks;
    for (int i = 0; same && i < a.inner_nblks; ++i) {
      same = a.inner_blks[i] == b.inner_blks[i] && a.inner_idxs[i] == b.inner_idxs[i];
    }
    memory::dim block = 1;  // outputs in an inner block
    for (int i = 0; same && i < a.inner_nblks; ++i) block *= a.inner_idxs[i] == 1 ? a.inner_blks[i] : 1;
    return same && dim(panel) % block == 0 && a.strides[0] == b.strides[0] && a.strides[1] == b.strides[1] &&
           a.strides[1] >= a.strides[0];
  });
}

void sgemm(SgemmOperand a, SgemmOperand b, size_t m, size_t n, size_t k, float alpha, float beta, float* c,
           size_t c_stride) {
  const OneThread one;
  const auto status = dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', dim(m), dim(n), dim(k), alpha,
                                 a.data, dim(a.stride), b.data, dim(b.stride), beta, c, dim(c_stride));
  if (status == dnnl_out_of_memory) throw std::bad_alloc();
  BW_CHECK(status == dnnl_success);
}

bool cpu_multiplies_bf16() {
  const auto bits = [](dnnl::cpu_isa isa) { return static_cast<unsigned>(isa); };
  const unsigned needed = bits(dnnl::cpu_isa::avx512_core_bf16);
  return (bits(dnnl::get_effective_cpu_isa()) & needed) == needed;
}

}  // namespace bw::backend::cpu
