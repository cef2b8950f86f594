# Writes OUTPUT, which includes FILES as they are between local labels of the assembler. The hash is
# for a compiler cache, which does not look into files that the assembler reads.
list(SORT FILES)
set(assembly "")
set(declarations "")
set(entries "")
list(LENGTH FILES count)
set(index 0)
foreach(file ${FILES})
  get_filename_component(name ${file} NAME_WLE)
  file(SIZE ${file} size)
  file(SHA256 ${file} hash)
  set(symbol echelon_${FUNCTION}_${index})
  string(APPEND assembly
    "    \".globl ${symbol}\\n.hidden ${symbol}\\n${symbol}: /* ${hash} */\\n\"\n"
    "    \".incbin \\\"${file}\\\"\\n.byte 0\\n\"\n")
  string(APPEND declarations "extern const char ${symbol}[];\n")
  string(APPEND entries "    EmbeddedFile{\"${name}\", {${symbol}, ${size}}},\n")
  math(EXPR index "${index}+1")
endforeach()
file(WRITE ${OUTPUT} "#include \"core/base/embedded.hpp\"

#include <array>

asm(\".pushsection .rodata\\n\"
${assembly}    \".popsection\\n\");
extern \"C\" {
${declarations}}

namespace echelon {
namespace {
constexpr std::array<EmbeddedFile, ${count}> kFiles{{
${entries}}};
}  // namespace

std::span<const EmbeddedFile> ${FUNCTION}() { return kFiles; }

}  // namespace echelon
")
