// What GPTQ leaves to be had within the same bits: other codes under the same scales.
#pragma once

#include "quant/gptq.h"

namespace bw::quant {

// Coordinate descent over the codes of q, `sweeps` times through all rows, on the error tr(Eᵀ H E) of E = target -
// values, with the damped H that `factor` was made from (factor.ordered must be filled). GPTQ rounds each row once,
// with what later rows will make up for in mind; here each row is rounded again with all others as they now stand. The
// error never rises; q.error follows it. target: (in, padded out), rows in activation order; used up.
// Cost of a sweep: 2 · in² · out operations, as products.
void refine(backend::Backend& device, const backend::Tensor& target, const Factor& factor, const QuantizedLinear& q,
            int sweeps);

}  // namespace bw::quant
