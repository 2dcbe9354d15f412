// SPDX-License-Identifier: Apache-2.0
#include "odyssey/plan/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

namespace odyssey {
namespace {

// Text that XML could take for markup.
std::string escape(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

// Elements of one picture; sizes in pixels.
class Svg {
 public:
  Svg(double width, double height, std::string_view title) {
    add(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" )"
        R"(viewBox="0 0 {0:.0f} {1:.0f}" font-family="sans-serif" font-size="12">)",
        width, height);
    add("<title>{}</title>", escape(title));
    add(R"(<rect width="100%" height="100%" fill="white"/>)");
    text(16, 24, title, "start", 15);
  }
  template <class... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
    text_.push_back('\n');
  }
  void line(double x1, double y1, double x2, double y2, std::string_view color) {
    add(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}"/>)", x1, y1, x2, y2,
        color);
  }
  void box(double x, double y, double width, double height, std::string_view color) {
    add(R"(<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" fill="{}"/>)", x, y,
        std::max(0.0, width), height, color);
  }
  void text(double x, double y, std::string_view text, std::string_view anchor = "start",
            int size = 12) {
    add(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}" font-size="{}">{}</text>)", x, y, anchor,
        size, escape(text));
  }
  std::string finish() {
    add("</svg>");
    return fmt::to_string(text_);
  }

 private:
  fmt::memory_buffer text_;
};

// 65536 as 64K.
std::string short_length(int64_t length) {
  constexpr int64_t kKilo = 1024, kMega = kKilo * kKilo;
  if (length % kMega == 0) return fmt::format("{}M", length / kMega);
  if (length % kKilo == 0) return fmt::format("{}K", length / kKilo);
  return fmt::format("{}", length);
}

// Of a logarithmic axis from `least` to `most`, drawn from `from` to `to`.
struct LogAxis {
  double least, most, from, to;
  double at(double value) const {
    const double share = most > least ? std::log(value / least) / std::log(most / least) : 0.5;
    return from + share * (to - from);
  }
};

// 1, 2 and 5 of each power of ten.
std::vector<double> round_values(double least, double most) {
  std::vector<double> values;
  for (double power = std::pow(10, std::floor(std::log10(least))); power <= most; power *= 10) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      if (digit * power >= least && digit * power <= most) values.push_back(digit * power);
    }
  }
  return values;
}

std::string_view color_of(size_t layout) {
  static constexpr std::array<std::string_view, 12> kColors = {
      "#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b",
      "#e377c2", "#17becf", "#bcbd22", "#393b79", "#637939", "#843c39"};
  return kColors[layout % kColors.size()];
}

std::string_view dashes_of(PlacementKind placement) {
  switch (placement) {
    case PlacementKind::kContiguous:
      return "none";
    case PlacementKind::kDualChunkSwap:
      return "7 3";
    case PlacementKind::kStriped:
      return "2 3";
    case PlacementKind::kPerDocument:
      return "8 3 2 3";
  }
  return "none";
}

void draw_curve(Svg& svg, const Curve& curve, const LogAxis& x, const LogAxis& y) {
  const std::string_view color = color_of(curve.color);
  std::string line;
  for (const Curve::Point& point : curve.points) {
    line +=
        fmt::format("{:.1f},{:.1f} ", x.at(static_cast<double>(point.length)), y.at(point.seconds));
  }
  svg.add(R"(<g class="series" data-layout="{}">)", escape(curve.name));
  svg.add(R"(<polyline points="{}" fill="none" stroke="{}" stroke-width="{}" )"
          R"(stroke-dasharray="{}"/>)",
          line, color, curve.is_asked ? 3 : 1.5, dashes_of(curve.placement));
  for (const Curve::Point& point : curve.points) {
    svg.add(R"(<circle cx="{:.1f}" cy="{:.1f}" r="3" stroke="{}" fill="{}"/>)",
            x.at(static_cast<double>(point.length)), y.at(point.seconds), color,
            point.fits ? color : "white");
  }
  svg.add("</g>");
}

void draw_axes(Svg& svg, const std::vector<Curve>& curves, const LogAxis& x, const LogAxis& y) {
  constexpr std::string_view kGrid = "#dddddd";
  std::vector<int64_t> lengths;
  for (const Curve& curve : curves) {
    for (const Curve::Point& point : curve.points) lengths.push_back(point.length);
  }
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  for (const int64_t length : lengths) {
    const double at = x.at(static_cast<double>(length));
    svg.line(at, y.from, at, y.to, kGrid);
    svg.text(at, y.from + 18, short_length(length), "middle");
  }
  for (const double seconds : round_values(y.least, y.most)) {
    svg.line(x.from, y.at(seconds), x.to, y.at(seconds), kGrid);
    svg.text(x.from - 6, y.at(seconds) + 4, fmt::format("{:g} s", seconds), "end");
  }
  svg.text((x.from + x.to) / 2, y.from + 38, "tokens of a row", "middle");
}

void draw_legend_of_calls(Svg& svg, double x, double y) {
  struct Entry {
    std::string_view color, name;
  };
  for (const Entry& entry :
       {Entry{"#1f77b4", "attend and merge"}, Entry{"#dddddd", "wait"},
        Entry{"#ff7f0e", "transfer"}, Entry{"#9467bd", "exchange or gather for all steps"}}) {
    svg.box(x, y - 10, 14, 12, entry.color);
    svg.text(x + 20, y, entry.name);
    constexpr double kLetter = 7;
    x += 40 + kLetter * static_cast<double>(entry.name.size());
  }
}

}  // namespace

std::vector<Curve> step_curves(const Job& job, const std::vector<PlanRow>& rows, int top) {
  std::vector<Curve> curves;
  std::vector<const PlanRow*> shown;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (static_cast<int>(i) < top || rows[i].is_asked) shown.push_back(&rows[i]);
  }
  std::vector<std::string> layouts;  // one colour each; placements differ by dashes
  for (const PlanRow* row : shown) {
    const ParallelConfig& p = row->parallel;
    const std::string layout = fmt::format("{} {} {}", layout_name(p), p.data, p.fsdp);
    const auto known = std::find(layouts.begin(), layouts.end(), layout);
    const auto color = static_cast<size_t>(known - layouts.begin());
    if (known == layouts.end()) layouts.push_back(layout);
    curves.push_back({name_with_placement(p), p.placement, row->is_asked, color, {}});
  }
  constexpr int64_t kReach = 8;
  const int64_t asked = job.config.run.data.sequence_length;
  for (int64_t length = std::max<int64_t>(1, asked / kReach); length <= asked * kReach;
       length *= 2) {
    CountCache cache;
    for (size_t i = 0; i < shown.size(); ++i) {
      const ParallelConfig& parallel = shown[i]->parallel;
      if (length < int64_t{parallel.ring_size} * parallel.ulysses_size) continue;
      Job own = job;
      own.config.run.parallel = parallel;
      own.config.run.data.sequence_length = length;
      own.config.run.data.global_batch_rows = shown[i]->batch_rows;
      own.config.run.data.gradient_accumulation_steps = shown[i]->accumulation;
      const PlanRow row = price(own, cache);
      curves[i].points.push_back({length, row.step_seconds, row.fits});
    }
  }
  return curves;
}

std::string lengths_svg(const std::vector<Curve>& curves) {
  double least = 1e300, most = 0, shortest = 1e300, longest = 1;
  for (const Curve& curve : curves) {
    for (const Curve::Point& point : curve.points) {
      least = std::min(least, point.seconds);
      most = std::max(most, point.seconds);
      shortest = std::min(shortest, static_cast<double>(point.length));
      longest = std::max(longest, static_cast<double>(point.length));
    }
  }
  constexpr double kWidth = 1000, kPlot = 700, kLegendLine = 18, kTop = 44;
  const double height =
      std::max(620.0, kTop + kLegendLine * (2 + static_cast<double>(curves.size())) + 20);
  Svg svg(kWidth, height, "Seconds of a step against the length");
  const LogAxis x = {shortest, longest, 70, kPlot}, y = {least, most, height - 60, kTop};
  draw_axes(svg, curves, x, y);
  for (size_t i = 0; i < curves.size(); ++i) {
    draw_curve(svg, curves[i], x, y);
    const double at = kTop + 10 + kLegendLine * static_cast<double>(i);
    svg.add(R"(<line class="legend" x1="{0}" y1="{1}" x2="{2}" y2="{1}" stroke="{3}" )"
            R"(stroke-width="{4}" stroke-dasharray="{5}"/>)",
            kPlot + 20, at, kPlot + 54, color_of(curves[i].color), curves[i].is_asked ? 3 : 1.5,
            dashes_of(curves[i].placement));
    svg.text(kPlot + 60, at + 4, curves[i].name + (curves[i].is_asked ? " (flags)" : ""));
  }
  svg.text(kPlot + 20, kTop + 16 + kLegendLine * static_cast<double>(curves.size()),
           "hollow: does not fit the memory");
  return svg.finish();
}

std::string timeline_svg(const Timeline& timeline) {
  constexpr double kLeft = 70, kPlot = 900, kTop = 70, kRow = 12, kBar = 6, kTransfer = 3;
  const double height = kTop + kRow * static_cast<double>(timeline.ranks.size()) + 50;
  Svg svg(kLeft + kPlot + 30, height, timeline.title);
  draw_legend_of_calls(svg, kLeft, 48);
  const auto at = [&](double seconds) { return kLeft + kPlot * seconds / timeline.seconds; };
  for (size_t i = 0; i < timeline.ranks.size(); ++i) {
    const double y = kTop + kRow * static_cast<double>(i);
    svg.add(R"(<g class="rank" data-rank="{}">)", timeline.ranks[i]);
    svg.text(kLeft - 6, y + 8, fmt::format("{}", timeline.ranks[i]), "end", 9);
    svg.box(kLeft, y, at(timeline.exchange_in) - kLeft, kBar + kTransfer, "#9467bd");
    for (const TimeSlice& slice : timeline.slices[i]) {
      svg.box(at(slice.begin), y, at(slice.end) - at(slice.begin), kBar, "#dddddd");
      svg.box(at(slice.begin), y, at(slice.begin + slice.attend) - at(slice.begin), kBar,
              "#1f77b4");
      if (slice.transfer > 0) {
        svg.box(at(slice.begin), y + kBar, at(slice.begin + slice.transfer) - at(slice.begin),
                kTransfer, "#ff7f0e");
      }
    }
    svg.box(at(timeline.seconds - timeline.exchange_out), y,
            at(timeline.seconds) - at(timeline.seconds - timeline.exchange_out), kBar + kTransfer,
            "#9467bd");
    svg.add("</g>");
  }
  const double bottom = height - 40;
  constexpr int kMarks = 5;
  for (int mark = 0; mark <= kMarks; ++mark) {
    const double seconds = timeline.seconds * mark / kMarks;
    svg.line(at(seconds), kTop - 4, at(seconds), bottom, "#bbbbbb");
    svg.text(at(seconds), bottom + 14, fmt::format("{:.4g} ms", 1e3 * seconds), "middle", 10);
  }
  svg.text(
      kLeft, height - 8,
      fmt::format("one line a ring rank, {} of {}{}", timeline.ranks.size(), timeline.ring_size,
                  timeline.steps_of_slice > 1
                      ? fmt::format("; {} ring steps a slice", timeline.steps_of_slice)
                      : ""));
  return svg.finish();
}

}  // namespace odyssey
