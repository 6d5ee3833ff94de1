// What crossed between host and device.
#pragma once

#include <cstdint>

namespace bw::backend {

// Since the start of the backend, in the order in which the host enqueued.
struct Counters {
  uint64_t launches = 0;  // operations enqueued
  uint64_t uploads = 0, upload_bytes = 0, downloads = 0, download_bytes = 0;
  uint64_t waits = 0;       // times that the host waited for an event that it did not know to have passed
  double wait_seconds = 0;  // and how long
  uint64_t device_bytes = 0, most_device_bytes = 0;  // allocated now, and at most so far
  double gemm_flops = 0;                             // of all matrix products, attention's included, 2 per multiply-add
  double linear_flops = 0;                           // the part of linears and Hessians
  double linear_seconds = 0;                         // and the time in them, on a device that runs at once (else 0)
};

}  // namespace bw::backend
