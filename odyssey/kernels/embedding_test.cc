// SPDX-License-Identifier: Apache-2.0
#include "odyssey/kernels/embedding.h"

#include <gmock/gmock.h>

#include "odyssey/base/error.h"
#include "odyssey/kernels/testing.h"

namespace odyssey {
namespace {

using testing::Grid;

template <class T>
class Embedding : public ::testing::Test {};
TYPED_TEST_SUITE(Embedding, testing::StorageTypes);

TYPED_TEST(Embedding, TakesTheRowsOfTheTokensTimesTheScale) {
  using T = TypeParam;
  for (int64_t width : {1, 7, 130}) {
    Grid<T> table(9, width, 2, 1), out(5, width, 3, 2);
    const std::vector<int32_t> tokens{8, 0, 3, 3, 8};
    embedding(table.view(), tokens, 1, out.view());
    for (int64_t t = 0; t < 5; ++t) {
      for (int64_t i = 0; i < width; ++i) EXPECT_EQ(out.at(t, i), table.at(tokens[t], i));
    }
    embedding(table.view(), tokens, 11.3f, out.view());
    for (int64_t t = 0; t < 5; ++t) {
      for (int64_t i = 0; i < width; ++i) {
        testing::expect_near(out.view()(t, i), 11.3f * table.at(tokens[t], i));
      }
    }
    EXPECT_TRUE(out.gap_is_untouched());
  }
}

TYPED_TEST(Embedding, BackwardAddsEveryTokenToItsRow) {
  using T = TypeParam;
  for (int64_t width : {1, 7, 130}) {
    Grid<T> dout(5, width, 3, 1);
    Grid<float> d_table(9, width, 2, 2), before(9, width, 2, 2);
    const std::vector<int32_t> tokens{8, 0, 3, 3, 8};
    embedding_backward<T>(dout.view(), tokens, 0.7f, d_table.view());
    for (int64_t v = 0; v < 9; ++v) {
      for (int64_t i = 0; i < width; ++i) {
        double expected = before.at(v, i);
        for (int64_t t = 0; t < 5; ++t) expected += tokens[t] == v ? 0.7 * dout.at(t, i) : 0;
        EXPECT_NEAR(d_table.at(v, i), expected, 1e-6);
      }
    }
    EXPECT_TRUE(d_table.gap_is_untouched());
  }
}

TYPED_TEST(Embedding, BackwardGivesTheSameBitsAtAnyThreadCount) {
  using T = TypeParam;
  Grid<T> dout(200, 500, 0, 1);
  std::vector<int32_t> tokens(200);
  for (int32_t t = 0; t < 200; ++t) tokens[t] = t * t % 11;
  testing::expect_same_at_any_thread_count([&] {
    std::vector<float> d_table(11 * 500);
    embedding_backward<T>(dout.view(), tokens, 0.3f, View<float, 2>(d_table.data(), {11, 500}));
    return d_table;
  });
}

TYPED_TEST(Embedding, NoTokensAreLegal) {
  using T = TypeParam;
  Grid<T> table(9, 4, 0, 1), out(0, 4, 0, 2);
  Grid<float> d_table(9, 4, 0, 3);
  embedding(table.view(), {}, 1, out.view());
  embedding_backward<T>(out.view(), {}, 1, d_table.view());
}

// Vocabulary 100: token 100 at index 37 is refused by index and vocabulary; 99 there is fine.
TYPED_TEST(Embedding, NamesATokenOutsideTheVocabulary) {
  using T = TypeParam;
  Grid<T> table(100, 4, 0, 1), out(40, 4, 0, 2);
  std::vector<int32_t> tokens(40, 5);
  tokens[37] = 99;
  EXPECT_NO_THROW(embedding(table.view(), tokens, 1, out.view()));
  for (int32_t wrong : {100, -1}) {
    tokens[37] = wrong;
    try {
      embedding(table.view(), tokens, 1, out.view());
      FAIL() << "accepted " << wrong;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("index 37"));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("vocabulary 100"));
    }
    Grid<float> d_table(100, 4, 0, 3);
    EXPECT_THROW(embedding_backward<T>(out.view(), tokens, 1, d_table.view()), UserError);
  }
}

}  // namespace
}  // namespace odyssey
