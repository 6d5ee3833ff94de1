// What stands before every job: the model directory as a linter sees it, and what the job needs.
#pragma once

#include <vector>

#include "bitwright/options.h"
#include "model/model_dir.h"
#include "pipeline/session.h"

namespace bw::pipeline {

// The result of plan(). Nothing is written, and no weight is worked on.
PlanResult plan_job(const PlanOptions& options);

// A model that a job may begin with, and what its user should know.
struct JobStart {
  model::ModelDir dir;
  std::vector<Finding> warnings;
  bool states_on_disk = false;  // see Run
};
// The checks of plan() that the job does not make itself before any expensive step. Throws the first error.
JobStart start_job(const Run& run, const PlanOptions& options);

}  // namespace bw::pipeline
