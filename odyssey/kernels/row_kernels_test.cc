// SPDX-License-Identifier: Apache-2.0
// Every instruction set against the plain loops, row by row: all short lengths, rows at odd
// addresses, NaN on both sides of every row, and the same bits for an element wherever it stands.
#include "odyssey/kernels/row_kernels.h"

#include <algorithm>
#include <limits>

#include "odyssey/kernels/isa.h"
#include "odyssey/kernels/testing.h"

namespace odyssey {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<int64_t> lengths() {
  std::vector<int64_t> result;
  for (int64_t n = 0; n <= 70; ++n) result.push_back(n);
  for (int64_t n : {127, 128, 1000, 1024, 1025, 3333}) result.push_back(n);
  return result;
}

// A row of random numbers between NaNs, at an address that no vector is aligned to.
template <class T>
class Row {
 public:
  Row(int64_t size, uint64_t seed, double deviation = 1)
      : size_(size), values_(static_cast<size_t>(size + 2 * kGuard), T(kNan)) {
    const std::vector<T> random = testing::random_values<T>(size, seed, deviation);
    std::copy(random.begin(), random.end(), values_.begin() + kGuard);
  }
  T* data() { return values_.data() + kGuard; }
  double operator[](int64_t i) const { return to_float(values_[static_cast<size_t>(i + kGuard)]); }
  int64_t size() const { return size_; }
  bool guards_are_untouched() const {
    for (int64_t i = 0; i < kGuard; ++i) {
      if (!std::isnan((*this)[i - kGuard]) || !std::isnan((*this)[size_ + i])) return false;
    }
    return true;
  }

 private:
  static constexpr int64_t kGuard = 33;  // more than a vector, and odd
  int64_t size_;
  std::vector<T> values_;
};

// Equal but for `units` roundings of numbers near `scale`, and one rounding to T.
template <class T>
void expect_near_rows(const Row<T>& actual, const Row<T>& expected, double scale = 1,
                      double units = 4) {
  EXPECT_TRUE(actual.guards_are_untouched());
  for (int64_t i = 0; i < actual.size(); ++i) {
    const double fp32 = units * 6e-8 * (scale + std::abs(expected[i]));
    const double step = std::is_same_v<T, bf16> ? std::abs(expected[i]) / 128 : 0;
    ASSERT_NEAR(actual[i], expected[i], fp32 + step) << "element " << i << " of " << actual.size();
  }
}

const RowKernels& kernels_of(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) return kRowKernelsAvx2;
  if (isa == Isa::kAvx512) return kRowKernelsAvx512;
  if (isa == Isa::kAmx) return kRowKernelsAvx512Bf16;
#endif
  return kRowKernelsPortable;
}

class RowKernelsOf : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (GetParam() > detected_isa()) GTEST_SKIP() << "not on this machine";
  }
  const RowKernels& fast() const { return kernels_of(GetParam()); }
  const RowKernels& plain() const { return kRowKernelsReference; }

  template <class T>
  void norms() {
    const StoredRows<T>&f = stored_rows<T>(fast()), &p = stored_rows<T>(plain());
    for (int64_t n : lengths()) {
      Row<T> x(n, 1), w(n, 2), dy(n, 3), y(n, 4), expected_y(n, 4);
      const float r = f.norm(x.data(), w.data(), 1, 1e-3f, n, y.data());
      const float expected_r = p.norm(x.data(), w.data(), 1, 1e-3f, n, expected_y.data());
      if (n > 0) {
        EXPECT_NEAR(r, expected_r, 1e-6 * expected_r);
      }
      expect_near_rows(y, expected_y, 1, 12);
      for (bool accumulate : {false, true}) {
        Row<T> dx(n, 5), expected_dx(n, 5);
        Row<float> dw(n, 6), expected_dw(n, 6);
        f.norm_backward(dy.data(), x.data(), w.data(), 1, expected_r, n, accumulate, dx.data(),
                        dw.data());
        p.norm_backward(dy.data(), x.data(), w.data(), 1, expected_r, n, accumulate,
                        expected_dx.data(), expected_dw.data());
        expect_near_rows(dx, expected_dx, 4, 40);
        expect_near_rows(dw, expected_dw, 4);
      }
    }
  }

  template <class T>
  void turns() {
    for (int64_t n : lengths()) {
      Row<T> low(n, 1), high(n, 2), expected_low(n, 1), expected_high(n, 2);
      Row<float> cosines(n, 3), sines(n, 4);
      stored_rows<T>(fast()).turn(low.data(), high.data(), cosines.data(), sines.data(), n);
      stored_rows<T>(plain()).turn(expected_low.data(), expected_high.data(), cosines.data(),
                                   sines.data(), n);
      expect_near_rows(low, expected_low, 4);
      expect_near_rows(high, expected_high, 4);
    }
  }

  template <class T>
  void activations() {
    const StoredRows<T>&f = stored_rows<T>(fast()), &p = stored_rows<T>(plain());
    for (int64_t n : lengths()) {
      Row<T> gate(n, 1, 3), up(n, 2), dout(n, 3), out(n, 4), expected(n, 4);
      f.silu(gate.data(), up.data(), n, out.data());
      p.silu(gate.data(), up.data(), n, expected.data());
      expect_near_rows(out, expected, 1, 8);
      f.gelu(gate.data(), up.data(), n, out.data());
      p.gelu(gate.data(), up.data(), n, expected.data());
      expect_near_rows(out, expected, 1, 20);
      for (const auto member : {&StoredRows<T>::silu_backward, &StoredRows<T>::gelu_backward}) {
        // In place, as the model calls it.
        Row<T> d_gate(n, 1, 3), d_up(n, 2), expected_gate(n, 5), expected_up(n, 6);
        (f.*member)(dout.data(), d_gate.data(), d_up.data(), n, d_gate.data(), d_up.data());
        (p.*member)(dout.data(), gate.data(), up.data(), n, expected_gate.data(),
                    expected_up.data());
        expect_near_rows(d_gate, expected_gate, 4, 40);
        expect_near_rows(d_up, expected_up, 4, 20);
      }
    }
  }

  template <class T>
  void plain_loops() {
    const StoredRows<T>&f = stored_rows<T>(fast()), &p = stored_rows<T>(plain());
    for (int64_t n : lengths()) {
      Row<T> x(n, 1), y(n, 2), expected(n, 2), scaled(n, 3), expected_scaled(n, 3);
      Row<float> total(n, 4), expected_total(n, 4), logits(n, 5, 3);
      f.add(x.data(), n, y.data());
      p.add(x.data(), n, expected.data());
      expect_near_rows(y, expected, 0, 0);
      f.scale(0.3f, x.data(), n, scaled.data());
      p.scale(0.3f, x.data(), n, expected_scaled.data());
      expect_near_rows(scaled, expected_scaled, 0, 0);
      f.add_scaled(0.3f, x.data(), n, total.data());
      p.add_scaled(0.3f, x.data(), n, expected_total.data());
      expect_near_rows(total, expected_total);
      const double squares = p.squares(x.data(), n);
      EXPECT_NEAR(f.squares(x.data(), n), squares, 1e-13 * squares);
      const double bound = std::sqrt(squares * p.squares(y.data(), n));
      EXPECT_NEAR(f.dot(x.data(), y.data(), n), p.dot(x.data(), y.data(), n), 1e-6 * bound);
      f.softmax(logits.data(), 4, 0.7f, n, scaled.data());
      p.softmax(logits.data(), 4, 0.7f, n, expected_scaled.data());
      expect_near_rows(scaled, expected_scaled, 0, 6);
    }
  }
};

TEST_P(RowKernelsOf, NormLikeThePlainLoops) {
  norms<float>();
  norms<bf16>();
}
TEST_P(RowKernelsOf, TurnLikeThePlainLoops) {
  turns<float>();
  turns<bf16>();
}
TEST_P(RowKernelsOf, ActivateLikeThePlainLoops) {
  activations<float>();
  activations<bf16>();
}
TEST_P(RowKernelsOf, AddScaleAndExponentiateLikeThePlainLoops) {
  plain_loops<float>();
  plain_loops<bf16>();
}

TEST_P(RowKernelsOf, ConvertWithTheBitsOfThePlainLoops) {
  for (int64_t n : lengths()) {
    Row<float> x(n, 1), wide(n, 2);
    Row<bf16> narrow(n, 3);
    for (int64_t i = 3; i < n; i += 50) x.data()[i] = 1.5e-39f;  // below the normal numbers
    fast().narrow(x.data(), n, narrow.data());
    fast().widen(narrow.data(), n, wide.data());
    EXPECT_TRUE(narrow.guards_are_untouched() && wide.guards_are_untouched());
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(narrow.data()[i].bits, bf16(x.data()[i]).bits);
      ASSERT_EQ(wide[i], narrow[i]);
    }
  }
}

// Through softmax of one number; the range and the bounds of VectorExp.
TEST_P(RowKernelsOf, ExpIsGoodToTwoTenMillionths) {
  const auto exponential = [&](float x) {
    float result;
    fast().fp32.softmax(&x, 0, 1, 1, &result);
    return result;
  };
  for (double x = -87.2; x < 88.3; x += 0.00917) {
    const float rounded = static_cast<float>(x);
    ASSERT_NEAR(exponential(rounded) / std::exp(static_cast<double>(rounded)), 1, 2e-7) << x;
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exponential(0), 1);
  EXPECT_EQ(exponential(-kInfinity), 0);
  EXPECT_EQ(exponential(-1e30f), 0);
  EXPECT_EQ(exponential(-88), 0);
  EXPECT_EQ(exponential(kInfinity), kInfinity);
  EXPECT_EQ(exponential(1e30f), kInfinity);
  EXPECT_TRUE(std::isnan(exponential(kNan)));
}

TEST_P(RowKernelsOf, SumExponentialsLikeThePlainLoop) {
  for (int64_t n : lengths()) {
    if (n == 0) continue;
    Row<float> rising(n, 1, 3), masked(n, 2, 3);
    std::sort(rising.data(), rising.data() + n);  // a new maximum in every block
    // The first block and every third number hidden.
    for (int64_t i = 0; i + 1 < n; ++i) {
      if (i < 1024 || i % 3 == 0) masked.data()[i] = -std::numeric_limits<float>::infinity();
    }
    for (Row<float>* logits : {&rising, &masked}) {
      const ExponentialSum sum = fast().exponential_sum(logits->data(), n);
      const ExponentialSum expected = plain().exponential_sum(logits->data(), n);
      ASSERT_EQ(sum.most, expected.most);
      ASSERT_NEAR(sum.sum / expected.sum, 1, 1e-6) << n;
    }
    for (int64_t i : {int64_t{0}, n / 2, n - 1}) {
      Row<float> broken(n, 1);
      broken.data()[i] = kNan;
      ASSERT_TRUE(std::isnan(fast().exponential_sum(broken.data(), n).sum)) << i << " of " << n;
    }
  }
}

TEST_P(RowKernelsOf, AnglesAreThoseOfTheFp32Product) {
  for (float position : {0.0f, 1.0f, -1.0f, 17.0f, 8191.0f, -131071.0f, 1048576.0f}) {
    for (int64_t n : {0, 1, 5, 16, 64, 67}) {
      Row<float> frequencies(n, 1), cosines(n, 2), sines(n, 3);
      for (int64_t i = 0; i < n; ++i) {
        frequencies.data()[i] = std::pow(5e5f, -static_cast<float>(i) / 64);
      }
      fast().angles(position, frequencies.data(), n, cosines.data(), sines.data());
      EXPECT_TRUE(cosines.guards_are_untouched() && sines.guards_are_untouched());
      for (int64_t i = 0; i < n; ++i) {
        const double angle = position * frequencies.data()[i];
        ASSERT_NEAR(cosines[i], std::cos(angle), 2e-7) << angle;
        ASSERT_NEAR(sines[i], std::sin(angle), 2e-7) << angle;
      }
    }
  }
}

TEST_P(RowKernelsOf, AdamwLikeThePlainLoop) {
  const AdamwFactors factors{0.5f, 0.9f, 0.1f, 0.95f, 0.05f, 2, 3, 1e-2f, 0, 0, 0.1f};
  for (int64_t n : lengths()) {
    Row<float> g(n, 1), p(n, 2), m(n, 3), v(n, 4), expected_p(n, 2), expected_m(n, 3),
        expected_v(n, 4);
    for (int64_t i = 0; i < n; ++i) v.data()[i] = expected_v.data()[i] = std::abs(v.data()[i]);
    const double squares = fast().adamw(factors, g.data(), n, p.data(), m.data(), v.data());
    const double expected = plain().adamw(factors, g.data(), n, expected_p.data(),
                                          expected_m.data(), expected_v.data());
    EXPECT_NEAR(squares, expected, 1e-6 * expected);
    expect_near_rows(p, expected_p, 1, 8);
    expect_near_rows(m, expected_m);
    expect_near_rows(v, expected_v);
  }
}

// So that threads may cut an array anywhere.
TEST_P(RowKernelsOf, AnElementGetsTheSameBitsWhereverItStands) {
  constexpr int64_t kSize = 100;
  const AdamwFactors factors{0.5f, 0.9f, 0.1f, 0.95f, 0.05f, 2, 3, 1e-2f, 1e-8f, 0, 0.1f};
  const auto run = [&](int64_t piece) {
    Row<float> g(kSize, 1), p(kSize, 2), m(kSize, 3), v(kSize, 4), total(kSize, 5), soft(kSize, 6);
    Row<float> silu(kSize, 7), cosines(kSize, 8), sines(kSize, 9);
    for (int64_t i = 0; i < kSize; ++i) v.data()[i] = std::abs(v.data()[i]);
    for (int64_t i = 0; i < kSize; i += piece) {
      const int64_t n = std::min(piece, kSize - i);
      fast().fp32.softmax(g.data() + i, 3, 0.3f, n, soft.data() + i);
      fast().fp32.silu(g.data() + i, p.data() + i, n, silu.data() + i);
      fast().fp32.add_scaled(0.3f, g.data() + i, n, total.data() + i);
      fast().angles(1000, g.data() + i, n, cosines.data() + i, sines.data() + i);
      fast().adamw(factors, g.data() + i, n, p.data() + i, m.data() + i, v.data() + i);
    }
    std::vector<float> all;
    for (Row<float>* row : {&p, &m, &v, &total, &soft, &silu, &cosines, &sines}) {
      all.insert(all.end(), row->data(), row->data() + kSize);
    }
    return all;
  };
  const std::vector<float> whole = run(kSize);
  for (int64_t piece : {1, 3, 16, 23}) EXPECT_TRUE(testing::same_bits(run(piece), whole)) << piece;
}

INSTANTIATE_TEST_SUITE_P(AllIsas, RowKernelsOf,
                         ::testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAmx),
                         [](const auto& isa) { return std::string(name_of(isa.param)); });

}  // namespace
}  // namespace odyssey
