# The program: cli/*.cc as a library that tests link too, and main.cc. What `bitwright man` and `bitwright completion`
# print is made with it, and installed beside it.
include(GNUInstallDirs)

function(bw_command)
  file(GLOB sources CONFIGURE_DEPENDS cli/*.cc)
  if(NOT sources)
    return()
  endif()
  list(FILTER sources EXCLUDE REGEX "/main\\.cc$")
  add_library(bw_cli STATIC ${sources})
  target_include_directories(bw_cli PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(bw_cli PUBLIC bw_all CLI11::CLI11 PkgConfig::UTF8PROC)
  add_executable(bitwright_cli cli/main.cc)
  set_target_properties(bitwright_cli PROPERTIES OUTPUT_NAME bitwright)
  target_link_libraries(bitwright_cli PRIVATE bw_cli)

  set(pages ${PROJECT_BINARY_DIR}/pages)
  file(MAKE_DIRECTORY ${pages}/man1)
  add_custom_command(
    OUTPUT ${pages}/bitwright.bash ${pages}/_bitwright ${pages}/bitwright.fish ${pages}/man1/bitwright.1
    COMMAND bitwright_cli man -o ${pages}/man1
    COMMAND bitwright_cli completion bash > ${pages}/bitwright.bash
    COMMAND bitwright_cli completion zsh > ${pages}/_bitwright
    COMMAND bitwright_cli completion fish > ${pages}/bitwright.fish
    DEPENDS bitwright_cli
    COMMENT "Writing manual pages and completion"
    VERBATIM)
  add_custom_target(bitwright_pages ALL DEPENDS ${pages}/bitwright.bash)

  install(TARGETS bitwright_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
  install(DIRECTORY ${pages}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR}
          COMPONENT runtime)
  install(FILES ${pages}/bitwright.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
          RENAME bitwright COMPONENT runtime)
  install(FILES ${pages}/_bitwright DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions
          COMPONENT runtime)
  install(FILES ${pages}/bitwright.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d
          COMPONENT runtime)
endfunction()
