// A decoder as small as one can be that still reads and writes a paged KV cache: layers of
// attention with one head and of an MLP, weights made of hashes, tokens that are sampled. The same
// source runs as a kernel, where a block of threads computes one request, and on the CPU.
//
// What it computes depends on the request's tokens and seed alone, never on where blocks lie: each
// sum is one thread's, in one order, and what is drawn follows from seed and position. So a
// request's output is the same whether its blocks stayed, moved or were computed again.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define ROTATE_DEVICE __device__
#else
#include <cmath>
#define ROTATE_DEVICE
#endif

namespace rotate {

constexpr uint32_t kHead = 64;  // elements; threads of a block
constexpr uint32_t kHidden = 2 * kHead;
constexpr uint32_t kBlockTokens = 16;
constexpr uint32_t kVocabulary = 512;
constexpr uint32_t kTokensMost = 1024;  // of a request
constexpr float kTemperature = 0.7f;
constexpr const char* kKernelName = "rotate_decode";

/// What one request computes in a step: the tokens from `begin` to before `end`, and the one that
/// follows them, which it writes to tokens[end].
struct RequestStep {
  uint64_t tokens;  ///< uint32_t[kTokensMost + 1]
  uint64_t slots;   ///< uint32_t[]: the slot of each block of the request
  uint32_t begin;
  uint32_t end;
  uint32_t seed;  ///< of what is sampled
};

/// The kernel's one argument; a block of threads for each request.
struct StepArgs {
  uint64_t requests;  ///< const RequestStep*
  uint64_t cache;
  uint64_t block_bytes;
  uint32_t layers;
  uint32_t request_count;
};

/// What a block of threads shares.
struct Scratch {
  float x[kHead], q[kHead], k[kHead], v[kHead], sum[kHead];
  float hidden[kHidden];
  float score[kTokensMost];
  float best[kHead];
  uint32_t best_token[kHead];
};

ROTATE_DEVICE inline uint32_t hash(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t h = a * 0x9E3779B1u ^ b * 0x85EBCA77u ^ c * 0xC2B2AE3Du;
  h ^= h >> 15;
  h *= 0x2C1B3C6Du;
  return h ^ h >> 12;
}
ROTATE_DEVICE inline float weight(uint32_t a, uint32_t b, uint32_t c) {
  return (static_cast<float>(hash(a, b, c) >> 8) / 8388608.0f - 1.0f) * 0.25f;
}

/// Team: `lane`, `lanes`, `sync`, `load` and `store` of a 32-bit word at an address.
template <typename Team>
class Decoder {
 public:
  ROTATE_DEVICE Decoder(Team& team, Scratch& scratch, const StepArgs& args, const RequestStep& step)
      : team_(team), s_(scratch), args_(args), step_(step) {}

  ROTATE_DEVICE void run() {
    for (uint32_t position = step_.begin; position < step_.end; ++position) {
      const uint32_t token = team_.load(step_.tokens + position * sizeof(uint32_t));
      each([&](uint32_t i) { s_.x[i] = weight(token, i, 1) + weight(position, i, 2); });
      for (uint32_t layer = 0; layer < args_.layers; ++layer) {
        attend(layer, position);
        feed_forward(layer);
      }
    }
    const uint32_t next = sample();
    if (team_.lane() == 0) team_.store(step_.tokens + step_.end * sizeof(uint32_t), next);
    team_.sync();
  }

 private:
  enum Matrix : uint32_t { kQuery, kKey, kValue, kUp, kDown, kMatrices };

  template <typename Body>
  ROTATE_DEVICE void each(uint32_t count, const Body& body) {
    for (uint32_t i = team_.lane(); i < count; i += team_.lanes()) body(i);
    team_.sync();
  }
  template <typename Body>
  ROTATE_DEVICE void each(const Body& body) {
    each(kHead, body);
  }

  // Element i of K (0) or V (1) of a position.
  ROTATE_DEVICE uint64_t address(uint32_t layer, uint32_t which, uint32_t position, uint32_t i) {
    const uint64_t slot = team_.load(step_.slots + position / kBlockTokens * sizeof(uint32_t));
    const uint64_t row = (layer * 2 + which) * kBlockTokens + position % kBlockTokens;
    return args_.cache + slot * args_.block_bytes + (row * kHead + i) * sizeof(float);
  }
  ROTATE_DEVICE float read(uint64_t from) {
    const uint32_t word = team_.load(from);
    float value;
    __builtin_memcpy(&value, &word, sizeof value);
    return value;
  }
  ROTATE_DEVICE void write(uint64_t to, float value) {
    uint32_t word;
    __builtin_memcpy(&word, &value, sizeof word);
    team_.store(to, word);
  }

  ROTATE_DEVICE float project(uint32_t layer, Matrix matrix, uint32_t row, const float* x,
                              uint32_t columns) {
    float sum = 0;
    for (uint32_t column = 0; column < columns; ++column)
      sum += weight(layer * kMatrices + matrix, row, column + 7) * x[column];
    return sum;
  }

  ROTATE_DEVICE void attend(uint32_t layer, uint32_t position) {
    each([&](uint32_t i) {
      s_.q[i] = project(layer, kQuery, i, s_.x, kHead);
      s_.k[i] = project(layer, kKey, i, s_.x, kHead);
      s_.v[i] = project(layer, kValue, i, s_.x, kHead);
    });
    each([&](uint32_t i) {
      write(address(layer, 0, position, i), s_.k[i]);
      write(address(layer, 1, position, i), s_.v[i]);
    });
    each(position + 1, [&](uint32_t j) {
      float score = 0;
      for (uint32_t i = 0; i < kHead; ++i) score += s_.q[i] * read(address(layer, 0, j, i));
      s_.score[j] = score;
    });
    each([&](uint32_t i) {
      float most = s_.score[0], weights = 0, sum = 0;
      for (uint32_t j = 1; j <= position; ++j) most = s_.score[j] > most ? s_.score[j] : most;
      for (uint32_t j = 0; j <= position; ++j) {
        const float share = expf(s_.score[j] - most);
        weights += share;
        sum += share * read(address(layer, 1, j, i));
      }
      s_.sum[i] = s_.x[i] + sum / weights;
    });
    normalise();
  }

  ROTATE_DEVICE void feed_forward(uint32_t layer) {
    each(kHidden, [&](uint32_t i) {
      const float sum = project(layer, kUp, i, s_.x, kHead);
      s_.hidden[i] = sum > 0 ? sum : 0;
    });
    each([&](uint32_t i) { s_.sum[i] = s_.x[i] + project(layer, kDown, i, s_.hidden, kHidden); });
    normalise();
  }

  // x: the sum, with a mean square of 1.
  ROTATE_DEVICE void normalise() {
    each([&](uint32_t i) {
      float squares = 0;
      for (uint32_t j = 0; j < kHead; ++j) squares += s_.sum[j] * s_.sum[j];
      s_.x[i] = s_.sum[i] / sqrtf(squares / kHead + 1e-6f);
    });
  }

  // The largest of score / temperature + Gumbel noise is a token drawn from the softmax.
  ROTATE_DEVICE uint32_t sample() {
    each([&](uint32_t i) {
      s_.best[i] = -1e30f;
      s_.best_token[i] = 0;
      for (uint32_t token = i; token < kVocabulary; token += kHead) {
        float score = 0;
        for (uint32_t j = 0; j < kHead; ++j) score += s_.x[j] * weight(token, j, 1);
        score = score / kTemperature + gumbel(token);
        if (score <= s_.best[i]) continue;
        s_.best[i] = score;
        s_.best_token[i] = token;
      }
    });
    uint32_t best = 0;
    for (uint32_t i = 1; i < kHead; ++i)
      if (s_.best[i] > s_.best[best]) best = i;
    const uint32_t token = s_.best_token[best];
    team_.sync();
    return token;
  }
  ROTATE_DEVICE float gumbel(uint32_t token) {
    const uint32_t drawn = hash(step_.seed, step_.end, token);
    return -logf(-logf((static_cast<float>(drawn >> 9) + 0.5f) / 8388608.0f));
  }

  Team& team_;
  Scratch& s_;
  const StepArgs& args_;
  const RequestStep& step_;
};

}  // namespace rotate
