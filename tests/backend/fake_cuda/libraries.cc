// Matrix products, triangular solution and Cholesky factorization of the fake CUDA, as plain loops over matrices stored
// by columns.
#include <cstring>
#include <vector>

#include "backend/fake_cuda/cublasLt.h"
#include "backend/fake_cuda/cusolverDn.h"
#include "base/half.h"

struct cublasLtMatmulDescOpaque_t {
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  uint64_t rows, cols;
  int64_t ld;
};
struct cublasLtMatmulPreferenceOpaque_t {
  unsigned alignment[4] = {256, 256, 256, 256};
};

namespace fake_cuda {

struct Library {
  cudaStream_t stream = nullptr;
};

namespace {

using Layout = cublasLtMatrixLayoutOpaque_t;

// op(m) as rows one after the other; `rows` and `cols` of op(m).
std::vector<float> unpacked(const void* m, const Layout& layout, bool transposed, size_t rows, size_t cols) {
  std::vector<float> values(rows * cols);
  const auto ld = static_cast<size_t>(layout.ld);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) {
      const size_t at = transposed ? r * ld + c : c * ld + r;
      values[r * cols + c] = layout.type == CUDA_R_32F ? static_cast<const float*>(m)[at]
                                                       : bw::to_float(static_cast<const bw::BFloat16*>(m)[at]);
    }
  }
  return values;
}

struct Product {
  cublasLtMatmulDescOpaque_t desc;
  Layout a_layout, b_layout, c_layout;
  const void *a, *b;
  float* c;
  float alpha, beta;

  size_t m() const { return c_layout.rows; }
  size_t n() const { return c_layout.cols; }
  size_t k() const { return desc.a == CUBLAS_OP_N ? a_layout.cols : a_layout.rows; }
  bool fits() const {
    const bool ta = desc.a == CUBLAS_OP_T, tb = desc.b == CUBLAS_OP_T;
    for (const Layout* l : {&a_layout, &b_layout, &c_layout}) {
      if (l->ld < static_cast<int64_t>(l->rows) || l->rows == 0 || l->cols == 0) return false;
    }
    return (ta ? a_layout.cols : a_layout.rows) == m() && (tb ? b_layout.rows : b_layout.cols) == n() &&
           (tb ? b_layout.cols : b_layout.rows) == k() && a_layout.type == b_layout.type && c_layout.type == CUDA_R_32F;
  }
  void run() const {
    const auto left = unpacked(a, a_layout, desc.a == CUBLAS_OP_T, m(), k());
    const auto right = unpacked(b, b_layout, desc.b == CUBLAS_OP_N, n(), k());  // by columns
    for (size_t j = 0; j < n(); ++j) {
      for (size_t i = 0; i < m(); ++i) {
        const float *x = left.data() + i * k(), *y = right.data() + j * k();
        double sum = 0;
        for (size_t l = 0; l < k(); ++l) sum += double{x[l]} * y[l];
        float& to = c[j * static_cast<size_t>(c_layout.ld) + i];
        to = static_cast<float>(alpha * sum + (beta == 0 ? 0.0 : double{beta} * to));
      }
    }
  }
};

bool is_aligned(const void* p, unsigned bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

// Of a, stored by columns, upper triangle: a = Cᵀ C. 1 + the column at which it fails, or 0.
int cholesky_upper(float* a, size_t n, size_t ld) {
  for (size_t j = 0; j < n; ++j) {
    for (size_t i = 0; i <= j; ++i) {
      double sum = a[j * ld + i];
      for (size_t l = 0; l < i; ++l) sum -= double{a[i * ld + l]} * a[j * ld + l];
      if (i == j && !(sum > 0)) return static_cast<int>(j) + 1;
      a[j * ld + i] = static_cast<float>(i == j ? std::sqrt(sum) : sum / a[i * ld + i]);
    }
  }
  return 0;
}

// b = a⁻¹ · b, a upper triangular.
void solve_upper(const float* a, size_t n, size_t lda, float* b, size_t columns, size_t ldb) {
  for (size_t j = 0; j < columns; ++j) {
    float* const x = b + j * ldb;
    for (size_t i = n; i-- > 0;) {
      double sum = x[i];
      for (size_t l = i + 1; l < n; ++l) sum -= double{a[l * lda + i]} * x[l];
      x[i] = static_cast<float>(sum / a[i * lda + i]);
    }
  }
}

}  // namespace
}  // namespace fake_cuda

using fake_cuda::Library;

const char* cublasGetStatusString(cublasStatus_t) { return "CUBLAS_STATUS_INVALID_VALUE"; }

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = new Library;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace(cublasHandle_t, void*, size_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasStrsm(cublasHandle_t handle, cublasSideMode_t, cublasFillMode_t, cublasOperation_t trans,
                           cublasDiagType_t, int m, int n, const float* alpha, const float* a, int lda, float* b,
                           int ldb) {
  if (trans != CUBLAS_OP_N || *alpha != 1 || lda < m || ldb < m) return CUBLAS_STATUS_INVALID_VALUE;
  fake_cuda::enqueue(handle->stream, [=] {
    fake_cuda::solve_upper(a, static_cast<size_t>(m), static_cast<size_t>(lda), b, static_cast<size_t>(n),
                           static_cast<size_t>(ldb));
  });
  return CUBLAS_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t* handle) {
  *handle = new Library;
  return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle) {
  delete handle;
  return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnSpotrf_bufferSize(cusolverDnHandle_t, cublasFillMode_t, int n, float*, int, int* floats) {
  *floats = n;
  return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnSpotrf(cusolverDnHandle_t handle, cublasFillMode_t, int n, float* a, int lda, float*,
                                  int floats, int* info) {
  if (lda < n || floats < n) return CUSOLVER_STATUS_INVALID_VALUE;
  fake_cuda::enqueue(handle->stream,
                     [=] { *info = fake_cuda::cholesky_upper(a, static_cast<size_t>(n), static_cast<size_t>(lda)); });
  return CUSOLVER_STATUS_SUCCESS;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return cublasCreate(handle); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return cublasDestroy(handle); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t, cudaDataType_t) {
  *desc = new cublasLtMatmulDescOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  if (bytes != sizeof(cublasOperation_t)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(attribute == CUBLASLT_MATMUL_DESC_TRANSA ? &desc->a : &desc->b, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  *layout = new cublasLtMatrixLayoutOpaque_t{type, rows, cols, ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  const bool wide = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
  if (bytes != (wide ? 8 : 4)) return CUBLAS_STATUS_INVALID_VALUE;
  if (attribute >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
    std::memcpy(&preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  std::memcpy(results->algo.alignment, preference->alignment, sizeof(preference->alignment));
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t* algo, void*, size_t,
                              cudaStream_t stream) {
  const fake_cuda::Product product{*desc,
                                   *a_layout,
                                   *b_layout,
                                   *c_layout,
                                   a,
                                   b,
                                   static_cast<float*>(d),
                                   *static_cast<const float*>(alpha),
                                   *static_cast<const float*>(beta)};
  const bool aligned = fake_cuda::is_aligned(a, algo->alignment[0]) && fake_cuda::is_aligned(b, algo->alignment[1]) &&
                       fake_cuda::is_aligned(d, algo->alignment[2]);
  if (!aligned || c != d || !product.fits()) return CUBLAS_STATUS_INVALID_VALUE;
  fake_cuda::enqueue(stream, [product] { product.run(); });
  return CUBLAS_STATUS_SUCCESS;
}
