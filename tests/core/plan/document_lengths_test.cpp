#include "core/plan/document_lengths.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/numbers.hpp"

using namespace echelon;

namespace {

DocumentLengths lengths(const char* text) { return parse_document_lengths(text, "test").value(); }

/// Sequences filled one document after another, each into the first one that has room for it.
struct Packed {
  int sequence = 0;
  std::vector<std::vector<int>> sequences{};  ///< lengths of the documents of each
  std::vector<int> room{};

  void pack(int document) {
    for (; document > sequence; document -= sequence) place(sequence);
    if (document > 0) place(document);
  }
  void place(int piece) {
    std::size_t at = 0;
    while (at < room.size() && room[at] < piece) ++at;
    if (at == room.size()) {
      room.push_back(sequence);
      sequences.emplace_back();
    }
    room[at] -= piece;
    sequences[at].push_back(piece);
  }
  /// Pairs of a query and a key before it in its document and window, token by token, per token.
  [[nodiscard]] double keys(int window) const {
    double pairs = 0;
    double tokens = 0;
    for (const std::vector<int>& documents : sequences) {
      for (const int document : documents) {
        for (int query = 0; query < document; ++query) pairs += std::min(query, window);
        tokens += document;
      }
    }
    return pairs / tokens;
  }
};

/// Normal numbers, by Box and Muller.
double normal(Numbers& draw) {
  const double radius = std::sqrt(-2 * std::log(1 - draw.unit()));
  return radius * std::cos(6.283185307179586 * draw.unit());
}

}  // namespace

TEST_CASE("attention within documents does the pairs of sequences packed one by one") {
  for (const int sequence : {2048, 8192}) {
    Numbers draw(7);
    Packed packed{.sequence = sequence};
    const double sigma = 1.1;
    for (int i = 0; i < 6000; ++i) {
      const double center = std::log(1500.0) - sigma * sigma / 2;
      packed.pack(std::max(1, static_cast<int>(std::exp(center + sigma * normal(draw)))));
    }
    const DocumentLengths documents = lengths("lognormal:1500:1.1");
    for (const int window : {512, sequence}) {
      CAPTURE(sequence, window);
      CHECK(keys_in_document(documents, sequence, window) ==
            Approx(packed.keys(window)).epsilon(0.02));
    }
  }
}

TEST_CASE("a histogram of documents gives the pairs of exactly these documents") {
  Packed packed{.sequence = 4096};
  for (int i = 0; i < 30; ++i) packed.pack(700);
  for (int i = 0; i < 5; ++i) packed.pack(9000);  // two sequences and a rest each
  const DocumentLengths documents = lengths("700x30,9000x5");
  // Half a key per token: a token's own.
  CHECK(keys_in_document(documents, 4096, 4096) == Approx(packed.keys(4096) + 0.5));
  CHECK(keys_in_document(documents, 4096, 1000) == Approx(packed.keys(1000) + 0.5).epsilon(1e-3));
  CHECK(span_of_document(documents, 4096) == Approx(2 * packed.keys(4096) + 1));
}

TEST_CASE("documents as long as the sequence, or multiples of it, leave all of attention") {
  for (const char* text : {"4096", "8192", "40960"}) {
    CHECK(keys_in_document(lengths(text), 4096, 4096) == Approx(2048));
    CHECK(keys_in_document(lengths(text), 4096, 1024) == Approx(1024 * (1 - 1024 / 8192.0)));
  }
}

TEST_CASE("a lognormal distribution has its mean, and of no width one length") {
  for (const char* text : {"lognormal:2000:0.5", "lognormal:2000:2"}) {
    double tokens = 0;
    double documents = 0;
    for (const DocumentLengths::Bin& bin : lengths(text).bins) {
      tokens += bin.tokens * bin.documents;
      documents += bin.documents;
    }
    CHECK(tokens / documents == Approx(2000).epsilon(1e-6));
  }
  CHECK(keys_in_document(lengths("lognormal:512:0"), 4096, 4096) ==
        keys_in_document(lengths("512"), 4096, 4096));
}

TEST_CASE("a file of lengths is the histogram that its lines count") {
  const auto table = [](const char* text) { return read_document_table(text, "lengths.txt"); };
  CHECK(table("512\n512\n1024\n")->text == "512x2,1024x1");
  CHECK(table("# tokens, documents\n512,10\r\n\n 1k 3\n")->text == "512x10,1000x3");
  CHECK(table("512\n")->text == "512");
  CHECK(table("512\nlong\n").error().where == "lengths.txt line 2");
  CHECK(table("512 3 4\n").error().where == "lengths.txt line 1");
  CHECK(table("# nothing\n").error().message().find("no lengths") != std::string::npos);
}

TEST_CASE("a file of very many lengths is put into bins that price alike") {
  std::string lines;
  double tokens = 0;
  double squares = 0;
  for (int length = 100; length < 8000; length += 7) {
    lines += std::to_string(length) + "\n";
    tokens += length;
    squares += double(length) * length;
  }
  const DocumentLengths documents = read_document_table(lines, "lengths.txt").value();
  CHECK(documents.bins.size() < 128);
  CHECK(span_of_document(documents, 8192) == Approx(squares / tokens).epsilon(1e-3));
  CHECK(lengths(documents.text.c_str()) == documents);
}

TEST_CASE("a text that names documents is no file, and names are") {
  for (const char* text : {"2048", "2k", "lognormal:1000:1", "512x3,1024x1", "1x", "-3"}) {
    CHECK(names_document_lengths(text));
  }
  for (const char* text : {"", "lengths.txt", "./512", "documents"}) {
    CHECK(!names_document_lengths(text));
  }
}
