// The Python module bitwright._core: the public functions and their options and results, as they are. What users call
// is python/bitwright/__init__.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bitwright/bitwright.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

// Connects a run to Python while the interpreter's lock is released. What the callback raises, or a signal's handler,
// ends the run at its next step and is raised from the call; at the end of a run, too, though all is written then.
class Watcher {
 public:
  explicit Watcher(nb::object progress) : progress_(std::move(progress)) {}

  void watch(bw::EngineOptions& engine) {
    engine.progress = [this](const bw::ProgressEvent& event) { tell(event); };
    engine.interrupted = [this] { return ends(); };
  }

  template <typename Call>
  auto run(const Call& call) {
    auto result = [&] {
      try {
        const nb::gil_scoped_release released;
        return call();
      } catch (const bw::Error& e) {
        if (raised_ && e.code() == bw::ErrorCode::kInterrupted) throw std::move(*raised_);
        throw;
      }
    }();
    if (raised_) throw std::move(*raised_);
    return result;
  }

 private:
  void tell(const bw::ProgressEvent& event) {
    const nb::gil_scoped_acquire lock;
    if (raised_ || progress_.is_none()) return;
    try {
      progress_(event);
    } catch (nb::python_error& e) {
      raised_.emplace(std::move(e));
    }
  }

  bool ends() {
    const nb::gil_scoped_acquire lock;
    if (!raised_ && PyErr_CheckSignals() != 0) raised_.emplace();
    return raised_.has_value();
  }

  nb::object progress_;
  std::optional<nb::python_error> raised_;
};

// bw::Error as the exception of its code, of bitwright._errors.
void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const bw::Error& e) {
    const nb::object made =
        nb::module_::import_("bitwright._errors").attr("make")(static_cast<int>(e.code()), e.what(), e.hint());
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  }
}

template <typename Options, typename Call>
auto watched(Options options, nb::object progress, const Call& call) {
  Watcher watcher(std::move(progress));
  watcher.watch(options.engine);
  return watcher.run([&] { return call(options); });
}

void add_enums(nb::module_& m) {
  nb::enum_<bw::Arithmetic>(m, "Arithmetic")
      .value("auto", bw::Arithmetic::kAuto)
      .value("f32", bw::Arithmetic::kF32)
      .value("bf16", bw::Arithmetic::kBF16);
  nb::enum_<bw::Effort>(m, "Effort")
      .value("fast", bw::Effort::kFast)
      .value("normal", bw::Effort::kNormal)
      .value("best", bw::Effort::kBest);
  nb::enum_<bw::ProgressEvent::Kind>(m, "ProgressKind")
      .value("progress", bw::ProgressEvent::Kind::kProgress)
      .value("note", bw::ProgressEvent::Kind::kNote)
      .value("warning", bw::ProgressEvent::Kind::kWarning);
}

void add_options(nb::module_& m) {
  nb::class_<bw::EngineOptions>(m, "EngineOptions")
      .def(nb::init<>())
      .def_rw("threads", &bw::EngineOptions::threads)
      .def_rw("arithmetic", &bw::EngineOptions::arithmetic)
      .def_rw("device", &bw::EngineOptions::device)
      .def_rw("memory", &bw::EngineOptions::memory)
      .def_rw("device_memory", &bw::EngineOptions::device_memory);
  nb::class_<bw::CalibrationOptions>(m, "CalibrationOptions")
      .def(nb::init<>())
      .def_rw("files", &bw::CalibrationOptions::files)
      .def_rw("weights", &bw::CalibrationOptions::weights)
      .def_rw("rows", &bw::CalibrationOptions::rows)
      .def_rw("length", &bw::CalibrationOptions::length)
      .def_rw("seed", &bw::CalibrationOptions::seed);
  nb::class_<bw::WorkOptions>(m, "WorkOptions")
      .def(nb::init<>())
      .def_rw("path", &bw::WorkOptions::path)
      .def_rw("restart", &bw::WorkOptions::restart);
  nb::class_<bw::QuantizeOptions>(m, "QuantizeOptions")
      .def(nb::init<>())
      .def_rw("model", &bw::QuantizeOptions::model)
      .def_rw("output", &bw::QuantizeOptions::output)
      .def_rw("measurement", &bw::QuantizeOptions::measurement, "path"_a.none())
      .def_rw("bpw", &bw::QuantizeOptions::bpw)
      .def_rw("size", &bw::QuantizeOptions::size, "bytes"_a.none())
      .def_rw("effort", &bw::QuantizeOptions::effort)
      .def_rw("head_bits", &bw::QuantizeOptions::head_bits, "bits"_a.none())
      .def_rw("shard_bytes", &bw::QuantizeOptions::shard_bytes)
      .def_rw("overwrite", &bw::QuantizeOptions::overwrite)
      .def_rw("calibration", &bw::QuantizeOptions::calibration)
      .def_rw("work", &bw::QuantizeOptions::work)
      .def_rw("engine", &bw::QuantizeOptions::engine);
  nb::class_<bw::MeasureOptions>(m, "MeasureOptions")
      .def(nb::init<>())
      .def_rw("model", &bw::MeasureOptions::model)
      .def_rw("output", &bw::MeasureOptions::output)
      .def_rw("calibration", &bw::MeasureOptions::calibration)
      .def_rw("work", &bw::MeasureOptions::work)
      .def_rw("engine", &bw::MeasureOptions::engine);
  nb::class_<bw::EvaluateOptions>(m, "EvaluateOptions")
      .def(nb::init<>())
      .def_rw("model", &bw::EvaluateOptions::model)
      .def_rw("reference", &bw::EvaluateOptions::reference, "path"_a.none())
      .def_rw("text", &bw::EvaluateOptions::text)
      .def_rw("rows", &bw::EvaluateOptions::rows)
      .def_rw("length", &bw::EvaluateOptions::length)
      .def_rw("engine", &bw::EvaluateOptions::engine);
}

void add_results(nb::module_& m) {
  nb::class_<bw::ProgressEvent>(m, "Progress")
      .def_ro("kind", &bw::ProgressEvent::kind)
      .def_prop_ro("stage", [](const bw::ProgressEvent& e) { return std::string(e.stage); })
      .def_ro("done", &bw::ProgressEvent::done)
      .def_ro("total", &bw::ProgressEvent::total)
      .def_ro("text", &bw::ProgressEvent::text)
      .def_prop_ro("unit", [](const bw::ProgressEvent& e) { return std::string(e.unit); });
  nb::class_<bw::Estimate>(m, "Estimate").def_ro("value", &bw::Estimate::value).def_ro("error", &bw::Estimate::error);
  nb::class_<bw::MeasuredDivergence>(m, "MeasuredDivergence")
      .def_ro("kld", &bw::MeasuredDivergence::kld)
      .def_ro("top1", &bw::MeasuredDivergence::top1)
      .def_ro("tokens", &bw::MeasuredDivergence::tokens)
      .def_ro("held_out", &bw::MeasuredDivergence::held_out);
  nb::class_<bw::QuantizeResult>(m, "QuantizeResult")
      .def_ro("output", &bw::QuantizeResult::output)
      .def_ro("bpw_target", &bw::QuantizeResult::bpw_target)
      .def_ro("bpw_linears", &bw::QuantizeResult::bpw_linears)
      .def_ro("bpw_head", &bw::QuantizeResult::bpw_head)
      .def_ro("predicted_kld", &bw::QuantizeResult::predicted_kld)
      .def_ro("measured", &bw::QuantizeResult::measured)
      .def_ro("written_bytes", &bw::QuantizeResult::written_bytes)
      .def_ro("seconds", &bw::QuantizeResult::seconds);
  nb::class_<bw::MeasureResult>(m, "MeasureResult")
      .def_ro("linears", &bw::MeasureResult::linears)
      .def_ro("candidates", &bw::MeasureResult::candidates)
      .def_ro("tokens", &bw::MeasureResult::tokens)
      .def_ro("smallest_bpw", &bw::MeasureResult::smallest_bpw)
      .def_ro("largest_bpw", &bw::MeasureResult::largest_bpw);
  nb::class_<bw::EvaluateResult>(m, "EvaluateResult")
      .def_ro("tokens", &bw::EvaluateResult::tokens)
      .def_ro("perplexity", &bw::EvaluateResult::perplexity)
      .def_ro("bytes", &bw::EvaluateResult::bytes)
      .def_ro("bpw_linears", &bw::EvaluateResult::bpw_linears)
      .def_ro("bpw_head", &bw::EvaluateResult::bpw_head)
      .def_ro("has_reference", &bw::EvaluateResult::has_reference)
      .def_ro("reference_perplexity", &bw::EvaluateResult::reference_perplexity)
      .def_ro("kld", &bw::EvaluateResult::kld)
      .def_ro("top1", &bw::EvaluateResult::top1)
      .def_ro("kld_median", &bw::EvaluateResult::kld_median)
      .def_ro("kld_p90", &bw::EvaluateResult::kld_p90)
      .def_ro("kld_p99", &bw::EvaluateResult::kld_p99)
      .def_ro("kld_p999", &bw::EvaluateResult::kld_p999)
      .def_ro("kld_max", &bw::EvaluateResult::kld_max);
  nb::class_<bw::PartReport>(m, "PartReport")
      .def_ro("key", &bw::PartReport::key)
      .def_ro("layer", &bw::PartReport::layer)
      .def_ro("module", &bw::PartReport::module)
      .def_prop_ro("in_features", [](const bw::PartReport& p) { return p.in; })
      .def_prop_ro("out_features", [](const bw::PartReport& p) { return p.out; })
      .def_ro("layout", &bw::PartReport::layout)
      .def_ro("bytes", &bw::PartReport::bytes)
      .def_ro("bpw", &bw::PartReport::bpw);
  nb::class_<bw::InspectResult>(m, "InspectResult")
      .def_ro("architecture", &bw::InspectResult::architecture)
      .def_ro("layers", &bw::InspectResult::layers)
      .def_ro("hidden", &bw::InspectResult::hidden)
      .def_ro("vocabulary", &bw::InspectResult::vocabulary)
      .def_ro("parameters", &bw::InspectResult::parameters)
      .def_ro("tensor_bytes", &bw::InspectResult::tensor_bytes)
      .def_ro("quantized", &bw::InspectResult::quantized)
      .def_ro("tied", &bw::InspectResult::tied)
      .def_ro("bpw_linears", &bw::InspectResult::bpw_linears)
      .def_ro("bpw_head", &bw::InspectResult::bpw_head)
      .def_ro("bpw_all", &bw::InspectResult::bpw_all)
      .def_ro("linears", &bw::InspectResult::linears)
      .def_ro("warnings", &bw::InspectResult::warnings);
}

}  // namespace

NB_MODULE(_core, m) {
  nb::register_exception_translator(translate);
  add_enums(m);
  add_options(m);
  add_results(m);
  m.def("version", [] { return std::string(bw::version()); });
  m.def(
      "parse_bytes", [](const std::string& text, const std::string& name) { return bw::parse_bytes(text, name); },
      "text"_a, "name"_a);
  m.def(
      "quantize",
      [](const bw::QuantizeOptions& o, nb::object progress) {
        return watched(o, std::move(progress), [](const bw::QuantizeOptions& all) { return bw::quantize(all); });
      },
      "options"_a, "progress"_a.none());
  m.def(
      "measure",
      [](const bw::MeasureOptions& o, nb::object progress) {
        return watched(o, std::move(progress), [](const bw::MeasureOptions& all) { return bw::measure(all); });
      },
      "options"_a, "progress"_a.none());
  m.def(
      "evaluate",
      [](const bw::EvaluateOptions& o, nb::object progress) {
        return watched(o, std::move(progress), [](const bw::EvaluateOptions& all) { return bw::evaluate(all); });
      },
      "options"_a, "progress"_a.none());
  m.def(
      "inspect",
      [](const std::filesystem::path& model) {
        const nb::gil_scoped_release released;
        return bw::inspect(model);
      },
      "model"_a);
}
