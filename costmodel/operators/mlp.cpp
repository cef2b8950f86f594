// The MLP of a dense layer, and the projections that experts share with it.
#include "costmodel/operators/build.hpp"

namespace echelon::operators {

void push_projections(OperatorList& list, const ModelSpec& model, const Framework& framework,
                      const Shapes& s, const MlpNames& names, double tokens, double f, double input,
                      double buffers, double groups) {
  const double branches = model.gated_mlp ? 2 : 1;
  const double rows = tokens / groups;
  const Operator up = gemm(names.up, rows, branches * f, s.h, input, s.e, groups);
  list.push(s.by_operations && model.gated_mlp && groups == 1 ? as_modules(up, 2) : up);
  const double width = s.e * tokens * f;
  const bool keeps_gate = framework.saves_gate_output && model.gated_mlp;
  const double input_width = framework.saves_fp8_activation_input ? s.kept * tokens * f : width;
  Operator activation =
      elementwise(names.activation, (branches + 1) * width, (2 * branches + 1) * width,
                  branches * input_width + (keeps_gate ? width : 0));
  activation.transient = Bytes{(branches + 1) * width + buffers};
  if (s.by_operations && model.gated_mlp) {
    const Operator own = gate_by_operations(names.activation, tokens, f, s);
    activation.forward_traffic = own.forward_traffic;
    activation.backward_traffic = own.backward_traffic;
    activation.forward_kernels = own.forward_kernels;
    activation.backward_kernels = own.backward_kernels;
  }
  list.push(activation);
  const bool keeps_product = framework.saves_swiglu_product || !model.gated_mlp;
  list.push(gemm(names.down, rows, s.h, f, keeps_product ? s.kept * tokens * f : 0, s.e, groups));
}

void push_mlp(OperatorList& list, const ModelSpec& model, const Framework& framework,
              const Shapes& s, LayerSharding sharding) {
  push_column_entry(list, "mlp_gather", s, sharding, model.gated_mlp ? 2 : 1);
  const double input = model.parallel_block ? 0 : s.kept_input();  // shared with attention
  push_projections(list, model, framework, s, {"mlp_up", "activation", "mlp_down"}, s.T, s.f, input,
                   gather_buffers(s, framework, sharding));
  push_row_exit(list, "mlp_reduce", s, sharding);
}

}  // namespace echelon::operators
