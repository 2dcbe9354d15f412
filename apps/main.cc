// SPDX-License-Identifier: Apache-2.0
// The odyssey program: reads the command line and runs one command.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "apps/attention_command.h"
#include "apps/bench_arguments.h"
#include "apps/calibrate_command.h"
#include "apps/check_command.h"
#include "apps/help.h"
#include "apps/launch.h"
#include "apps/plan_command.h"
#include "apps/train_command.h"
#include "odyssey/base/error.h"
#include "odyssey/comm/mpi_group.h"
#include "odyssey/config/keys.h"
#include "odyssey/config/spelling.h"
#include "odyssey/kernels/isa.h"

namespace odyssey {
namespace {

// What the command line holds. Texts are looked at later: our messages are better than CLI11's.
struct CommandLine {
  std::string command;
  bool wants_help = false, wants_version = false;
  std::string ranks, engine = "auto", input, output;
  bool quick = false;
  bool validate = false, cross_validate = false, fit = false;
  std::string top, json, svg;  // of plan
  std::vector<std::string> words;
  BenchArguments bench;  // its options; its words are those above
};

const std::vector<std::string> kCommands = {"train", "check",     "attention", "bench",
                                            "plan",  "calibrate", "keys"};

UserError usage_error(const std::string& what, const std::string& expected,
                      const std::string& actual, const std::string& command) {
  return user_error(what, expected, actual,
                    fmt::format("See odyssey {}{}--help.", command, command.empty() ? "" : " "));
}

UserError unknown_option(const std::string& word, const CommandLine& line) {
  const std::string& command = line.command;
  if (const size_t equals = word.find('='); equals != std::string::npos && !command.empty()) {
    const std::string bare = word.substr(std::min(word.find_first_not_of('-'), word.size()));
    return user_error("option", "key=value", word,
                      fmt::format("Write it without dashes: {}.", bare));
  }
  std::string known = "--help";
  if (command.empty()) known = "--version or --help";
  if (command == "train" || command == "check") known = "--ranks, --comm or --help";
  if (command == "attention") known = "--input, --output, --ranks, --comm or --help";
  if (command == "bench" && !line.words.empty()) {
    const std::string& kind = line.words[0];
    return usage_error("option", bench_option_names(kind), word, fmt::format("bench {}", kind));
  }
  if (command == "bench") known = bench_option_names("");
  if (command == "plan") {
    known = "--top, --json, --svg, --validate, --cross-validate, --fit, --output or --help";
  }
  if (command == "calibrate") known = "--output, --quick, --ranks, --comm or --help";
  return usage_error("option", known, word, command);
}

UserError unknown_command(const std::string& word) {
  const std::string nearest = nearest_name(word, kCommands);
  if (nearest.empty()) {
    return usage_error("command", join_with_or(kCommands), word.empty() ? "an empty word" : word,
                       "");
  }
  return user_error("command", join_with_or(kCommands), word,
                    fmt::format("Did you mean odyssey {}?", nearest));
}

void add_command(CLI::App& app, const std::string& name, CommandLine& line) {
  CLI::App* command = app.add_subcommand(name);
  command->set_help_flag();
  command->add_flag("-h,--help", line.wants_help);
  command->allow_extras();
  command->add_option("words", line.words);
  if (name == "keys") return;
  if (name == "bench") {
    for (const BenchOption& option : bench_option_table()) {
      command->add_option(option.name, line.bench.*option.text);
    }
    return;
  }
  if (name == "plan") {
    command->add_flag("--validate", line.validate);
    command->add_flag("--cross-validate", line.cross_validate);
    command->add_flag("--fit", line.fit);
    command->add_option("--output", line.output);
    command->add_option("--top", line.top);
    command->add_option("--json", line.json);
    command->add_option("--svg", line.svg);
    return;
  }
  if (name == "calibrate") {
    command->add_flag("--quick", line.quick);
    command->add_option("--output", line.output);
  }
  command->add_option("--ranks", line.ranks);
  command->add_option("--comm", line.engine);
  if (name != "attention") return;
  command->add_option("--input", line.input);
  command->add_option("--output", line.output);
}

CommandLine parse(int argc, const char* const* argv) {
  CommandLine line;
  const std::string first = argc > 1 ? argv[1] : "";
  if (argc > 1 && !first.starts_with('-') &&
      std::find(kCommands.begin(), kCommands.end(), first) == kCommands.end()) {
    throw unknown_command(first);
  }
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  app.require_subcommand(0, 1);
  app.add_flag("-h,--help", line.wants_help);
  app.add_flag("--version", line.wants_version);
  for (const std::string& name : kCommands) add_command(app, name, line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const std::string text = error.what();
    throw usage_error("command line", "each option once and with its value",
                      text.substr(0, text.find('\n')), first.starts_with('-') ? "" : first);
  }
  const auto commands = app.get_subcommands();
  if (!commands.empty()) line.command = commands[0]->get_name();
  const std::vector<std::string> rest = app.remaining(true);
  if (!line.wants_help && !rest.empty()) throw unknown_option(rest[0], line);
  return line;
}

int whole_option(const std::string& option, const std::string& text, const std::string& command) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc{} && stop == end && value >= 1) return value;
  throw usage_error(option, "a whole number of at least 1", text, command);
}

LaunchOptions launch_options(const CommandLine& line) {
  LaunchOptions options;
  if (line.engine == "threads") {
    options.engine = Engine::kThreads;
  } else if (line.engine == "mpi") {
    options.engine = Engine::kMpi;
  } else if (line.engine != "auto") {
    throw usage_error("--comm", "auto, threads or mpi", line.engine, line.command);
  }
  if (line.ranks.empty()) return options;
  options.ranks = whole_option("--ranks", line.ranks, line.command);
  return options;
}

// A yml in another place than the first was meant as one.
void refuse_yml(const CommandLine& line, const std::string& expected) {
  for (const std::string& word : line.words) {
    if (word.find('=') == std::string::npos &&
        (word.ends_with(".yml") || word.ends_with(".yaml"))) {
      throw usage_error(fmt::format("odyssey {}", line.command), expected, word, line.command);
    }
  }
}

// Takes the yml off the words; "" when they begin with a key=value word.
std::string take_yml(CommandLine& line) {
  std::string yml;
  if (!line.words.empty() && line.words[0].find('=') == std::string::npos) {
    yml = line.words[0];
    line.words.erase(line.words.begin());
  }
  refuse_yml(line, "one CONFIG.yml, before the key=value words");
  return yml;
}

int run_train(CommandLine& line) {
  const std::string yml = take_yml(line);
  if (yml.empty()) {
    throw usage_error("odyssey train", "CONFIG.yml before the key=value words",
                      line.words.empty() ? "nothing" : line.words[0], line.command);
  }
  return run_train_command({yml, line.words}, launch_options(line));
}

int run_check(CommandLine& line) {
  const std::string yml = take_yml(line);
  return run_check_command({yml, line.words}, launch_options(line));
}

int run_attention(const CommandLine& line) {
  for (const auto& [option, value] :
       {std::pair{"--input", line.input}, {"--output", line.output}}) {
    if (value.empty()) {
      throw usage_error("odyssey attention", fmt::format("{} FILE", option), "none", line.command);
    }
  }
  refuse_yml(line, "key=value words only");
  return run_attention_command({line.input, line.output, line.words}, launch_options(line));
}

int run_plan(CommandLine& line) {
  PlanCommand command;
  command.validate = line.validate;
  command.cross_validate = line.cross_validate;
  command.fit = line.fit;
  command.output = line.output;
  if (line.fit && (line.validate || line.cross_validate)) {
    throw usage_error("odyssey plan", "--fit alone", "it beside another mode", line.command);
  }
  if (!line.output.empty() && !line.fit) {
    throw usage_error("--output", "--fit beside it", line.output, line.command);
  }
  const bool searches = !line.fit && !line.validate && !line.cross_validate;
  for (const auto& [option, value] :
       {std::pair{"--top", line.top}, {"--json", line.json}, {"--svg", line.svg}}) {
    if (!value.empty() && !searches) {
      throw usage_error(option, "no other mode beside it", value, line.command);
    }
  }
  if (!line.top.empty()) command.top = whole_option("--top", line.top, line.command);
  command.json = line.json;
  command.svg = line.svg;
  if (searches) command.yml = take_yml(line);
  command.words = line.words;
  // It computes nothing in parallel.
  return launcher_rank() == 0 ? run_plan_command(command) : kExitDone;
}

int run_calibrate(const CommandLine& line) {
  refuse_yml(line, "key=value words only");
  const LaunchOptions options = launch_options(line);
  return run_calibrate_command({line.words, options.ranks, line.quick, line.output},
                               options.engine);
}

int run_keys(const CommandLine& line) {
  if (line.words.size() > 1) {
    throw usage_error("odyssey keys", "one word", fmt::format("{}", line.words.size()),
                      line.command);
  }
  if (launcher_rank() == 0) {
    fmt::print("{}", describe_keys(line.words.empty() ? "" : line.words[0]));
  }
  return kExitDone;
}

int run(int argc, const char* const* argv) {
  CommandLine line = parse(argc, argv);
  if (line.wants_help || (line.command.empty() && !line.wants_version)) {
    const std::string kind = line.command == "bench" && !line.words.empty() ? line.words[0] : "";
    if (launcher_rank() == 0) fmt::print("{}", help_text(line.command, kind));
    return kExitDone;
  }
  if (line.wants_version) {
    if (launcher_rank() == 0) {
      fmt::print("odyssey {} (kernels: {}, MPI: {})\n", ODYSSEY_VERSION, name_of(detected_isa()),
                 mpi_available() ? "yes" : "no");
    }
    return kExitDone;
  }
  if (line.command == "train") return run_train(line);
  if (line.command == "check") return run_check(line);
  if (line.command == "attention") return run_attention(line);
  if (line.command == "bench") {
    line.bench.words = line.words;
    return run_bench(line.bench);
  }
  if (line.command == "plan") return run_plan(line);
  if (line.command == "calibrate") return run_calibrate(line);
  return run_keys(line);
}

// What was printed must have arrived: a full disk is no success.
int flush_output(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  fmt::print(stderr, "odyssey: cannot write to standard output\n");
  return code == kExitDone ? kExitFailed : code;
}

}  // namespace
}  // namespace odyssey

int main(int argc, char** argv) {
  try {
    return odyssey::flush_output(odyssey::run(argc, argv));
  } catch (const odyssey::UserError& error) {
    return odyssey::report_user_error(error.what());
  } catch (const std::exception& error) {
    fmt::print(stderr, "odyssey: {}\n", error.what());
    return odyssey::kExitFailed;
  }
}
