# Runs at install time: PROGRAM writes its own man page and completions.
function(write_and_install folder file)
  execute_process(COMMAND ${PROGRAM} ${ARGN} OUTPUT_FILE ${SCRATCH}/${file} ERROR_VARIABLE said
                  RESULT_VARIABLE failed)
  if(failed)
    string(REPLACE ";" " " verb "${ARGN}")
    message(FATAL_ERROR "plan ${verb} failed (${failed}): ${said}")
  endif()
  file(INSTALL ${SCRATCH}/${file} DESTINATION ${folder})
endfunction()

file(MAKE_DIRECTORY ${SCRATCH})
write_and_install(${MAN}/man1 plan.1 man)
write_and_install(${SHARE}/bash-completion/completions plan completion bash)
write_and_install(${SHARE}/zsh/site-functions _plan completion zsh)
write_and_install(${SHARE}/fish/vendor_completions.d plan.fish completion fish)
