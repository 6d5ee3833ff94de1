#include "pipeline/calibrate.h"

#include "io/file_write.h"

namespace bw::pipeline {

CalibrateResult calibrate_model(Run& run, const CalibrateOptions& options) {
  const model::ModelDir dir(options.model);
  const calib::Mix mix = calibration_mix(run, dir, options.calibration);
  if (!options.output.empty()) {
    io::write_file(options.output, calib::rows_file(mix, tokenizer::Tokenizer::load(options.model)));
  }
  return {mix.sources, mix.rows.count(), mix.rows.length};
}

}  // namespace bw::pipeline
