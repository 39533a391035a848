#include "multipath/statistics_json.h"

namespace braid::multipath {
namespace {

void write_count(std::string_view name, const CopyCount& count, TextWriter& out) {
  out << "\"" << name << "\":{\"calls\":" << count.calls << ",\"bytes\":" << count.bytes << "}";
}

void write_text(std::string_view text, TextWriter& out) {
  out << "\"";
  for (const char& letter : text) {
    if (letter == '"' || letter == '\\') out << "\\";
    const bool is_control = static_cast<unsigned char>(letter) < 0x20;
    out << (is_control ? std::string_view(" ") : std::string_view(&letter, 1));
  }
  out << "\"";
}

}  // namespace

StatisticsJson::StatisticsJson(int64_t pid, TextWriter& out) : out_(out) {
  out_ << "{\"braid\":{\"pid\":" << pid << ",\"entry_points\":{";
}

// What lies between the section at hand and this one is closed, empty where nothing was added.
void StatisticsJson::enter(Section section) {
  while (section_ != section) {
    leave(section_);
    section_ = static_cast<Section>(static_cast<int>(section_) + 1);
    separator_ = "";
  }
}

void StatisticsJson::leave(Section section) {
  switch (section) {
    case Section::kEntryPoints:
      write_verdict();
      if (!entry_point_.empty()) out_ << "}";
      out_ << "},\"movers\":{";
      write_movers();
      out_ << "},\"cost_ns\":{";
      break;
    case Section::kCosts: out_ << "},\"paths\":["; break;
    case Section::kPaths: out_ << "],\"relays\":["; break;
    case Section::kRelays: out_ << "],\"problems\":["; break;
    case Section::kProblems: out_ << "]}}"; break;
    case Section::kEnd: break;
  }
}

void StatisticsJson::add(std::string_view entry_point, Verdict verdict, Mover mover,
                         const CopyCount& count) {
  movers_[static_cast<size_t>(mover)] += count;
  const bool is_same_entry = entry_point == entry_point_;
  if (!is_same_entry || verdict != verdict_) write_verdict();
  if (!is_same_entry) {
    out_ << (entry_point_.empty() ? "\"" : "},\"") << entry_point << "\":{";
    separator_ = "";
  }
  entry_point_ = entry_point;
  verdict_ = verdict;
  count_ += count;
  is_verdict_open_ = true;
}

void StatisticsJson::write_verdict() {
  if (!is_verdict_open_) return;
  out_ << separator_;
  write_count(verdict_name(verdict_), count_, out_);
  separator_ = ",";
  count_ = {};
  is_verdict_open_ = false;
}

void StatisticsJson::write_movers() {
  const char* separator = "";
  for (size_t mover = 0; mover < movers_.size(); ++mover) {
    if (movers_[mover].calls == 0) continue;
    out_ << separator;
    write_count(mover_name(static_cast<Mover>(mover)), movers_[mover], out_);
    separator = ",";
  }
}

void StatisticsJson::add_cost(std::string_view cost_class, const Histogram& cost_ns) {
  enter(Section::kCosts);
  out_ << separator_ << "\"" << cost_class << "\":{\"calls\":" << cost_ns.count();
  for (const Percentile& percentile : kPercentiles)
    out_ << ",\"" << percentile.key << "\":" << cost_ns.quantile(percentile.per_mille);
  out_ << ",\"max\":" << cost_ns.max() << "}";
  separator_ = ",";
}

void StatisticsJson::add(const PathCount& path) {
  enter(Section::kPaths);
  out_ << separator_ << "{\"target\":" << path.target << ",\"via\":" << path.via
       << ",\"direction\":\"" << direction_name(path.direction) << "\",\"mover\":\""
       << mover_name(path.mover) << "\",\"slices\":" << path.slices << ",\"bytes\":" << path.bytes
       << "}";
  separator_ = ",";
}

void StatisticsJson::add(const RelayCount& relay) {
  enter(Section::kRelays);
  out_ << separator_ << "{\"gpu\":" << relay.gpu << ",\"state\":\"" << relay_state_name(relay.state)
       << "\",\"refusals\":" << relay.refusals << ",\"shared\":" << relay.shared
       << ",\"congested\":" << relay.congested << "}";
  separator_ = ",";
}

void StatisticsJson::add_problem(std::string_view problem) {
  enter(Section::kProblems);
  out_ << separator_;
  write_text(problem, out_);
  separator_ = ",";
}

void StatisticsJson::end() { enter(Section::kEnd); }

}  // namespace braid::multipath
