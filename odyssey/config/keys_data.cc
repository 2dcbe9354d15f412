// SPDX-License-Identifier: Apache-2.0
// Keys of batches and data sets.
#include "odyssey/config/key_table.h"

namespace odyssey {

std::vector<Key> data_keys() {
  return {
      // Positions are 32-bit numbers.
      whole("max_target_length", "2048", {1, 2'000'000'000}, "S: tokens of one row"),
      real("per_device_batch_size", "12.0", {0, 1e9, true},
           "rows of one micro-batch / ranks; may be a fraction, such as 1/ranks for one row"),
      whole("gradient_accumulation_steps", "1", {1, 1'000'000}, "micro-batches of one step"),
      choice("dataset_type", "synthetic", {"synthetic", "text"}, "where tokens come from",
             "Data sets that are built: synthetic (random tokens) and text (see text_path)."),
      text("text_path", "", "Odyssey's own: file or folder of a text data set"),
      text("text_document_separator", "",
           "Odyssey's own: a line of exactly this text ends a document; empty: a file is a "
           "document"),
      flag("packing", "true", "put several documents into one row; they do not see each other"),
      whole("max_segments_per_seq", "-1", {1, 2'000'000'000, false, -1},
            "most documents of one row; -1: any number"),
      whole("data_shuffle_seed", "0", {0, 9e18}, "seed of the order of documents"),
      flag("enable_data_shuffling", "true", "shuffle documents"),
      whole("reuse_example_batch", "0", {0, 1'000'000'000}, "1: train on the first batch for ever"),
      whole("num_vocab_tiling", "1", {1, 1'000'000},
            "tiles in which the loss is computed, to save memory"),
      only({"-1"}, "All rows that are loaded are trained on.",
           real("expansion_factor_real_data", "-1", {},
                "MaxText loads more rows than it trains on")),
      only({"-1"}, "Evaluation inside a training run is not built.",
           whole("eval_interval", "-1", {}, "steps between evaluations")),
  };
}

}  // namespace odyssey
