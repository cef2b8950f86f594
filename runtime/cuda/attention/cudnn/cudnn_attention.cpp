// The only source that includes cuDNN's frontend, which takes half a minute to compile.
#include "runtime/cuda/attention/cudnn_attention.hpp"

#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/expects.hpp"
#include "runtime/cuda/attention/cudnn/cudnn_library.hpp"
#include "runtime/threads/failure.hpp"

namespace echelon::cuda {
namespace {

using Graph = cudnn_frontend::graph::Graph;
using cudnn_frontend::DataType_t;
using cudnn_frontend::graph::Tensor_attributes;
using Tensor = std::shared_ptr<Tensor_attributes>;

constexpr std::int64_t kAlignment = 256;

enum Operand : std::int64_t { kQ = 1, kK, kV, kOut, kLogSum, kDout, kDq, kDk, kDv };

/// [samples, heads, sequence, width of a head], with the model's order of rows: (position, sample).
struct Heads {
  std::int64_t samples;
  std::int64_t heads;
  std::int64_t stride;  ///< of a row
};

/// A GPU described by its properties; the calling thread's by default.
struct Described {
  std::shared_ptr<cudnn_frontend::DeviceProperties> properties;
  int capability = 0;
};

/// Operands of a shape's part, as described to cuDNN.
class Tensors {
 public:
  Tensors(const AttentionShape& s, const AttentionPart& part, const Described& gpu)
      : s_(s),
        q_{part.samples, part.kv_heads * (s.heads / s.kv_heads), s.qkv_stride},
        kv_{part.samples, part.kv_heads, s.qkv_stride},
        out_{part.samples, q_.heads, s.out_stride} {
    graph->set_io_data_type(DataType_t::BFLOAT16)
        .set_intermediate_data_type(DataType_t::FLOAT)
        .set_compute_data_type(DataType_t::FLOAT);
    if (gpu.properties == nullptr) return;
    graph->set_device_properties(gpu.properties);
    graph->set_sm_version(gpu.capability);
  }
  [[nodiscard]] Tensor input(Operand which) const {
    return graph->tensor(described(Tensor_attributes(), which));
  }
  void output(const Tensor& tensor, Operand which) const {
    described(*tensor, which).set_output(true);
  }
  [[nodiscard]] float scale() const {
    return static_cast<float>(s_.score_factor / std::sqrt(static_cast<double>(s_.head_dim)));
  }
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();

 private:
  Tensor_attributes& described(Tensor_attributes&& tensor, Operand which) const {
    return described(tensor, which);
  }
  Tensor_attributes& described(Tensor_attributes& tensor, Operand which) const {
    tensor.set_uid(which);
    if (which == kLogSum) {
      return tensor.set_data_type(DataType_t::FLOAT)
          .set_dim({q_.samples, q_.heads, s_.sequence, 1})
          .set_stride({q_.heads * s_.sequence, s_.sequence, 1, 1})  // must be dense
          .set_alignment(log_sum_alignment());
    }
    const bool of_kv = which == kK || which == kV || which == kDk || which == kDv;
    const bool of_out = which == kOut || which == kDout;
    const Heads& heads = of_kv ? kv_ : of_out ? out_ : q_;
    const bool of_values = of_out || which == kV || which == kDv;
    const int width = of_values ? s_.value_dim() : s_.head_dim;
    return tensor.set_data_type(DataType_t::BFLOAT16)
        .set_dim({heads.samples, heads.heads, s_.sequence, width})
        .set_stride({heads.stride, width, s_.samples * heads.stride, 1});
  }

  /// Parts follow each other without a gap.
  [[nodiscard]] std::int64_t log_sum_alignment() const {
    const std::int64_t part = q_.samples * q_.heads * s_.sequence;
    const bool whole = q_.samples == s_.samples && q_.heads == s_.heads;
    constexpr std::int64_t kFloat = sizeof(float);
    return whole || part * kFloat % Tensor_attributes::default_alignment == 0
               ? Tensor_attributes::default_alignment
               : kFloat;
  }

  AttentionShape s_;
  Heads q_, kv_, out_;
};

std::shared_ptr<Graph> forward_graph(const AttentionShape& shape, const Described& gpu = {}) {
  const Tensors tensors(shape, {shape.samples, shape.kv_heads}, gpu);
  const auto [out, log_sum] =
      tensors.graph->sdpa(tensors.input(kQ), tensors.input(kK), tensors.input(kV),
                          cudnn_frontend::graph::SDPA_attributes()
                              .set_name("attention forward")
                              .set_generate_stats(true)
                              .set_causal_mask(true)
                              .set_attn_scale(tensors.scale()));
  tensors.output(out, kOut);
  tensors.output(log_sum, kLogSum);
  return tensors.graph;
}

std::shared_ptr<Graph> backward_graph(const AttentionShape& shape, const AttentionPart& part,
                                      bool deterministic, const Described& gpu = {}) {
  const Tensors tensors(shape, part, gpu);
  const auto [dq, dk, dv] = tensors.graph->sdpa_backward(
      tensors.input(kQ), tensors.input(kK), tensors.input(kV), tensors.input(kOut),
      tensors.input(kDout), tensors.input(kLogSum),
      cudnn_frontend::graph::SDPA_backward_attributes()
          .set_name("attention backward")
          .set_causal_mask(true)
          .set_attn_scale(tensors.scale())
          .set_deterministic_algorithm(deterministic));
  tensors.output(dq, kDq);
  tensors.output(dk, kDk);
  tensors.output(dv, kDv);
  return tensors.graph;
}

/// Its reason, if it has one.
std::string said(cudnn_frontend::error_t status) {
  return status.is_good() ? "" : status.get_message();
}

/// The reason why there is no plan; empty if there is one.
std::string plan(Graph& graph, cudnnHandle_t handle) {
  std::string why = said(graph.validate());
  if (why.empty()) why = said(graph.build_operation_graph(handle));
  if (why.empty()) why = said(graph.create_execution_plans({cudnn_frontend::HeurMode_t::A}));
  if (why.empty()) why = said(graph.check_support());
  return why;
}

class Planned {
 public:
  Planned(std::shared_ptr<Graph> graph, cudnnHandle_t handle) : graph_(std::move(graph)) {
    why = plan(*graph_, handle);
    if (why.empty()) why = said(graph_->build_plans());
    if (why.empty()) why = said(graph_->get_workspace_size(workspace));
  }
  void run(cudnnHandle_t handle, std::unordered_map<std::int64_t, void*>& operands,
           void* memory) const {
    const std::string failed = said(graph_->execute(handle, operands, memory));
    if (!failed.empty()) {
      throw RunFailure(RunFailure::Kind::defect, "compute attention: cuDNN says " + failed);
    }
  }
  std::string why;  ///< there is no plan
  std::int64_t workspace = 0;

 private:
  std::shared_ptr<Graph> graph_;
};

/// Operands in the form that the frontend expects.
void* pointer(const void* operand) { return const_cast<void*>(operand); }

struct DestroyHandle {
  void operator()(cudnnContext* handle) const { static_cast<void>(cudnnDestroy(handle)); }
};
using Handle = std::unique_ptr<cudnnContext, DestroyHandle>;

class BuiltAttention final : public CudnnAttention {
 public:
  BuiltAttention(const AttentionShape& shape, Handle handle, const AttentionMode& mode)
      : s_(shape),
        how_(plan_attention_backward(shape, mode)),
        handle_(std::move(handle)),
        forward_(forward_graph(shape), handle_.get()) {
    if (!how_) return;
    backward_.emplace(backward_graph(shape, how_->part, how_->deterministic), handle_.get());
    if (backward_->why.empty()) return;
    backward_.reset();
    how_.reset();
  }

  [[nodiscard]] const std::string& why() const { return forward_.why; }
  [[nodiscard]] std::optional<AttentionBackward> backward_how() const override { return how_; }
  [[nodiscard]] std::int64_t workspace() const override {
    const std::int64_t max_bytes =
        std::max(forward_.workspace, has_backward() ? backward_->workspace : 0);
    return (max_bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  void forward(Stream stream, const Bfloat16* qkv, Bfloat16* out, float* log_sum,
               void* workspace) override {
    use(stream);
    std::unordered_map<std::int64_t, void*> operands{{kQ, pointer(qkv)},
                                                     {kK, pointer(qkv + k_at(0))},
                                                     {kV, pointer(qkv + v_at(0))},
                                                     {kOut, out},
                                                     {kLogSum, log_sum}};
    forward_.run(handle_.get(), operands, workspace);
  }

  void backward(Stream stream, const Bfloat16* qkv, const Bfloat16* out, const float* log_sum,
                const Bfloat16* dout, Bfloat16* dqkv, void* workspace) override {
    EXPECTS(has_backward(), "a shape whose backward cuDNN does");
    use(stream);
    const AttentionPart& part = how_->part;
    for (int sample = 0; sample < s_.samples; sample += part.samples) {
      for (int kv_head = 0; kv_head < s_.kv_heads; kv_head += part.kv_heads) {
        const int head = kv_head * (s_.heads / s_.kv_heads);
        const std::int64_t row = sample * s_.qkv_stride;
        const std::int64_t q = row + std::int64_t{head} * s_.head_dim;
        const std::int64_t k = row + k_at(kv_head);
        const std::int64_t v = row + v_at(kv_head);
        const std::int64_t o = sample * s_.out_stride + std::int64_t{head} * s_.value_dim();
        const std::int64_t sum = (std::int64_t{sample} * s_.heads + head) * s_.sequence;
        std::unordered_map<std::int64_t, void*> operands{{kQ, pointer(qkv + q)},
                                                         {kK, pointer(qkv + k)},
                                                         {kV, pointer(qkv + v)},
                                                         {kOut, pointer(out + o)},
                                                         {kDout, pointer(dout + o)},
                                                         {kLogSum, pointer(log_sum + sum)},
                                                         {kDq, dqkv + q},
                                                         {kDk, dqkv + k},
                                                         {kDv, dqkv + v}};
        backward_->run(handle_.get(), operands, workspace);
      }
    }
  }

 private:
  [[nodiscard]] std::int64_t k_at(int kv_head) const {
    return std::int64_t{s_.heads + kv_head} * s_.head_dim;
  }
  [[nodiscard]] std::int64_t v_at(int kv_head) const {
    return k_at(s_.kv_heads) + std::int64_t{kv_head} * s_.value_dim();
  }
  void use(Stream stream) {
    const cudnnStatus_t status = cudnnSetStream(handle_.get(), stream);
    if (status != CUDNN_STATUS_SUCCESS) {
      throw RunFailure(RunFailure::Kind::defect,
                       fmt::format("choose a stream: cuDNN says {}", cudnnGetErrorString(status)));
    }
  }

  AttentionShape s_;
  std::optional<AttentionBackward> how_;  ///< none: no backward
  Handle handle_;                         ///< outlives the plans that were made with it
  Planned forward_;
  std::optional<Planned> backward_;
};

}  // namespace

std::unique_ptr<CudnnAttention> cudnn_attention(const AttentionShape& shape, std::string& why,
                                                const AttentionMode& mode) {
  why = cudnn_missing();
  if (!why.empty()) return nullptr;
  cudnnHandle_t made = nullptr;
  const cudnnStatus_t status = cudnnCreate(&made);
  if (status != CUDNN_STATUS_SUCCESS) {
    why = fmt::format("cuDNN does not start: {}", cudnnGetErrorString(status));
    return nullptr;
  }
  auto built = std::make_unique<BuiltAttention>(shape, Handle(made), mode);
  why = built->why();
  if (!why.empty()) return nullptr;
  return built;
}

std::string cudnn_version() {
  if (!cudnn_missing().empty()) return "";
  const std::size_t version = cudnnGetVersion();  // from version 9 on
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string refused_by_cudnn(const AttentionShape& shape, const std::string& gpu, int capability,
                             const AttentionMode& mode) {
  if (!cudnn_missing().empty()) return cudnn_missing();
  const Described report{std::make_shared<cudnn_frontend::DeviceProperties>(), capability};
  std::string why = said(report.properties->deserialize({gpu.begin(), gpu.end()}));
  if (why.empty()) why = plan(*forward_graph(shape, report), nullptr);
  const std::optional<AttentionBackward> how = plan_attention_backward(shape, mode);
  if (!how) return "its backward takes more than the limit";
  if (why.empty())
    why = plan(*backward_graph(shape, how->part, how->deterministic, report), nullptr);
  return why;
}

}  // namespace echelon::cuda
