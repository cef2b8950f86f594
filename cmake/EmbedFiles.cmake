# echelon_embed(TARGET FUNCTION FILES...): puts the files into TARGET as
#   std::span<const echelon::EmbeddedFile> echelon::FUNCTION();
# sorted by name (the file name without its last extension), so that the programs need no data
# directory at run time. The assembler reads the files (.incbin); no compiler parses them.
function(echelon_embed target function)
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/${function}.cpp)
  add_custom_command(
    OUTPUT ${generated}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${generated} -DFUNCTION=${function} "-DFILES=${ARGN}" -P
            ${PROJECT_SOURCE_DIR}/cmake/EmbedFilesScript.cmake
    DEPENDS ${ARGN} ${PROJECT_SOURCE_DIR}/cmake/EmbedFilesScript.cmake
    COMMENT "Embedding ${function}"
    VERBATIM)
  target_sources(${target} PRIVATE ${generated})
  set_source_files_properties(${generated} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
