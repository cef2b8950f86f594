# bin/plan, its man page and completions (written by the program itself), licence and documents.
# Everything the program reads is compiled into it, so the installed tree may be moved.
include(GNUInstallDirs)
if(TARGET plan)
  install(TARGETS plan RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(CODE "set(PROGRAM \"$<TARGET_FILE:plan>\")\nset(SCRATCH \"${PROJECT_BINARY_DIR}/install\")
set(MAN \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}\")
set(SHARE \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\")")
  install(SCRIPT ${PROJECT_SOURCE_DIR}/cmake/InstallScript.cmake)
endif()
foreach(program plan-run plan-gui) # plan looks for them beside itself
  if(TARGET ${program})  # configured; ./plan builds it when it is first asked for
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} OPTIONAL)
  endif()
endforeach()
install(FILES LICENSE README.md CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs)
