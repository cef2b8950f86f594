// plan-gui: the window.
#include "gui/app/start.hpp"

int main(int argc, char** argv) { return echelon::gui::run(argc, argv); }
