#include "cli/app.hpp"

int main(int argc, char** argv) { return echelon::cli::run(argc, argv); }
