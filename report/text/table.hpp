// Aligned tables that fit the terminal: the least important columns are left out first.
#pragma once

#include <string>
#include <vector>

#include "report/terminal_style.hpp"

namespace echelon {

struct Cell {
  std::string text;
  Paint paint = Paint::plain;
  Cell(std::string value, Paint how = Paint::plain) : text(std::move(value)), paint(how) {}
  Cell(const char* value) : text(value) {}
};

class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::right;
    int dispensable = 0;  ///< left out where the width is short, highest first; 0 never
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// One cell per column.
  void add(std::vector<Cell> row);
  /// Leaves out columns in which every row shows the same `text`.
  void drop_constant(std::size_t column, std::string_view text);
  [[nodiscard]] bool empty() const { return rows_.empty(); }
  /// Lines indented by two blanks; a last column that is left-aligned is folded where it is too
  /// long.
  [[nodiscard]] std::string text(const TextStyle& style) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
  std::vector<std::size_t> dropped_;
};

}  // namespace echelon
