// DocumentLengths: how long the documents are that fill the training sequences.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"

namespace echelon {

/// Documents packed whole into sequences; a longer document is cut into pieces as long as the
/// sequence, and its rest is packed like a document. Every token belongs to a document, and
/// attends to no other. Source: Megatron-LM d98e8a64, megatron/training/datasets/sft_dataset.py and
/// varlen_dataset.py; best-fit packing, arXiv 2404.10830. A stream of documents that is cut at
/// every sequence's end (Megatron-LM's inter_document_masking) cuts some of them once more, so its
/// attention does less than this one.
struct DocumentLengths {
  /// Documents of about one length.
  struct Bin {
    double tokens = 0;     ///< mean length of them
    double documents = 0;  ///< any unit
    bool operator==(const Bin&) const = default;
  };
  std::string text;  ///< as --document-lengths takes it
  std::vector<Bin> bins;
  bool operator==(const DocumentLengths&) const = default;
};

/// "2048" (one length), "lognormal:MEAN:SIGMA" (mean length, and standard deviation of its natural
/// logarithm), or a histogram "512x1000,4096x30" (length x documents, one if left out). Errors name
/// what is none of them.
[[nodiscard]] Result<DocumentLengths> parse_document_lengths(std::string_view text,
                                                             std::string_view where);
/// Whether `text` can only be meant as one of these, and not as the name of a file.
[[nodiscard]] bool names_document_lengths(std::string_view text);

/// Lines "LENGTH" or "LENGTH DOCUMENTS", with a blank, a tab or a comma between them; empty lines
/// and lines that begin with # are skipped. More than 512 lengths are put into bins of 1/16 octave,
/// so that the result's text can be a flag's value.
[[nodiscard]] Result<DocumentLengths> read_document_table(std::string_view table,
                                                          std::string_view where);

/// Mean number of keys that a token attends to in its document, causally and at most `window`
/// tokens back, over pieces of x tokens:
///
///   Σ k(x) / Σ x,   k(x) = x²/2 for x ≤ w,  w·x − w²/2 beyond;  w = min(window, sequence)
///
/// Of documents no shorter than the sequence that is S/2 or, with a window, w·(1 − w/2S).
/// Assumes sequences without padding, and documents that context parallelism divides evenly: each
/// rank has two slices of every document (Megatron-LM d98e8a64, core/utils.py,
/// _get_batch_on_this_cp_rank_per_document_balancing), whose padding to 2·cp tokens is left out. No
/// microbatch waits for one with longer documents.
/// Checked by: tests/core/plan/document_lengths_test.cpp, against sequences packed one by one.
[[nodiscard]] double keys_in_document(const DocumentLengths& documents, double sequence,
                                      double window);

/// Σ x² / Σ x over the pieces: the length of the document that a token lies in, on average.
[[nodiscard]] double span_of_document(const DocumentLengths& documents, double sequence);

}  // namespace echelon
