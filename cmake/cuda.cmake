# The cuda device: src/backend/cuda/*.cu, a part of bw_backend where BITWRIGHT_CUDA is on, and nothing elsewhere.
option(BITWRIGHT_CUDA "Build the cuda device (needs nvcc, cuBLAS and cuSOLVER)" OFF)

if(BITWRIGHT_CUDA)
  # Ampere to Blackwell as machine code; the driver compiles the last from PTX for what comes later.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 86-real 89-real 90-real 100-real 100-virtual)
  endif()
  enable_language(CUDA)
  if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know it yet
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  endif()
  find_package(CUDAToolkit REQUIRED)
endif()

# Adds it to bw_backend.
function(bw_cuda)
  if(NOT BITWRIGHT_CUDA)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS src/backend/cuda/*.cu)
  target_sources(bw_backend PRIVATE ${sources})
  set_target_properties(bw_backend PROPERTIES CUDA_STANDARD 20 CUDA_EXTENSIONS OFF
                        CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
  # constexpr functions of base/ run on the device, too. Options that nvcc does not know go to the host's compiler.
  target_compile_options(bw_backend PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)
  target_compile_definitions(bw_backend PUBLIC BW_CUDA)
  target_link_libraries(bw_backend PUBLIC CUDA::cudart CUDA::cublas CUDA::cublasLt CUDA::cusolver)
endfunction()

# The same sources on the host, for tests (see tests/backend/fake_cuda): links them to the programs of these names.
function(bw_fake_cuda)
  add_subdirectory(tests/backend/fake_cuda)
  foreach(program ${ARGN})
    if(TARGET ${program})
      target_link_libraries(${program} PRIVATE bw_fake_cuda)
    endif()
  endforeach()
endfunction()
