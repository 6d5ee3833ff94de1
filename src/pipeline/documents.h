// What is written about a finished model: its report and its model card.
#pragma once

#include <string>
#include <vector>

#include "calib/mix.h"
#include "pipeline/output_plan.h"
#include "pipeline/session.h"
#include "pipeline/stream_comparison.h"
#include "report/report.h"

namespace bw::pipeline {

// A file of the output.
struct Document {
  std::string name, text;
};

// What a report is made of.
struct ReportSources {
  const QuantizeOptions& options;
  const Measurement& measurement;
  const OutputPlan& plan;
  const StreamComparison& seen;
  const std::vector<CalibrationSource>& sources;
  std::string text_fingerprint;
  double seconds = 0;
};
report::Report make_report(const Run& run, const model::ModelDir& dir, const ReportSources& from);

// Page, data and model card, in the order in which they are written. Of the original's own card, where there is one,
// the licence is told, and where it is kept.
std::vector<Document> documents_of(const report::Report& report, const OutputPlan& plan);

// Bytes that the documents of a model with so many linears take at most, about.
uint64_t bytes_of_documents(size_t linears);

// The report in a finished model's directory. Throws Error(kIo) if there is none, else what report::parse_report does.
report::Report load_report(const std::filesystem::path& model);
// The same of all models, drawn; the errors of load_report, and Error(kUsage) for none.
ReportResult report_models(const ReportOptions& options);

}  // namespace bw::pipeline
