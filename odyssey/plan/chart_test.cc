// SPDX-License-Identifier: Apache-2.0
// The timeline of a call, and the pictures.
#include "odyssey/plan/chart.h"

#include <algorithm>
#include <regex>
#include <stack>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace odyssey {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

Job job_of(const Words& more) {
  Words words = {"hardware=tpu-v5p-64", "model_name=llama3-8b", "packing=false",
                 "per_device_batch_size=0.015625"};
  words.insert(words.end(), more.begin(), more.end());
  return make_job("", words);
}

Words usp(int ring, int ulysses, int64_t length) {
  return {"context_parallel_strategy=usp", "ici_context_parallelism=" + std::to_string(ring),
          "ici_context_usp_ulysses_parallelism=" + std::to_string(ulysses),
          "max_target_length=" + std::to_string(length), "context_parallel_load_balance=false"};
}

size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// "" for well-formed XML of elements, attributes in double quotes, and text without entities other
// than the five; else what is wrong.
std::string fault_of(const std::string& xml) {
  static const std::regex tag(R"(<(/?)([a-z]+)((?: [a-zA-Z0-9:-]+="[^"<]*")*)(/?)>)");
  static const std::regex text(R"((?:[^<>&]|&(?:amp|lt|gt|quot|apos);)*)");
  std::stack<std::string> open;
  size_t at = 0;
  for (std::sregex_iterator it(xml.begin(), xml.end(), tag), end; it != end; ++it) {
    const std::string between = xml.substr(at, static_cast<size_t>(it->position()) - at);
    if (!std::regex_match(between, text)) return "text: " + between;
    at = static_cast<size_t>(it->position() + it->length());
    if ((*it)[1].length() > 0) {
      if (open.empty() || open.top() != (*it)[2]) return "closed out of order: " + it->str();
      open.pop();
    } else if ((*it)[4].length() == 0) {
      open.push((*it)[2]);
    }
    if (open.empty() && at + 1 < xml.size()) return "more after the root";
  }
  if (at == 0) return "no element";
  return open.empty() ? "" : "not closed: " + open.top();
}

TEST(Chart, TheTestSeesFaults) {
  EXPECT_EQ(fault_of("<a b=\"c\"><d/>e &lt;</a>"), "");
  for (const char* bad :
       {"", "<a>", "<a></b>", "<a><b></a></b>", "<a>&</a>", "<a b=c></a>", "<a/><a/><a/>"}) {
    EXPECT_NE(fault_of(bad), "") << bad;
  }
}

TEST(Chart, LengthsHaveASeriesForEveryLayout) {
  const Job job = job_of(usp(16, 4, 65536));
  CountCache cache;
  const std::vector<PlanRow> rows = search(job, cache);
  const std::string svg = lengths_svg(step_curves(job, rows, 100));
  EXPECT_EQ(fault_of(svg), "");
  EXPECT_EQ(occurrences(svg, "<g class=\"series\""), rows.size());
  EXPECT_EQ(occurrences(svg, "class=\"legend\""), rows.size());
  for (const PlanRow& row : rows) EXPECT_THAT(svg, HasSubstr(layout_name(row.parallel)));
  EXPECT_THAT(svg, HasSubstr("usp 16x4 contiguous (flags)"));
  // Points at the asked length are the rows of the table.
  for (const Curve& curve : step_curves(job, rows, 100)) {
    EXPECT_EQ(curve.points.size(), 7u);
    EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [&](const PlanRow& row) {
      return row.step_seconds == curve.points[3].seconds;
    })) << curve.name;
  }
  // The asked one is there, however few are shown.
  const std::vector<Curve> few = step_curves(job, rows, 1);
  EXPECT_TRUE(std::any_of(few.begin(), few.end(), [](const Curve& c) { return c.is_asked; }));
  EXPECT_LE(few.size(), 2u);
}

TEST(Chart, TimelineDrawsEveryRank) {
  const Job job = job_of(usp(16, 4, 65536));
  CountCache cache;
  const std::string svg = timeline_svg(simulate_call(job, cache));
  EXPECT_EQ(fault_of(svg), "");
  EXPECT_EQ(occurrences(svg, "<g class=\"rank\""), 16u);
  Timeline odd = simulate_call(job, cache);
  odd.title = "a < b & \"c\"";
  EXPECT_EQ(fault_of(timeline_svg(odd)), "");
}

// The picture shows what was priced, second for second.
TEST(Timeline, LastsAsLongAsTheCallThatIsPriced) {
  const Words gather = {"context_parallel_strategy=all_gather", "ici_context_parallelism=64",
                        "max_target_length=65536"};
  Words slow_links = usp(64, 1, 65536);
  slow_links.emplace_back("hardware.link_gb_per_second=1");  // no step hides its hop
  bool has_exposed_hops = false;
  for (const Words& words :
       {usp(16, 4, 65536), usp(8, 8, 262144), usp(1, 64, 65536), gather, slow_links}) {
    const Job job = job_of(words);
    CountCache cache;
    const Timeline timeline = simulate_call(job, cache);
    const Cost cost = estimate(job, cache.of(job), Scope::kAttentionForward);
    has_exposed_hops |= cost.seconds("ring exposed") > 0;
    const double priced = cost.step_seconds() / static_cast<double>(job.config.run.model.layers);
    EXPECT_NEAR(timeline.seconds, priced, 1e-9 * priced) << timeline.title;
    for (const auto& slices : timeline.slices) {
      EXPECT_EQ(slices.front().begin, timeline.exchange_in);
      for (const TimeSlice& slice : slices) EXPECT_GE(slice.wait(), -1e-12);
    }
  }
  EXPECT_TRUE(has_exposed_hops);
}

TEST(Timeline, RanksBehindTheMaskWait) {
  CountCache cache;
  const Timeline timeline = simulate_call(job_of(usp(16, 4, 65536)), cache);
  // The first rank of a contiguous ring sees its own block only, the last one every block.
  double first = 0, last = 0;
  for (const TimeSlice& slice : timeline.slices.front()) first += slice.attend;
  for (const TimeSlice& slice : timeline.slices.back()) last += slice.attend;
  EXPECT_GT(last, 4 * first);
}

TEST(Timeline, LongRingsAreDrawnInSlices) {
  Words words = {"hardware=tpu-v5p-256",
                 "model_name=llama3-8b",
                 "packing=false",
                 "per_device_batch_size=0.00390625",
                 "context_parallel_strategy=ring",
                 "ici_context_parallelism=256",
                 "max_target_length=1048576"};
  const Job job = make_job("", words);
  CountCache cache;
  const Timeline timeline = simulate_call(job, cache);
  EXPECT_EQ(timeline.ranks.size(), 64u);
  EXPECT_EQ(timeline.ranks.front(), 0);
  EXPECT_EQ(timeline.ranks.back(), 255);
  EXPECT_EQ(timeline.steps_of_slice, 4);
  for (const auto& slices : timeline.slices) EXPECT_EQ(slices.size(), 64u);
}

}  // namespace
}  // namespace odyssey
