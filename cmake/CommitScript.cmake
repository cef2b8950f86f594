# Writes OUTPUT (defines echelon::commit()) and DEPFILE (the files of git that say when it is stale;
# a depfile, because ninja forgives when a file named there has gone).
function(ask_git result)
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse ${ARGN} OUTPUT_VARIABLE answer ERROR_QUIET
                  RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed)
    set(answer no)
  endif()
  set(${result} "${answer}" PARENT_SCOPE)
endfunction()

set(commit unknown)
set(stale_with "")
if(GIT)
  ask_git(prefix --show-prefix)
endif()
if(GIT AND prefix STREQUAL "") # else: no repository, or one that this tree merely lies inside
  ask_git(answer --short=10 HEAD)
  if(NOT answer STREQUAL no)
    set(commit ${answer})
  endif()
  foreach(file HEAD logs/HEAD)
    ask_git(path --git-path ${file})
    get_filename_component(path ${path} ABSOLUTE BASE_DIR ${SOURCE})
    if(EXISTS ${path})
      string(REPLACE " " "\\ " path ${path})
      string(APPEND stale_with " ${path}")
    endif()
  endforeach()
endif()
file(WRITE ${OUTPUT} "#include \"core/version.hpp\"\n\n"
  "std::string_view echelon::commit() { return \"${commit}\"; }\n")
file(WRITE ${DEPFILE} "${OUTPUT}:${stale_with}\n")
