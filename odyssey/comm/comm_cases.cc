// SPDX-License-Identifier: Apache-2.0
#include "odyssey/comm/comm_cases.h"

#include <array>

#include <gmock/gmock.h>

#include "odyssey/base/error.h"
#include "odyssey/comm/agreement.h"
#include "odyssey/comm/all_reduce.h"
#include "odyssey/comm/barrier.h"

namespace odyssey {

using testing::AllOf;
using testing::HasSubstr;

std::vector<std::byte> pattern_message(int sender, int receiver, int64_t size) {
  std::vector<std::byte> message(static_cast<size_t>(size));
  std::byte* data = message.data();
  for (int64_t i = 0; i < size; ++i) {
    const int64_t mixed = sender * 131 + receiver * 31 + i * 7 + (i >> 8) * 3;
    data[i] = static_cast<std::byte>(mixed & 255);
  }
  return message;
}

namespace {

template <class Error>
std::string thrown(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

int next_of(const Group& group) {
  return (group.rank() + 1) % group.size();
}
int previous_of(const Group& group) {
  return (group.rank() + group.size() - 1) % group.size();
}

// Every rank sends to the next one and receives from the one before, all at once.
void ring_shift(Group& group, int64_t size, bool sends_first) {
  if (group.size() == 1) return;
  const int next = next_of(group), previous = previous_of(group);
  const auto outgoing = pattern_message(group.rank(), next, size);
  std::vector<std::byte> incoming(outgoing.size(), std::byte{0xee});
  std::array<RequestPtr, 2> requests;
  if (sends_first) requests[0] = group.send(outgoing, next, Tag::kShift);
  requests[1] = group.receive(incoming, previous, Tag::kShift);
  if (!sends_first) requests[0] = group.send(outgoing, next, Tag::kShift);
  group.wait_all(requests);
  EXPECT_TRUE(incoming == pattern_message(previous, group.rank(), size)) << size << " bytes";
}

void shifts_of_every_size(Group& group) {
  for (const int64_t size : {0, 1, 4000, 4096, 65536, 8 << 20}) {
    ring_shift(group, size, false);
    ring_shift(group, size, true);
  }
}

void both_directions_at_once(Group& group) {
  if (group.size() == 1) return;
  constexpr int64_t kSize = 8 << 20;
  std::vector<std::vector<std::byte>> out, in;
  std::vector<RequestPtr> requests;
  for (const int peer : {next_of(group), previous_of(group)}) {
    out.push_back(pattern_message(group.rank(), peer, kSize));
    in.emplace_back(kSize);
    requests.push_back(group.send(out.back(), peer, Tag::kUser));
  }
  // With two ranks both messages come from the same peer, in the order sent.
  const bool pair = group.size() == 2;
  const std::array<int, 2> sources{previous_of(group), next_of(group)};
  for (size_t i = 0; i < 2; ++i) requests.push_back(group.receive(in[i], sources[i], Tag::kUser));
  group.wait_all(requests);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(in[i] == pattern_message(pair ? next_of(group) : sources[i], group.rank(), kSize));
  }
}

void messages_in_pieces(Group& group) {
  group.set_piece_limit_bytes(1'000'003);
  ring_shift(group, 3'000'010, false);
  group.set_piece_limit_bytes(16);
  for (int64_t size = 0; size <= 50; ++size) ring_shift(group, size, size % 2 == 0);
  group.set_piece_limit_bytes(int64_t{1} << 30);
}

void equal_tags_arrive_in_order(Group& group) {
  if (group.size() == 1) return;
  constexpr int kMessages = 30;
  std::vector<RequestPtr> requests;
  std::vector<std::vector<std::byte>> out, in;
  for (int i = 0; i < kMessages; ++i) {
    out.push_back(pattern_message(group.rank(), i, i * 10));
    requests.push_back(group.send(out.back(), next_of(group), i % 2 ? Tag::kUser : Tag::kShift));
  }
  // One tag wholly before the other: tags do not overtake within themselves, only each other.
  for (const int odd : {1, 0}) {
    for (int i = odd; i < kMessages; i += 2) {
      in.emplace_back(static_cast<size_t>(i * 10));
      RequestPtr request =
          group.receive(in.back(), previous_of(group), odd ? Tag::kUser : Tag::kShift);
      group.wait(request);
      EXPECT_TRUE(in.back() == pattern_message(previous_of(group), i, i * 10)) << i;
    }
  }
  group.wait_all(requests);
}

void test_reports_completion(Group& group) {
  RequestPtr nothing;
  EXPECT_TRUE(group.test(nothing));
  if (group.size() == 1) return;
  if (group.rank() == 0) {
    std::vector<std::byte> message(100);
    RequestPtr request = group.receive(message, 1, Tag::kUser);
    EXPECT_FALSE(group.test(request));
    barrier(group);
    while (!group.test(request)) {
    }
    EXPECT_TRUE(message == pattern_message(1, 0, 100));
  } else {
    barrier(group);
    if (group.rank() != 1) return;
    const auto message = pattern_message(1, 0, 100);
    RequestPtr request = group.send(message, 0, Tag::kUser);
    group.wait(request);
  }
}

void wait_limit_names_what_is_missing(Group& group) {
  if (group.size() > 1 && group.rank() == 0) {
    group.set_wait_limit_seconds(0.15);
    std::vector<std::byte> message(77);
    RequestPtr request = group.receive(message, 1, Tag::kShiftGradient);
    const std::string text = thrown<RunError>([&] { group.wait(request); });
    EXPECT_THAT(text, AllOf(HasSubstr("shift_gradient"), HasSubstr("\"" + group.name() + "\""),
                            HasSubstr("rank 0 of"), HasSubstr("0.15 s"),
                            HasSubstr("receiving 77 bytes from rank 1"),
                            HasSubstr("comm_timeout_seconds")));
    group.set_wait_limit_seconds(20);
    // Given up: the next receive gets the next message, and the old memory stays as it is.
    request.reset();
    barrier(group);
    std::vector<std::byte> second(5);
    request = group.receive(second, 1, Tag::kShiftGradient);
    group.wait(request);
    EXPECT_TRUE(second == pattern_message(1, 0, 5));
    EXPECT_TRUE(message == std::vector<std::byte>(77));
    return;
  }
  barrier(group);
  if (group.rank() != 1) return;
  const auto message = pattern_message(1, 0, 5);
  RequestPtr request = group.send(message, 0, Tag::kShiftGradient);
  group.wait(request);
}

// Sizes that differ: sent, received, piece limit (0: the default).
void mismatched_sizes_are_named(Group& group) {
  if (group.size() == 1) return;
  const std::vector<std::array<int64_t, 3>> trials{
      {5, 3, 0}, {3, 5, 0}, {0, 1, 0}, {1, 0, 0}, {32, 16, 16}, {16, 32, 16}, {33, 16, 16}};
  for (const auto& [sent, received, piece_limit] : trials) {
    // A group of its own: what is left of the message must not meet the next trial.
    const auto part = group.split(0, "mismatch");
    part->set_wait_limit_seconds(2);
    if (piece_limit > 0) part->set_piece_limit_bytes(piece_limit);
    if (part->rank() == 0) {
      const auto message = pattern_message(0, 1, sent);
      RequestPtr request;
      // The sender need not notice: MPI takes small messages away at once. Where it does not, the
      // pieces that nobody receives run into the limit.
      try {
        request = part->send(message, 1, Tag::kUser);
        part->wait(request);
      } catch (const RunError& error) {
        EXPECT_THAT(error.what(), testing::AnyOf(HasSubstr(fmt::format("sends {} bytes", sent)),
                                                 HasSubstr(fmt::format("sending {} bytes", sent))));
      }
    } else if (part->rank() == 1) {
      std::vector<std::byte> message(static_cast<size_t>(received));
      RequestPtr request;
      const std::string text = thrown<RunError>([&] {
        request = part->receive(message, 0, Tag::kUser);
        part->wait(request);
      });
      EXPECT_THAT(text,
                  AllOf(HasSubstr("transfer"), HasSubstr("rank 0 of group \"mismatch\" sends"),
                        HasSubstr(fmt::format("rank 1, which receives {} bytes", received))));
    }
    barrier(group);
  }
}

void split_makes_ordered_groups(Group& group) {
  const int rank = group.rank();
  const auto part = group.split(rank % 3, "thirds");
  EXPECT_EQ(part->name(), "thirds");
  EXPECT_EQ(part->rank(), rank / 3);
  EXPECT_EQ(part->size(), (group.size() - rank % 3 + 2) / 3);
  std::array<double, 1> sum{static_cast<double>(rank)};
  all_reduce_sum(*part, sum);
  double expected = 0;
  for (int other = rank % 3; other < group.size(); other += 3) expected += other;
  EXPECT_EQ(sum[0], expected);

  // Again and again, also of parts, and each with its own messages.
  const auto alone = part->split(part->rank(), "alone");
  EXPECT_EQ(alone->size(), 1);
  for (int i = 0; i < 20; ++i) {
    const auto whole = group.split(7, "whole");
    EXPECT_EQ(whole->rank(), rank);
    EXPECT_EQ(whole->traffic().messages_sent, 0);
    ring_shift(*whole, 100, false);
  }
}

void agreement_names_the_rank_that_differs(Group& group) {
  check_agreement(group, 0x1234, "configuration");
  if (group.size() == 1) return;
  const bool last = group.rank() == group.size() - 1;
  const std::string text = thrown<UserError>(
      [&] { check_agreement(group, last ? 0xabcdef0123456789U : 0x1234U, "configuration"); });
  EXPECT_THAT(text,
              HasSubstr(fmt::format(
                  "configuration: expected the same on all {} ranks, got hash 0000000000001234 "
                  "on rank 0 and abcdef0123456789 on rank {}",
                  group.size(), group.size() - 1)));
}

void errors_are_shared(Group& group) {
  fail_together(group, "");
  const int last = group.size() - 1;
  for (const int first : {0, last / 2, last}) {
    const std::string mine = group.rank() >= first ? fmt::format("error of {}", group.rank()) : "";
    EXPECT_EQ(thrown<UserError>([&] { fail_together(group, mine); }),
              fmt::format("error of {}", first));
  }
}

void wrong_peers_are_refused(Group& group) {
  for (const int peer : {group.rank(), -1, group.size()}) {
    EXPECT_THROW(group.send({}, peer, Tag::kUser), std::logic_error);
    EXPECT_THROW(group.receive({}, peer, Tag::kUser), std::logic_error);
  }
}

}  // namespace

std::vector<CommCase> group_cases() {
  return {{"ShiftsOfEverySize", shifts_of_every_size},
          {"BothDirectionsAtOnce", both_directions_at_once},
          {"MessagesInPieces", messages_in_pieces},
          {"EqualTagsArriveInOrder", equal_tags_arrive_in_order},
          {"TestReportsCompletion", test_reports_completion},
          {"WaitLimitNamesWhatIsMissing", wait_limit_names_what_is_missing},
          {"MismatchedSizesAreNamed", mismatched_sizes_are_named},
          {"SplitMakesOrderedGroups", split_makes_ordered_groups},
          {"AgreementNamesTheRankThatDiffers", agreement_names_the_rank_that_differs},
          {"ErrorsAreShared", errors_are_shared},
          {"WrongPeersAreRefused", wrong_peers_are_refused}};
}

std::vector<CommCase> all_comm_cases() {
  std::vector<CommCase> cases = group_cases();
  for (CommCase& one : mesh_cases()) cases.push_back(std::move(one));
  for (CommCase& one : collective_cases()) cases.push_back(std::move(one));
  return cases;
}

}  // namespace odyssey
