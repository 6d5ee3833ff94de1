# Parquet through Arrow, an optional part: AUTO takes it where it is found, ON insists, OFF leaves it out. Arrow comes
# from its CMake packages (libparquet-dev of the Arrow project), or from the pyarrow wheel of PyPI: BITWRIGHT_PYARROW
# is its folder, site-packages/pyarrow.
set(BITWRIGHT_PARQUET AUTO CACHE STRING "Read parquet: AUTO, ON or OFF")
set_property(CACHE BITWRIGHT_PARQUET PROPERTY STRINGS AUTO ON OFF)
set(BITWRIGHT_PYARROW "" CACHE PATH "Folder of a pyarrow wheel whose Arrow is used (headers and libraries)")

# The library NAME of the wheel as the target bw_NAME.
function(bw_pyarrow_library name)
  file(GLOB found ${BITWRIGHT_PYARROW}/lib${name}.so.*)  # the number of its version is all that follows
  list(LENGTH found count)
  if(NOT count EQUAL 1 OR NOT EXISTS ${BITWRIGHT_PYARROW}/include/parquet/arrow/reader.h)
    message(FATAL_ERROR "BITWRIGHT_PYARROW: ${BITWRIGHT_PYARROW} is no folder of a pyarrow wheel (lib${name}.so.*, include/parquet)")
  endif()
  add_library(bw_${name} SHARED IMPORTED)
  set_target_properties(bw_${name} PROPERTIES IMPORTED_LOCATION ${found}
                        INTERFACE_INCLUDE_DIRECTORIES ${BITWRIGHT_PYARROW}/include)
endfunction()

# The files of TARGET in SOURCE that use Arrow.
function(bw_parquet target source)
  if(BITWRIGHT_PARQUET STREQUAL "OFF")
    return()
  endif()
  if(BITWRIGHT_PYARROW)
    bw_pyarrow_library(arrow)
    bw_pyarrow_library(parquet)
    set(libraries bw_parquet bw_arrow)
  else()
    find_package(Parquet CONFIG QUIET)
    if(TARGET Parquet::parquet_shared)
      set(libraries Parquet::parquet_shared Arrow::arrow_shared)
    elseif(BITWRIGHT_PARQUET STREQUAL "ON")
      message(FATAL_ERROR "BITWRIGHT_PARQUET is ON, but no CMake package Parquet is found: install libparquet-dev of the Arrow project, or set BITWRIGHT_PYARROW")
    else()
      return()
    endif()
  endif()
  target_link_libraries(${target} PRIVATE ${libraries})
  set_source_files_properties(${source} PROPERTIES COMPILE_DEFINITIONS BITWRIGHT_PARQUET)
  # Installed programs find the libraries where they lie. CMake's own way leaves out folders inside the project.
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON PARENT_SCOPE)
  if(BITWRIGHT_PYARROW)
    set(CMAKE_INSTALL_RPATH ${BITWRIGHT_PYARROW} PARENT_SCOPE)
  endif()
endfunction()
