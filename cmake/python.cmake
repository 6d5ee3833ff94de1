# The Python module, for pyproject.toml: python/module.cc with all layers in it, its stub, and the program.
option(BITWRIGHT_PYTHON "Build the Python module (needs nanobind; see pyproject.toml)" OFF)

function(bw_python)
  if(NOT BITWRIGHT_PYTHON)
    return()
  endif()
  find_package(Python 3.10 COMPONENTS Interpreter Development.Module REQUIRED)
  execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir OUTPUT_VARIABLE nanobind_DIR
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  find_package(nanobind CONFIG REQUIRED)
  nanobind_add_module(_core STABLE_ABI NB_STATIC python/module.cc)
  target_link_libraries(_core PRIVATE bw_all)
  nanobind_add_stub(_core_stub MODULE _core OUTPUT ${PROJECT_BINARY_DIR}/_core.pyi
                    PYTHON_PATH $<TARGET_FILE_DIR:_core> DEPENDS _core)
  install(TARGETS _core DESTINATION bitwright COMPONENT python)
  install(FILES ${PROJECT_BINARY_DIR}/_core.pyi DESTINATION bitwright COMPONENT python)
  if(SKBUILD)
    install(TARGETS bitwright_cli DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT python)
  endif()
endfunction()

# Every command that documents and --help show is run.
function(bw_docs_test)
  find_program(BW_SYSTEM_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
  if(BW_SYSTEM_PYTHON AND TARGET bitwright_cli)
    add_test(NAME documented_commands COMMAND ${BW_SYSTEM_PYTHON} ${PROJECT_SOURCE_DIR}/tests/docs/commands_check.py
             $<TARGET_FILE:bitwright_cli> ${PROJECT_SOURCE_DIR}/tests/fixtures/models/llama)
  endif()
endfunction()

# `pip install .` into an environment of its own, and what is imported from there.
function(bw_python_test)
  find_program(BW_SYSTEM_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
  if(NOT BW_SYSTEM_PYTHON OR NOT TARGET bitwright_cli OR BITWRIGHT_SANITIZE)
    return()
  endif()
  add_test(NAME python COMMAND ${PROJECT_SOURCE_DIR}/tests/python/python_check.sh ${BW_SYSTEM_PYTHON}
           ${PROJECT_BINARY_DIR} $<TARGET_FILE:bitwright_cli> ${CMAKE_CXX_COMPILER})
  set_tests_properties(python PROPERTIES SKIP_RETURN_CODE 77)
endfunction()
