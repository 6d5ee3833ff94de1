// One product by one call of oneDNN, operands in the types and layouts it likes best, nothing converted: what the
// engine's products are compared with.
#pragma once

#include <algorithm>
#include <cstddef>
#include <unordered_map>

#include <dnnl.hpp>

namespace bw::bench {

class PlainMatmul {
 public:
  // c (m, n) float = a (m, k) · b (k, n), both float or bfloat16. Runs on as many threads as OpenMP is set to.
  PlainMatmul(size_t m, size_t n, size_t k, bool bf16) {
    using dnnl::memory;
    const auto type = bf16 ? memory::data_type::bf16 : memory::data_type::f32;
    const auto dim = [](size_t x) { return static_cast<memory::dim>(x); };
    const dnnl::matmul::desc desc(memory::desc({dim(m), dim(k)}, type, memory::format_tag::ab),
                                  memory::desc({dim(k), dim(n)}, type, memory::format_tag::any),
                                  memory::desc({dim(m), dim(n)}, memory::data_type::f32, memory::format_tag::ab));
    const dnnl::matmul::primitive_desc pd(desc, engine_);
    arguments_ = {{DNNL_ARG_SRC, memory(pd.src_desc(), engine_)},
                  {DNNL_ARG_WEIGHTS, memory(pd.weights_desc(), engine_)},
                  {DNNL_ARG_DST, memory(pd.dst_desc(), engine_)}};
    for (auto& [id, operand] : arguments_) {
      std::fill_n(static_cast<std::byte*>(operand.get_data_handle()), operand.get_desc().get_size(), std::byte{0});
    }
    matmul_ = dnnl::matmul(pd);
  }

  void run() {
    matmul_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::unordered_map<int, dnnl::memory> arguments_;
  dnnl::matmul matmul_;
};

}  // namespace bw::bench
