// The operations of rounding weights to codes; what holds for all operations stands in ops.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "backend/tensor.h"

namespace bw::backend {

enum class Access : uint8_t { kRead, kWrite };  // kWrite: or both

// Columns of codes, and of what is rounded to them, come in multiples of this: the formats pad them.
inline constexpr size_t kColumnStep = 32;
inline constexpr size_t kMaxGroupRows = 128;

namespace op {

// What InverseFactor leaves in `status` (1, 4) i32.
enum FactorStatus : size_t {
  kDampingSteps = 0,  // how often the damping was raised tenfold; kMaxDampingSteps + 1: h could not be factored, u is
                      // diagonal with 1 / sqrt(h_ii) and order is natural
  kDeadInputs = 1,    // zeros on the diagonal of h
  kNotFinite = 2,     // 1 + the first input i (row) whose h_ij, j >= i, is not finite or whose h_ii is negative; 0:
                      // none. Else the rest is the factor of the identity
  kReserved = 3,
};
inline constexpr int kMaxDampingSteps = 3;

// The triangular factor of the inverse Hessian that GPTQ works with. h (n, n), upper triangle; not changed. Zeros on
// its diagonal count as the mean m of the others (1 if there is none); order (n, 1) i32 sorts the diagonal falling,
// equal ones by index. u (n, n), upper triangular with zeros below: (H + damping·m·I)⁻¹ = Uᵀ U in that order.
// weights (n, 1) = 1 / u_ii². ordered (n, n; or empty) = H + damping·m·I, the whole of it, in that order (of what was
// factored: diagonal where h could not be). While the Cholesky factorization fails, the damping is raised tenfold, up
// to kMaxDampingSteps times. Frantar et al., "GPTQ", ICLR 2023, section 3.3, step 3; from one factorization of the
// reversed matrix (H = R Rᵀ with R upper gives U = R⁻¹), instead of factor, invert and factor again.
struct InverseFactor {
  static constexpr std::string_view kName = "inverse factor";
  Tensor h;
  float damping = 0;
  Tensor u, order, weights, status, ordered;
  void check() const;
  void operands(auto&& visit) const {
    visit(h, Access::kRead), visit(u, Access::kWrite), visit(order, Access::kWrite);
    visit(weights, Access::kWrite), visit(status, Access::kWrite), visit(ordered, Access::kWrite);
  }
};

// What an error of each row costs on tokens that the factor was not made from. With U as InverseFactor leaves it and
// y_t = U z_t for tokens t, y_rt / u_rr is what is left of input r of a token once the rows after it have made up for
// what they can. y (n, tokens); gains (tokens, 1): what each token counts that is not of the factor, 0 for others;
// own_gains (tokens, 1): the same of some that are; all_gains (any number, 1; its rows may be apart); weights (n, 1) =
// 1 / u_rr². For each block of kHeldOutRows rows (the last may be shorter) c = S · Σ weight_r Σ_t gain_t y_rt² / Σ
// weight_r with S the sum of all gains over that of gains, and own c of own_gains. Least squares with p inputs for each
// token leave 1 - p of the noise of own tokens and 1 / (1 - p) of that of others, so 1 - p = (own c / c)^½; were the
// factor made from 1 / share times as many tokens, others would be left 1 / (1 - share · p). So held_out (n, 1) =
// weights · c · (1 - p) / (1 - share · p). p is 0 where own c is not below c or there are no own_gains; c and own c are
// 1 where no token counts.
inline constexpr size_t kHeldOutRows = 128;
struct HeldOutWeights {
  static constexpr std::string_view kName = "held out weights";
  Tensor y, gains, own_gains, all_gains, weights, held_out;
  float share = 1;
  void check() const;
  void operands(auto&& visit) const {
    visit(y, Access::kRead), visit(gains, Access::kRead), visit(own_gains, Access::kRead);
    visit(all_gains, Access::kRead), visit(weights, Access::kRead), visit(held_out, Access::kWrite);
  }
};

// Errors of rounding to nearest, for every group at every width and group size (at most kMaxGroupRows). rows (in, cols;
// a multiple of kColumnStep), weights (in, 1);
// errors (widths · sizes, groups; f64): row `width · sizes + size` holds, for each group of sizes[size] rows (the last
// may be shorter), Σ weight_r · (w - rounded)², with the scales that GroupScale and RoundGroup would choose; the rest
// of the row is undefined. groups >= in / the smallest size, rounded up.
struct PriceGroups {
  static constexpr std::string_view kName = "price groups";
  Tensor rows, weights;
  std::vector<int> widths;
  std::vector<uint32_t> sizes;
  Tensor errors;
  void check() const;
  void operands(auto&& visit) const {
    visit(rows, Access::kRead), visit(weights, Access::kRead), visit(errors, Access::kWrite);
  }
};

// The scale of one group of n <= kMaxGroupRows rows. rows (n, cols; a multiple of kColumnStep), weights (n, 1). For
// each column the scale s among kScaleTrials steps of max|w| / 2^(bits-1) with the least Σ_r weight_r (w - s·level)²,
// at most 65504 / 2^(bits-1); scale_max (1, 1; f16) is scale_max_for() of the largest of them, code_scales (1, 16) the
// scales of its 16 codes (see scale_grid.h). wanted (1, cols): scratch.
struct GroupScale {
  static constexpr std::string_view kName = "group scale";
  Tensor rows, weights;
  int bits = 0;
  Tensor wanted, scale_max, code_scales;
  void check() const;
  void operands(auto&& visit) const {
    visit(rows, Access::kRead), visit(weights, Access::kRead), visit(wanted, Access::kWrite);
    visit(scale_max, Access::kWrite), visit(code_scales, Access::kWrite);
  }
};

// Rounds one group of n rows and feeds the errors forward, in place, to all rows of the panel. panel (n + rest, cols):
// the group, then the rows that take its corrections. u (n, n + rest): U of the group's rows from the diagonal on.
// weights (n, 1), code_scales (1, 16) of GroupScale. For each column the scale code with the least weighted error is
// chosen (0 for a column of zeros; rounding of q·s to half is not looked at), then row after row: q = round(w / s)
// clamped, e = (w - half(q·s)) / u_ii, w_j -= e·u_ij for the rows j after it. The group's own rows of the panel are
// undefined afterwards; u left of its diagonal is not read. cols and n as for GroupScale. codes (n, cols; u8) = q +
// 2^(bits-1), scale_codes (1, cols; u8), errors (n, cols) = e, error (1, 1; f64) += Σ e².
struct RoundGroup {
  static constexpr std::string_view kName = "round group";
  Tensor panel, u, weights;
  int bits = 0;
  Tensor code_scales, codes, scale_codes, errors, error;
  void check() const;
  void operands(auto&& visit) const {
    visit(panel, Access::kWrite), visit(u, Access::kRead), visit(weights, Access::kRead);
    visit(code_scales, Access::kRead), visit(codes, Access::kWrite), visit(scale_codes, Access::kWrite);
    visit(errors, Access::kWrite), visit(error, Access::kWrite);
  }
};

// One pass of coordinate descent over the codes of one group of n rows, in place. For E = target - value of all rows of
// the linear and the quadratic error tr(Eᵀ H E), H with a diagonal above 0: gradient (n, cols) holds the group's rows
// of H·E and is used up, h (n, n) is H of the group's rows among themselves. Row after row, each column's code becomes
// the level nearest to value + gradient_i / h_ii, the best one while all other codes stay, where that lowers the error:
// then error_i (n, cols; rows of E) loses the change d of the value, and gradient_j loses h_ij·d for the rows j after
// it. sum (1, 1; f64) loses what the error does. scale_max (1, 1; f16), scale_codes (1, cols; u8), codes (n, cols; u8):
// as RoundGroup left them; cols and n as for GroupScale.
struct RefineGroup {
  static constexpr std::string_view kName = "refine group";
  Tensor gradient, h, scale_max, scale_codes;
  int bits = 0;
  Tensor codes, error, sum;
  void check() const;
  void operands(auto&& visit) const {
    visit(gradient, Access::kWrite), visit(h, Access::kRead), visit(scale_max, Access::kRead);
    visit(scale_codes, Access::kRead), visit(codes, Access::kWrite), visit(error, Access::kWrite);
    visit(sum, Access::kWrite);
  }
};

// Weights that a loader computes from codes, for rows of one width: codes (n, cols; u8), scale_codes (groups, cols;
// u8), scale_max (groups, 1; f16), order (n, 1; i32), groups of group_size rows (the last may be shorter). w (out,
// in)[c][order[r]] = half((code - 2^(bits-1)) · scale), c < out <= cols; other columns of w are left alone.
struct Dequantize {
  static constexpr std::string_view kName = "dequantize";
  Tensor codes, scale_codes, scale_max, order;
  int bits = 0;
  uint32_t group_size = 0;
  Tensor w;
  void check() const;
  void operands(auto&& visit) const {
    visit(codes, Access::kRead), visit(scale_codes, Access::kRead), visit(scale_max, Access::kRead);
    visit(order, Access::kRead), visit(w, Access::kWrite);
  }
};

// words (rows · bits / 32, cols; i32): the codes (rows, cols; u8) of each column as one stream of `bits` bits each,
// lowest bit first. rows: a multiple of 32.
struct PackBits {
  static constexpr std::string_view kName = "pack bits";
  Tensor codes;
  int bits = 0;
  Tensor words;
  void check() const;
  void operands(auto&& visit) const { visit(codes, Access::kRead), visit(words, Access::kWrite); }
};

// The inverse of PackBits.
struct UnpackBits {
  static constexpr std::string_view kName = "unpack bits";
  Tensor words;
  int bits = 0;
  Tensor codes;
  void check() const;
  void operands(auto&& visit) const { visit(words, Access::kRead), visit(codes, Access::kWrite); }
};

// words (rows, cols / 8; i32): eight neighbouring codes (rows, cols; u8, below 16) a word, low nibble first.
struct PackNibbles {
  static constexpr std::string_view kName = "pack nibbles";
  Tensor codes, words;
  void check() const;
  void operands(auto&& visit) const { visit(codes, Access::kRead), visit(words, Access::kWrite); }
};

// The inverse of PackNibbles.
struct UnpackNibbles {
  static constexpr std::string_view kName = "unpack nibbles";
  Tensor words, codes;
  void check() const;
  void operands(auto&& visit) const { visit(words, Access::kRead), visit(codes, Access::kWrite); }
};

// count (1, 1; i32) += number of elements in which a and b (u8, same shape) differ.
struct CountDifferences {
  static constexpr std::string_view kName = "count differences";
  Tensor a, b, count;
  void check() const;
  void operands(auto&& visit) const { visit(a, Access::kRead), visit(b, Access::kRead), visit(count, Access::kWrite); }
};

}  // namespace op
}  // namespace bw::backend
