# Target DNNL::dnnl. Found by name: Debian's package file for CMake asks for OpenCL's headers,
# which the CPU engine does not need.
find_path(DNNL_INCLUDE_DIR dnnl.hpp PATH_SUFFIXES include REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
add_library(DNNL::dnnl UNKNOWN IMPORTED)
set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY}
                      INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
