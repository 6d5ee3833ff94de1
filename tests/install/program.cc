// Uses the installed library as a stranger would: what a model is, a job, and an error.
#include <cstdio>

#include <bitwright/bitwright.h>

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  bw::QuantizeOptions options;
  options.model = argv[1];
  options.output = argv[2];
  options.calibration = {{argv[3]}, 4, 32, 1};
  options.bpw = {5};
  const bw::QuantizeResult result = bw::quantize(options).at(0);
  const bw::InspectResult seen = bw::inspect(result.output);
  std::printf("%s %s %.2f %.2f\n", std::string(bw::version()).c_str(), seen.architecture.c_str(), result.bpw_linears,
              seen.bpw_linears);
  try {
    bw::inspect("no such model");
  } catch (const bw::Error& e) {
    return e.code() == bw::ErrorCode::kIo || e.code() == bw::ErrorCode::kModel ? 0 : 1;
  }
  return 1;
}
