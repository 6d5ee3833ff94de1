# The installed library: one shared object of all layers that exports the public functions alone (package/exports.map),
# headers, a CMake package and a pkg-config file. What it uses itself (oneDNN and the rest) is found by the dynamic
# linker; programs that use it need none of that to be built.
include(CMakePackageConfigHelpers)

function(bw_shared_library)
  # Whole: the layers that define public functions; of the others comes what these need.
  add_library(bitwright SHARED $<TARGET_OBJECTS:bw_pipeline> $<TARGET_OBJECTS:bw_base>)
  set_target_properties(bitwright PROPERTIES VERSION ${PROJECT_VERSION}
                        SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} LINKER_LANGUAGE CXX)
  target_compile_features(bitwright INTERFACE cxx_std_20)
  target_include_directories(bitwright INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set(map ${PROJECT_SOURCE_DIR}/cmake/package/exports.map)
  target_link_libraries(bitwright PRIVATE bw_pipeline)
  target_link_options(bitwright PRIVATE LINKER:--version-script=${map} LINKER:--no-undefined)
  set_property(TARGET bitwright PROPERTY LINK_DEPENDS ${map})

  install(TARGETS bitwright EXPORT bitwright
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)
  install(DIRECTORY include/bitwright DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/bitwright)
  install(EXPORT bitwright NAMESPACE bitwright:: FILE bitwrightTargets.cmake DESTINATION ${package}
          COMPONENT development)
  configure_package_config_file(cmake/package/bitwrightConfig.cmake.in ${PROJECT_BINARY_DIR}/bitwrightConfig.cmake
                                INSTALL_DESTINATION ${package})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/bitwrightConfigVersion.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/bitwrightConfig.cmake ${PROJECT_BINARY_DIR}/bitwrightConfigVersion.cmake
          DESTINATION ${package} COMPONENT development)
  # Relative to where the file lies, so that an installed tree can be moved.
  file(RELATIVE_PATH BW_PREFIX_FROM_PC /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  configure_file(cmake/package/bitwright.pc.in ${PROJECT_BINARY_DIR}/bitwright.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/bitwright.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endfunction()

# A program is built against an installed tree, in both ways.
function(bw_install_test)
  if(NOT TARGET bitwright_cli OR BITWRIGHT_SANITIZE)
    return()
  endif()
  add_test(NAME install COMMAND ${PROJECT_SOURCE_DIR}/tests/install/install_check.sh ${PROJECT_BINARY_DIR}
           ${CMAKE_CXX_COMPILER})
endfunction()
