// Tables of what inspection tells.
#pragma once

#include <string>
#include <vector>

#include "bitwright/inspect.h"

namespace bw::cli {

// One line for each module (with shape, bytes, bits per weight and where they lie between) and, where there are
// decoder layers, one for each layer with the bits of each of its linears.
void print_by_module(const std::vector<PartReport>& parts);
void print_by_layer(const std::vector<PartReport>& parts);
// Each part with its layout.
void print_each(const std::vector<PartReport>& parts);
// The prices of a measurement, by module and by layer.
void print_prices(const MeasurementReport& report);

}  // namespace bw::cli
