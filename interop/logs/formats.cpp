// Over 400 lines because the table of formats with its patterns is one.
//
// The table of formats. Sources, read in the code of each project: Megatron-LM d98e8a64
// (megatron/training/training.py, arguments.py, theoretical_memory_usage.py; tags core_v0.4.0 to
// core_v0.19.0), Megatron-Bridge 067f987d, NeMo 8cfedd72, torchtitan b5bcd76c
// (torchtitan/components/metrics.py), nanotron 2411b022 (src/nanotron/trainer.py, logging),
// DeepSpeed edaa7221 (deepspeed/utils/timer.py), transformers (trainer_utils.py), composer
// 64051888 (callbacks/speed_monitor.py, memory_monitor.py), llm.c f1e2ace (train_gpt2.cu), llmq
// b77d969; Megatron-DeepSpeed and its ALCF fork from published logs.
#include "interop/logs/formats.hpp"

#include "interop/logs/arguments.hpp"

namespace echelon {

namespace {

using Q = LogQuantity;
constexpr double kMilli = 1e-3;
constexpr double kMiB = 0x1p20, kGiB = 0x1p30;  // "MB" of Megatron, "GB" of DeepSpeed
constexpr double kGB = 1e9;                     // of Megatron-Bridge and Composer

// --- Megatron-LM and what derives from it -------------------------------------------------------

constexpr std::array kMegatronStep = {
    LogField{"elapsed time per iteration (ms): #", {{{Q::seconds, kMilli}}}},
    LogField{"throughput per GPU (TFLOP/s/GPU): #", {{{Q::tflops_per_gpu}}}},
    LogField{"consumed samples: #", {{{Q::consumed_samples}}}},
    LogField{"global batch size: #", {{{Q::global_batch}}}},
    LogField{"number of skipped iterations: #", {{{Q::skipped}}}},
};
constexpr std::array kMegatronOther = {
    LogField{"[Rank #] (after # iterations) memory (MB) | allocated: # | max allocated: # | "
             "reserved: # | max reserved: #",
             {{{Q::rank},
               {Q::after_step},
               {Q::allocated, kMiB},
               {Q::max_allocated, kMiB},
               {Q::reserved, kMiB},
               {Q::max_reserved, kMiB}}}},
    LogField{"[Rank #] (after # iterations) memory (GB) | mem-allocated-gigabytes: #",
             {{{Q::rank}, {Q::after_step}, {Q::allocated, kGB}}}},
    LogField{"mem-max-allocated-gigabytes: #", {{{Q::max_allocated, kGB}}}},
    LogField{"mem-max-reserved-gigabytes: #", {{{Q::max_reserved, kGB}}}},
    LogField{"mem-alloc-retires: #", {{{Q::retries}}}},
};
constexpr std::array kMegatronValues = {
    ValueField{"using world size: #, data-parallel size: #", {"gpus", "dp"}},
    ValueField{"using world size: #, data-parallel-size: #", {"gpus", "dp"}},
    ValueField{"tensor-model-parallel size: #", {"tp"}},
    ValueField{", pipeline-model-parallel size: #", {"pp"}},
    ValueField{", context-parallel size: #", {"cp"}},
    ValueField{"padded vocab (size: #) with # dummy tokens (new size: #)", {"", "", "vocab"}},
    ValueField{"parameters in most loaded shard in billions: #", {"shard_parameters"}},
    ValueField{"memory footprints: weight and optimizer=# MB", {"shard_state_mib"}},
    ValueField{"number of microbatches to constant #", {"grad_accumulation"}},
    ValueField{"number of micro-batches to constant #", {"grad_accumulation"}},
};
constexpr std::array<std::string_view, 5> kMegatronEvents = {
    "saving checkpoint", "successfully saved checkpoint", "validation loss at", "Evaluating ",
    "evaluating on"};
constexpr std::array kMegatronVersions = {
    VersionMark{"throughput per GPU (TFLOP/s/GPU)", 5, 0},
    VersionMark{"] iteration", 6, 0},
    VersionMark{"skipped samples:", 9, 0},
    VersionMark{"parameters in transformer layers in billions", 5, 11},
    VersionMark{"parameters in transformer block in billions", 12, 0},
    VersionMark{"energy per GPU", 13, 0},
};
constexpr std::array<std::string_view, 1> kMegatronMarks = {"elapsed time per iteration (ms):"};
constexpr std::array<std::string_view, 2> kBridgeMarks = {"GPU utilization:",
                                                          "mem-max-allocated-gigabytes:"};

constexpr std::array<std::string_view, 2> kDeepSpeedMegatronMarks = {
    "elapsed_time_per_iteration_ms=", "tokens per gpu per second (tgs):"};
constexpr std::array kDeepSpeedMegatronStep = {
    LogField{"elapsed_time_per_iteration_ms~#", {{{Q::seconds, kMilli}}}},
    LogField{"elapsed time per iteration (ms): #", {{{Q::seconds, kMilli}}}},
    LogField{"samples_per_second~#", {{{Q::samples_per_second}}}},
    LogField{"samples per second: #", {{{Q::samples_per_second}}}},
    LogField{"tokens_per_gpu_per_second_tgs~#", {{{Q::tokens_per_second_per_gpu}}}},
    LogField{"tokens per gpu per second (tgs): #", {{{Q::tokens_per_second_per_gpu}}}},
    LogField{"TFLOPs~#", {{{Q::tflops_per_gpu}}}},
    LogField{"TFLOPs: #", {{{Q::tflops_per_gpu}}}},
    LogField{"global_batch_size~#", {{{Q::global_batch}}}},
    LogField{"global batch size: #", {{{Q::global_batch}}}},
    LogField{"consumed_samples~#", {{{Q::consumed_samples}}}},
    LogField{"consumed samples: #", {{{Q::consumed_samples}}}},
    LogField{"actual_seqlen~#", {{{Q::sequence}}}},
    LogField{"actual seqlen: #", {{{Q::sequence}}}},
    LogField{"number_of_skipped_iterations~#", {{{Q::skipped}}}},
    LogField{"number of skipped iterations: #", {{{Q::skipped}}}},
};

// --- NeMo 2 --------------------------------------------------------------------------------------

constexpr std::array<std::string_view, 2> kNemoMarks = {"train_step_timing in s:",
                                                        "train_step_timing in s="};
constexpr std::array kNemoStep = {
    LogField{"train_step_timing in s: #", {{{Q::seconds}}}},
    LogField{"train_step_timing in s=#", {{{Q::seconds}}}},
    LogField{"global_batch_size: #", {{{Q::global_batch}}}},
    LogField{"consumed_samples: #", {{{Q::consumed_samples}}}},
    LogField{"TFLOPS_per_GPU: #", {{{Q::tflops_per_gpu}}}},
    LogField{"tokens_per_sec_per_gpu: #", {{{Q::tokens_per_second_per_gpu}}}},
    LogField{"max_memory_reserved: #", {{{Q::max_reserved}}}},
    LogField{"max_memory_allocated: #", {{{Q::max_allocated}}}},
};
constexpr std::array<std::string_view, 2> kNemoEvents = {"Validation: iteration", "Validating"};

// --- torchtitan ----------------------------------------------------------------------------------

constexpr std::array<std::string_view, 2> kTitanMarks = {"tps:", "wps:"};
constexpr std::array kTitanStep = {
    LogField{"tps: #", {{{Q::tokens_per_second_per_gpu}}}},
    LogField{"wps: #", {{{Q::tokens_per_second_per_gpu}}}},
    LogField{"tflops: #", {{{Q::tflops_per_gpu}}}},
    LogField{"memory: #GiB(", {{{Q::max_reserved, kGiB}}}},
};
constexpr std::array kTitanValues = {
    ValueField{
        "Building device mesh with parallelism: pp=#, dp_replicate=#, dp_shard=#, cp=#, tp=#",
        {"pp", "dp_replicate", "dp_shard", "cp", "tp"}},
    ValueField{"with local batch size #, global batch size #, gradient accumulation steps #, "
               "sequence length #",
               {"local_batch", "global_batch", "grad_accumulation", "seq"}},
    ValueField{"tokens per DP rank, # tokens per train step, gradient accumulation steps #, "
               "maximum context length #",
               {"", "grad_accumulation", "seq"}},
    ValueField{"with #GiB memory", {"device_memory_gib"}},
};
constexpr std::array kTitanTexts = {
    TextField{"CUDA capacity: ", " with ", "device"},
    TextField{"Model ", " size: ", "model"},
    TextField{"Applied ", " activation checkpointing", "activation checkpointing"},
    TextField{"Applied ", "AC activation checkpointing", "activation checkpointing"},
    TextField{"Compiling each ", " with torch.compile", "compiled"},
};
constexpr std::array<std::string_view, 4> kTitanEvents = {"Saving the checkpoint",
                                                          "Saving a model only checkpoint",
                                                          "validate step", "Running validation"};

// --- nanotron ------------------------------------------------------------------------------------

constexpr std::array<std::string_view, 1> kNanotronMarks = {"time_per_iteration_ms:"};
constexpr std::array kNanotronStep = {
    LogField{"time_per_iteration_ms: #", {{{Q::seconds, kMilli}}}},
    LogField{"tokens_per_sec: #", {{{Q::tokens_per_second}}}},
    LogField{"tokens_per_sec_per_gpu: #", {{{Q::tokens_per_second_per_gpu}}}},
    LogField{"model_tflops_per_gpu: #", {{{Q::tflops_per_gpu}}}},
    LogField{"consumed_tokens: #", {{{Q::consumed_tokens}}}},
    LogField{"global_batch_size: #", {{{Q::global_batch}}}},
    LogField{"cuda_max_memory_reserved: #", {{{Q::max_reserved}}}},
};
constexpr std::array kNanotronOther = {
    LogField{"Peak allocated #MiB. Peak reserved: #MiB",
             {{{Q::max_allocated, kMiB}, {Q::max_reserved, kMiB}}}},
    LogField{"Peak allocated: #MiB Peak reserved: #MiB",
             {{{Q::max_allocated, kMiB}, {Q::max_reserved, kMiB}}}},
};
constexpr std::array kNanotronValues = {
    ValueField{"| mbs: # | grad_accum: # |", {"microbatch", "grad_accumulation"}},
    ValueField{"| sequence_length: #", {"seq"}},
    ValueField{"Padded vocab (size: #) with # dummy tokens (new size: #)", {"", "", "vocab"}},
};
constexpr std::array<std::string_view, 3> kNanotronEvents = {"Saving checkpoint",
                                                             "[Training Stage:", "Sanity checking"};

// --- DeepSpeed, HuggingFace, Composer ------------------------------------------------------------

constexpr std::array<std::string_view, 1> kDeepSpeedMarks = {"SamplesPerSec="};
constexpr std::array<std::string_view, 1> kPipelineMarks = {"iter time (s):"};
/// Mean over the steps since the last line. Source: DeepSpeed edaa7221,
/// deepspeed/runtime/pipe/engine.py, train_batch.
constexpr std::array kPipelineStep = {
    LogField{"iter time (s): #", {{{Q::seconds}}}},
    LogField{"samples/sec: #", {{{Q::samples_per_second}}}},
};
constexpr std::array kDeepSpeedStep = {
    LogField{"CurrSamplesPerSec=#", {{{Q::samples_per_second}}}},
    LogField{"MaxMemAllocated=#GB", {{{Q::max_allocated, kGiB}}}},
};
constexpr std::array kDeepSpeedOther = {
    LogField{"step=#, skipped=#", {{{Q::ignored}, {Q::skipped_so_far}}}},
};

/// Keys too long for the dots of the dump.
constexpr std::array kDeepSpeedValues = {
    ValueField{"train_micro_batch_size_per_gpu #", {"microbatch"}},
    ValueField{"gradient_accumulation_steps .. #", {"grad_accumulation"}},
};

constexpr std::array<std::string_view, 2> kTrainerMarks = {"s/it]", "it/s]"};
constexpr std::array kTrainerOther = {
    LogField{"'num_input_tokens_seen': #", {{{Q::consumed_tokens}}}},
    LogField{"'num_tokens': #", {{{Q::consumed_tokens}}}},
};
constexpr std::array kTrainerValues = {
    ValueField{"Instantaneous batch size per device = #", {"microbatch"}},
    ValueField{"instantaneous batch size per device = #", {"microbatch"}},
    ValueField{"train batch size (w. parallel, distributed & accumulation) = #", {"global_batch"}},
    ValueField{"Gradient Accumulation steps = #", {"grad_accumulation"}},
    ValueField{"gradient accumulation steps = #", {"grad_accumulation"}},
    ValueField{"Total optimization steps = #", {"total_steps"}},
    ValueField{"total optimization steps = #", {"total_steps"}},
};
constexpr std::array<std::string_view, 6> kTrainerEvents = {"Saving model checkpoint",
                                                            "saving model checkpoint",
                                                            "***** Running Evaluation",
                                                            "***** running evaluation",
                                                            "'eval_loss'",
                                                            "Deleting older checkpoint"};

constexpr std::array<std::string_view, 1> kComposerMarks = {"Train throughput/"};
constexpr std::array kComposerStep = {
    LogField{"Train throughput/samples_per_sec: #", {{{Q::samples_per_second}}}},
    LogField{"Train throughput/device/tokens_per_sec: #", {{{Q::tokens_per_second_per_gpu}}}},
    LogField{"Train memory/peak_allocated_mem: #", {{{Q::max_allocated, kGB}}}},
    LogField{"Train memory/peak_reserved_mem: #", {{{Q::max_reserved, kGB}}}},
    LogField{"Train memory/alloc_retries: #", {{{Q::retries}}}},
};
constexpr std::array kComposerValues = {
    ValueField{"Train trainer/device_train_microbatch_size: #", {"microbatch"}},
};
constexpr std::array<std::string_view, 2> kComposerEvents = {"Saving checkpoint", "[Eval batch="};

// --- trainers in C and C++ -----------------------------------------------------------------------

constexpr std::array<std::string_view, 1> kLlmcMarks = {" MFU |"};
constexpr std::array kLlmcStep = {
    LogField{"| # ms |", {{{Q::seconds, kMilli}}}},
    LogField{"MFU | # tok/s", {{{Q::tokens_per_second}}}},
};
constexpr std::array kLlmcValues = {
    ValueField{"batch_size B=# * seq_len T=# * num_processes=# and total_batch_size=#",
               {"microbatch", "seq", "gpus", "global_batch_tokens"}},
    ValueField{"setting grad_accum_steps=#", {"grad_accumulation"}},
};
constexpr std::array<std::string_view, 3> kLlmcEvents = {"Writing model to",
                                                         "HellaSwag:", "Writing state to"};

constexpr std::array<std::string_view, 1> kLlmqMarks = {"[T] step"};
constexpr std::array kLlmqStep = {
    LogField{"time: # ms", {{{Q::seconds, kMilli}}}},
    LogField{"time: # s |", {{{Q::seconds}}}},  // from 100 s on
    LogField{"| tps #", {{{Q::tokens_per_second}}}},
};
/// The file that --log-file names. Source: llmq b77d969, src/training/logging.cpp, train.cpp.
constexpr std::array<std::string_view, 1> kLlmqJsonMarks = {"{\"log\": \"step\""};
constexpr std::array kLlmqJsonStep = {
    LogField{"\"duration_ms\": #", {{{Q::seconds, kMilli}}}},
    LogField{"\"step_tokens\": #", {{{Q::global_batch_tokens}}}},
};
constexpr std::array kLlmqJsonTexts = {
    TextField{"\"name\": \"micro-batch\", \"value\": ", "}", "batch_size"},
    TextField{"\"name\": \"seq-len\", \"value\": ", "}", "seq_len"},
    TextField{"\"name\": \"grad-accumulation\", \"value\": ", "}", "grad_accumulation"},
    TextField{"\"name\": \"num-layers\", \"value\": ", "}", "num_layers"},
    TextField{"\"name\": \"hidden-size\", \"value\": ", "}", "hidden_size"},
    TextField{"\"name\": \"ffn-size\", \"value\": ", "}", "ffn_hidden_size"},
    TextField{"\"name\": \"num-heads\", \"value\": ", "}", "num_attention_heads"},
    TextField{"\"name\": \"num-kv-heads\", \"value\": ", "}", "num_query_groups"},
    TextField{"\"name\": \"vocab-size\", \"value\": ", "}", "vocab_size"},
    TextField{"\"name\": \"", "\", \"l2_size\"", "device"},
};

const std::array<LogFormat, 13>& all_formats() {
  static const std::array<LogFormat, 13> kFormats = {{
      {.name = "megatron-deepspeed",
       .title = "Megatron-DeepSpeed",
       .software = "megatron-deepspeed",
       .marks = kDeepSpeedMegatronMarks,
       .step = {"iteration~#/ #", {{{Q::step}}}},
       .step_fields = kDeepSpeedMegatronStep,
       .other_fields = kMegatronOther,
       .values = kMegatronValues,
       .arguments = megatron_arguments(),
       .dumps = kDotted | kCommandLine,
       .events = kMegatronEvents},
      {.name = "megatron-bridge",
       .title = "Megatron-Bridge",
       .software = "megatron-core",
       .marks = kBridgeMarks,
       .step_marks = kMegatronMarks,
       .step = {"iteration~#/ #", {{{Q::step}}}},
       .step_fields = kMegatronStep,
       .other_fields = kMegatronOther,
       .values = kMegatronValues,
       .arguments = megatron_arguments(),
       .dumps = kYaml,
       .events = kMegatronEvents},
      {.name = "megatron-lm",
       .title = "Megatron-LM",
       .software = "megatron-core",
       .marks = kMegatronMarks,
       .step = {"iteration~#/ #", {{{Q::step}}}},
       .step_fields = kMegatronStep,
       .other_fields = kMegatronOther,
       .values = kMegatronValues,
       .arguments = megatron_arguments(),
       .dumps = kDotted | kCommandLine,
       .events = kMegatronEvents,
       .versions = kMegatronVersions},
      {.name = "nemo",
       .title = "NeMo 2",
       .software = "nemo",
       .marks = kNemoMarks,
       .step = {"global_step: #", {{{Q::step}}}},
       .step_fields = kNemoStep,
       .arguments = megatron_arguments(),
       .dumps = kYaml,
       .events = kNemoEvents},
      {.name = "nanotron",
       .title = "nanotron",
       .software = "nanotron",
       .marks = kNanotronMarks,
       .step = {"iteration: # / #", {{{Q::step}}}},
       .step_fields = kNanotronStep,
       .other_fields = kNanotronOther,
       .values = kNanotronValues,
       .arguments = nanotron_arguments(),
       .dumps = kAssignments,
       .events = kNanotronEvents,
       .suffixes = true},
      {.name = "llm.q",
       .title = "llm.q",
       .software = "llmq",
       .marks = kLlmqMarks,
       .step = {"[T] step #", {{{Q::step}}}},
       .step_fields = kLlmqStep,
       .arguments = llmc_arguments(),
       .dumps = kCommandLine,
       .suffixes = true,
       .data_parallel_only = true},
      {.name = "llm.q-json",
       .title = "llm.q (JSON)",
       .software = "llmq",
       .marks = kLlmqJsonMarks,
       .step = {"\"step\": #", {{{Q::step}}}},
       .step_fields = kLlmqJsonStep,
       .texts = kLlmqJsonTexts,
       .arguments = llmc_arguments(),
       .data_parallel_only = true},
      {.name = "llm.c",
       .title = "llm.c",
       .software = "llm.c",
       .marks = kLlmcMarks,
       .step = {"step #/# | loss", {{{Q::step}}}},
       .step_fields = kLlmcStep,
       .values = kLlmcValues,
       .arguments = llmc_arguments(),
       .dumps = kTable,
       .events = kLlmcEvents,
       .data_parallel_only = true},
      {.name = "torchtitan",
       .title = "torchtitan",
       .software = "torchtitan",
       .marks = kTitanMarks,
       .step = {"step: # loss:", {{{Q::step}}}},
       .step_fields = kTitanStep,
       .values = kTitanValues,
       .texts = kTitanTexts,
       .arguments = torchtitan_arguments(),
       .dumps = kDictionary,
       .events = kTitanEvents,
       .time = StepTime::tokens_of_model_gpu,
       .interval_has_events = true},
      {.name = "composer",
       .title = "LLM-Foundry (Composer)",
       .software = "llm-foundry",
       .marks = kComposerMarks,
       .step = {"[batch=#/#]", {{{Q::step}}}},
       .step_fields = kComposerStep,
       .values = kComposerValues,
       .arguments = foundry_arguments(),
       .dumps = kYaml,
       .events = kComposerEvents,
       .time = StepTime::samples,
       .fields_follow = true,
       .interval_has_events = true,
       .data_parallel_only = true},
      {.name = "deepspeed-pipeline",
       .title = "DeepSpeed (PipelineEngine)",
       .software = "deepspeed",
       .marks = kPipelineMarks,
       .step = {"steps: # loss:", {{{Q::step}}}},
       .step_fields = kPipelineStep,
       .other_fields = kDeepSpeedOther,
       .values = kDeepSpeedValues,
       .arguments = deepspeed_arguments(),
       .dumps = kDotted},
      {.name = "deepspeed",
       .title = "DeepSpeed",
       .software = "deepspeed",
       .marks = kDeepSpeedMarks,
       .step = {"global_step=#", {{{Q::step}}}},
       .step_fields = kDeepSpeedStep,
       .other_fields = kDeepSpeedOther,
       .values = kDeepSpeedValues,
       .arguments = deepspeed_arguments(),
       .dumps = kDotted,
       .time = StepTime::samples,
       .interval_has_events = true,
       .needs_stamps = true},
      {.name = "hf-trainer",
       .title = "HuggingFace Trainer",
       .software = "fsdp1",
       .marks = kTrainerMarks,
       .step = {"| #/# [%<", {{{Q::step}, {Q::total_steps}, {Q::elapsed}}}},
       .other_fields = kTrainerOther,
       .values = kTrainerValues,
       .arguments = trainer_arguments(),
       .dumps = kCommandLine | kDictionary,
       .events = kTrainerEvents,
       .time = StepTime::clock,
       .interval_has_events = true,
       .data_parallel_only = true},
  }};
  return kFormats;
}

}  // namespace

std::span<const LogFormat> log_formats() { return all_formats(); }

}  // namespace echelon
