#include "emulator/model/scheduler.h"

#include <utility>

namespace braid::emulator {

void Scheduler::order_default_streams(const StreamPtr& stream, Op& op) const {
  const ContextPtr context = stream->context.lock();
  if (context == nullptr) return;
  const auto wait_for = [&](const StreamPtr& other) {
    if (other != nullptr && !other->idle()) op.after.push_back(other->tail);
  };
  if (stream->legacy) {
    for (const StreamPtr& other : context->streams)
      if (other->blocking() && other != stream) wait_for(other);
  } else if (stream->blocking()) {
    wait_for(context->legacy);
  }
}

void Scheduler::record(Stream& stream, Begin begin) {
  std::vector<GraphNodePtr>& nodes = stream.capture->graph->nodes;
  const size_t number = nodes.size();
  nodes.push_back(std::make_shared<GraphNode>(
      GraphNode{std::move(begin), std::move(stream.recorded), stream.context, stream.priority}));
  stream.recorded = {number};
}

CompletionPtr Scheduler::enqueue(const StreamPtr& stream, Begin begin,
                                 std::vector<CompletionPtr> after) {
  if (stream->capture != nullptr) {
    record(*stream, std::move(begin));
    return nullptr;
  }
  auto op = std::make_shared<Op>();
  op->after = std::move(after);
  op->issued = clock_.now();
  op->begin = std::move(begin);
  op->stream = stream;
  op->priority = stream->priority;
  order_default_streams(stream, *op);
  stream->ops.push_back(op);
  stream->tail = op->end;
  pump(stream);
  return op->end;
}

// When the first op cannot begin, sees to it that the stream is looked at again when it may.
bool Scheduler::may_begin(const StreamPtr& stream) {
  if (stream->armed) return false;
  Op& op = *stream->ops.front();
  const auto look_again = [this, stream] {
    stream->armed = false;
    pump(stream);
  };
  if (op.issued > simulation_.now()) {
    stream->armed = true;
    simulation_.at(op.issued, look_again);
    return false;
  }
  for (const CompletionPtr& before : op.after) {
    if (before->done()) continue;
    stream->armed = true;
    before->then(look_again);
    return false;
  }
  return true;
}

// A loop, not a recursion: thousands of ops may end at the same time.
void Scheduler::pump(const StreamPtr& stream) {
  if (stream->pumping) return;
  stream->pumping = true;
  while (!stream->running && !stream->ops.empty() && may_begin(stream)) {
    stream->running = true;
    const OpPtr op = stream->ops.front();
    op->begin(op);
  }
  stream->pumping = false;
}

void Scheduler::finish(const OpPtr& op) {
  const StreamPtr stream = op->stream.lock();
  if (op->cancelled || stream == nullptr) return;
  stream->running = false;
  stream->ops.pop_front();
  op->end->complete(simulation_.now());
  op->on_cancel = nullptr;
  pump(stream);
}

void Scheduler::cancel_all(Context& context) {
  for (const StreamPtr& stream : context.streams) {
    const std::deque<OpPtr> ops = std::move(stream->ops);
    stream->ops.clear();
    stream->running = false;
    for (const OpPtr& op : ops) {
      op->cancelled = true;
      if (op->on_cancel) std::exchange(op->on_cancel, nullptr)();
      op->end->complete(simulation_.now());
    }
  }
}

void Scheduler::prune(Context& context) {
  std::erase_if(context.streams,
                [](const StreamPtr& stream) { return stream->destroyed && stream->idle(); });
}

}  // namespace braid::emulator
