# bw_layer(NAME [LIBS ...]): static library bw_NAME of all src/NAME/**/*.cc, linked to the layer declared before it.
# Files are found by pattern, so that none can be forgotten.
set(BW_LAYERS "" CACHE INTERNAL "")
function(bw_layer name)
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS src/${name}/*.cc)
  if(sources)
    add_library(bw_${name} STATIC ${sources})
    set(scope PUBLIC)
    set_target_properties(bw_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  else()
    add_library(bw_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(bw_${name} ${scope} ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  set(below "")
  if(BW_LAYERS)
    list(GET BW_LAYERS -1 last)
    set(below bw_${last})
  endif()
  target_link_libraries(bw_${name} ${scope} ${ARG_LIBS} ${below})
  set(BW_LAYERS ${BW_LAYERS} ${name} CACHE INTERNAL "")
endfunction()

# What our own programs link: the public headers and all layers.
function(bw_library name)
  list(GET BW_LAYERS -1 last)
  add_library(${name} INTERFACE)
  target_include_directories(${name} INTERFACE ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${name} INTERFACE bw_${last})
endfunction()

# One test program for each folder of tests/ that has *_test.cc files (and fuzz_*.cc: see cmake/fuzz.cmake), linked to
# the library bw_NAME of the same name (or to everything, where there is none).
function(bw_tests)
  file(GLOB folders CONFIGURE_DEPENDS LIST_DIRECTORIES true RELATIVE ${PROJECT_SOURCE_DIR}/tests tests/*)
  foreach(folder ${folders})
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS tests/${folder}/*_test.cc tests/${folder}/fuzz_*.cc)
    if(sources)
      add_executable(test_${folder} ${sources})
      if(folder IN_LIST BW_LAYERS)
        target_link_libraries(test_${folder} PRIVATE bw_${folder})
      elseif(TARGET bw_${folder})
        target_link_libraries(test_${folder} PRIVATE bw_${folder})
      else()
        target_link_libraries(test_${folder} PRIVATE bw_all)
      endif()
      target_link_libraries(test_${folder} PRIVATE GTest::gtest_main)
      target_include_directories(test_${folder} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
      target_compile_definitions(test_${folder} PRIVATE BW_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                 BW_FIXTURES="${PROJECT_SOURCE_DIR}/tests/fixtures"
                                 BW_PROGRAM="$<$<TARGET_EXISTS:bitwright_cli>:$<TARGET_FILE:bitwright_cli>>")
      if(TARGET bitwright_cli AND NOT folder IN_LIST BW_LAYERS)
        add_dependencies(test_${folder} bitwright_cli)
      endif()
      add_test(NAME ${folder} COMMAND test_${folder})
    endif()
  endforeach()
endfunction()

# Reports in a browser; skipped where there is none.
function(bw_browser_test)
  find_program(BW_SYSTEM_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)  # the one that has Debian's packages
  if(NOT BW_SYSTEM_PYTHON OR NOT TARGET bitwright_cli)
    return()
  endif()
  add_test(NAME report_in_browser COMMAND ${BW_SYSTEM_PYTHON} ${PROJECT_SOURCE_DIR}/tests/report/browser_check.py
           $<TARGET_FILE:bitwright_cli> ${PROJECT_SOURCE_DIR}/tests/fixtures/models/llama)
  set_tests_properties(report_in_browser PROPERTIES SKIP_RETURN_CODE 77)
endfunction()

# bench/NAME.cc -> bench_NAME
function(bw_benches)
  file(GLOB sources CONFIGURE_DEPENDS bench/*.cc)
  foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    add_executable(bench_${name} ${source})
    target_link_libraries(bench_${name} PRIVATE bw_all benchmark::benchmark)
    target_include_directories(bench_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)  # the cases of the operations
  endforeach()
endfunction()
