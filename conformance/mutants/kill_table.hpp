// The kill table: which kind of case must find each mutant, and for which reason. The numbers are
// those of the table in the documentation. A mutant that fails only elsewhere, or for another
// reason, counts as a survivor.
#pragma once

namespace bp::conformance {

struct KillRow {
  const char* mutant;     // The id, with the strength behind a colon.
  const char* broken;     // The fault of the mutant.
  const char* cases;      // A glob of the cases that run.
  const char* killer;     // A glob of cases of which one must fail; NULL: no case may fail.
  const char* cause;      // The cause that this failure must have.
  bool is_smoke = false;  // The cases of tier smoke suffice.
  const char* tag = "*";  // The requirement that this failure must name.
};

#define BP_BINARY_CASES "op.add.f32.*:op.mul.f64.*:op.maximum.i32.*"
#define BP_UNARY_CASES "op.neg.i32.*:op.exp.f32.*:op.relu.f64.*"

inline constexpr KillRow kKillTable[] = {
    {"1", "matmul drops the tail of K", "op.matmul.f32.*", "*", "tail", true},
    {"1:subtle", "matmul drops the last product", "op.matmul.f32.*", "*", "tail", true},
    {"2", "edge tile with the other row stride", "op.matmul.f32.*", "*", "stride", true},
    {"3", "f32 product sums in bf16", "op.matmul.f32.*", "*.exact_*", "values"},
    {"3:subtle", "f32 product sums in f16", "op.matmul.f32.*", "*", "values"},
    {"4", "f32 product in TF32", "op.matmul.f32.*", "*", "values"},
    {"5", "casts cut off", "op.copy.f32.*", "*", "values"},
    {"6", "broadcast bias is dropped", "op.linear.f32.*", "*.exact_dense.*", "values"},
    {"7", "sum at rank 5 with another stride", "op.sum.f32.*", "*", "values"},
    {"8", "axis counted from the end", "op.softmax.f32.*:op.log_softmax.f32.*", "*", "values"},
    {"9", "sum of nothing is not written", "op.sum.f32.*", "*", "unwritten"},
    {"10", "broadcast operand read as dense", BP_BINARY_CASES, "*", "broadcast", true},
    {"11", "byte offset of a view ignored", BP_BINARY_CASES, "*", "offset", true},
    {"11:subtle", "byte offset rounded to 64", BP_BINARY_CASES, "*", "offset", true},
    {"12", "in place reads what it has written", BP_BINARY_CASES, "*inplace*", "values"},
    {"13", "writes past the end", BP_UNARY_CASES, "*", "canary", true},
    {"14", "writes before the beginning", BP_UNARY_CASES, "*", "canary", true},
    {"15", "tail of the output is not written", BP_UNARY_CASES, "*", "unwritten", true},
    {"16", "input used as scratch memory", BP_UNARY_CASES, "*", "input_modified", true},
    {"17", "NaN is lost", "op.maximum.f32.*:op.relu.f32.*", "*.special.*", "values"},
    {"17", "NaN is lost", "info.declaration.nan.*.f32", "*", "declaration", true},
    {"18", "softmax without the maximum", "op.softmax.f32.*", "*.range.*", "*"},
    {"18:subtle", "softmax with the largest absolute", "op.softmax.f32.*", "*.range.*", "*"},
    {"19", "variance in one pass", "op.layer_norm.f32.*", "*", "values"},
    {"19", "variance in one pass", "info.declaration.var.*.f32", "*", "declaration", true},
    {"19:eps", "eps outside the root", "op.layer_norm.f32.*", "*", "values"},
    {"19:unbiased", "unbiased variance", "op.layer_norm.f32.*", "*", "values"},
    {"20", "exp wrong by 2^-9", "op.exp.f32.*", "*", "values"},
    {"20:subtle", "exp wrong by 2^-18", "op.exp.f32.*", "*", "values"},
    {"21", "undeclared flush to zero", "op.mul.f32.*", "*.special.*", "values"},
    {"21:subtle", "flush to zero in whole vectors", "op.mul.f32.*", "*.special.*", "values"},
    {"22", "float to integer rounds", "op.copy.f32.*", "*", "values"},
    {"22:subtle", "narrowing saturates", "op.copy.i64.*", "*", "values"},
    {"55", "gather gives 0 where it clamps", "op.gather.f32.clamped*", "*", "values", true},
    {"55:subtle", "gather clamps below 0 alone", "op.gather.f32.clamped*", "*", "values", true},
    {"60", "rate of f32 read as f64", "op.sgd_step.f32.*", "*_tensors_f32*", "nan", true},
    {"23", "index of 16 bits", BP_UNARY_CASES, "*", "unwritten"},
    {"40", "same tensors taken for same data", "perf.matmul.square512.f32", "*", "unwritten"},
    {"41", "packed weight is spoilt", "kernel.prepared_launch_is_right.linear", "*", "values"},
    {"43", "matmul by Strassen", "info.declaration.algo.matmul.f32", "*", "declaration", true},
    {"44", "reads past the end", "kernel.launch_stays_between_pages.relu", "*", "*", false,
     "KERNEL-8"},
    {"46", "inline operand has the dtype of x", "op.mul.bf16.*", "*.scalar_*", "values"},
    {"54", "diagonal begins at the first key", "op.sdpa.f32.random.*", "*_causal*", "values", true},
    {"54:sinks", "lse without its sink", "op.sdpa.f32.random.*", "*_sinks*", "values", true},
    {"54:window", "left window does not count itself", "op.sdpa.f32.random.*", "*_left*", "values",
     true},
    {"54:offset", "dropout without its offset", "op.sdpa.f32.random.*", "*_dropout*", "values",
     true},
    {"packed", "first element in the high bits", "op.quantize.u4.*", "*", "values", true},
    {"packed:rest", "bits of no element are cleared", "op.quantize.u4.*", "*", "canary", true},
};

// The mutants that are judged by times, which other work of the machine disturbs.
inline constexpr KillRow kTimedKillTable[] = {
    {"40:subtle", "results cached by content", "perf.matmul.square512.f32", "*", "cached"},
};

#undef BP_BINARY_CASES
#undef BP_UNARY_CASES

#define BP_PROGRAMS "stream.programs.*"
#define BP_LAID_LAUNCHES "kernel.preferred_layout_is_right.*"

// The mutants of the runtime: memory, streams, events, failures, guards, instances. The row of each
// names the tag of the requirement that the mutant breaks.
inline constexpr KillRow kRuntimeKillTable[] = {
    {"24", "kernels on the default stream", "stream.kernel*", "*", "*", true, "STREAM-3"},
    {"24", "kernels on the default stream", BP_PROGRAMS, "*", "order", false, "STREAM-3"},
    {"24:subtle", "one kernel in three there", BP_PROGRAMS, "*", "order", false, "STREAM-3"},
    {"25", "source read after the call", "memory.source*:stream.sources*", "*", "*", true,
     "MEMORY-9"},
    {"25", "source read after the call", BP_PROGRAMS, "*", "order", false, "MEMORY-9"},
    {"25:staging", "two places for staging", "stream.sources*", "*", "*", true, "MEMORY-9"},
    {"25:read", "copy to the host not complete", "memory.copy_to_host*", "*", "*", true,
     "MEMORY-10"},
    {"25:read", "copy to the host not complete", BP_PROGRAMS, "*", "order", false, "MEMORY-10"},
    {"25:timeout", "copy to the host after a timeout", "memory.late_copies*", "*", "*", true,
     "MEMORY-25"},
    {"26", "wait for an event ignored", "event.*:stream.w*", "*", "*", true, "EVENT-2"},
    {"26", "wait for an event ignored", BP_PROGRAMS, "*", "order", false, "EVENT-2"},
    {"26:subtle", "one wait in four ignored", BP_PROGRAMS, "*", "order", false, "EVENT-2"},
    {"26:query", "query of an event too early", "event.query*:stream.event*", "*", "*", true,
     "EVENT-10"},
    {"26:stream_query", "query of a stream too early", "stream.query*", "*", "*", true, "STREAM-7"},
    {"26:record", "second record ignored", "event.second*:stream.wait_*", "*", "*", true,
     "EVENT-2"},
    {"26:callback", "callback of an event too early", "event.callback_runs*", "*", "*", true,
     "EVENT-15"},
    {"26:import", "imported event knows of no record", "event.imported_event_o*:event.another*",
     "*", "*", true, "EVENT-13"},
    {"26:native", "wrapped stream with a queue of its own", "stream.wrapped*", "*", "*", true,
     "STREAM-17"},
    {"27", "freed memory given out too early", "memory.deallocate_on*", "*", "*", true, "STREAM-3"},
    {"27:align", "misaligned address", "memory.alignments*", "*", "*", true, "ERROR-2"},
    {"27:null", "deallocate(NULL) looks at the handle", "memory.deallocate_accepts_null", "*",
     "crash", true, "MEMORY-5"},
    {"27:leak", "leak where an allocation fails", "load.failed*", "*", "*", true, "ENTRY-6"},
    {"27:statistics", "more memory free than there is", "device.memory_info*", "*", "*", true,
     "DEVICE-6"},
    {"27:size", "buffer_info tells a rounded size", "memory.buffer_info*", "*", "*", true,
     "MEMORY-19"},
    {"27:unmap", "unmap takes every pointer", "memory.maps_are*", "*", "*", true, "MEMORY-22"},
    {"28", "bad arguments of fill accepted", "memory.fill_checks*", "*", "*", true, "MEMORY-11"},
    {"28:as_refusal", "failure told as a refusal", "failure.*:stream.fail*", "*", "*", true,
     "STREAM-8"},
    {"28:empty", "0 bytes accepted after a failure", "failure.*:stream.fail*", "*", "*", true,
     "STREAM-20"},
    {"28:elsewhere", "failure told by other streams", "failure.*:stream.fail*", "*", "*", true,
     "STREAM-9"},
    {"28:once", "failure told once", "failure.*:stream.fail*", "*", "*", true, "STREAM-9"},
    {"28:stuck", "failure not cleared", "failure.*:stream.fail*", "*", "*", true, "STREAM-13"},
    {"29", "another device left behind an error", "guard.*", "*", "*", true, "GUARD-4"},
    {"29_shared", "one current device for all", "guard.*", "*", "*", true, "GUARD-3"},
    {"39", "descriptor left by a reload", "load.a_hundred*", "*", "leak", true, "ENTRY-6"},
    {"39:host", "host memory left by a reload", "load.a_hundred*", "*", "leak", true, "ENTRY-6"},
    {"39:memory", "memory left by a reload", "load.a_hundred*", "*", "leak", true, "ENTRY-6"},
    {"39:thread", "thread left by a reload", "load.a_hundred*", "*", "leak", true, "ENTRY-6"},
    {"42", "elements mirrored into a layout", "layout.*", "*", "values", true, "LAYOUT-4"},
    {"42:both", "a layout mirrored both ways", BP_LAID_LAUNCHES, "*", "values", true, "LAYOUT-2"},
    {"42:blob", "any blob taken for the one before", "layout.*", "*", "*", true, "LAYOUT-1"},
    {"42:nibbles", "halves of a block swapped", "layout.blocks_d*", "*", "values", true,
     "LAYOUT-5"},
    {"42:rounds", "shapes rounded down to blocks", "layout.descr*", "*", "*", true, "LAYOUT-8"},
    {"42:reference", "references not counted", "layout.*", "*", "*", true, "LAYOUT-3"},
    {"57", "two tiles exchanged", BP_LAID_LAUNCHES, "*", "values", true, "LAYOUT-2"},
    {"45", "sends pair up backwards", "collective.letters*", "*", "values", false, "COLLECTIVE-13"},
    {"45:options", "options of a group ignored", "collective.options*", "*", "*", false,
     "COLLECTIVE-15"},
    {"45:name", "name of a table ignored", "collective.each_table*", "*", "*", false,
     "COLLECTIVE-14"},
    {"48", "knows a link that nobody has", "kernel.unknown_link*.neg", "*", "offered", true,
     "KERNEL-12"},
    {"48:hint", "ignorable link changes the result", "kernel.ignorable_link*.neg", "*", "*", true,
     "LINK-1"},
    {"47", "wait for a semaphore ignored", "semaphore.work*", "*", "*", true, "SEMAPHORE-2"},
    {"47:early", "signal before the work", "semaphore.value*", "*", "*", true, "SEMAPHORE-3"},
    {"47:failure", "failure not kept", "semaphore.waiting*", "*", "*", true, "SEMAPHORE-8"},
    {"47:refusal", "no signal from a failed stream", "semaphore.failed*", "*", "*", true,
     "SEMAPHORE-7"},
    {"47:fall", "values that do not rise accepted", "semaphore.values*", "*", "*", true,
     "SEMAPHORE-4"},
    {"47:stuck", "failure of a semaphore not cleared", "semaphore.cleared*", "*", "*", true,
     "SEMAPHORE-6"},
    {"50", "options of a compilation ignored", "compiler.options*", "*", "*", true, "COMPILER-8"},
    {"50:stop", "compilation never stops", "compiler.stopped*", "*", "*", true, "COMPILER-9"},
    {"51", "fingerprint of counts alone", "compiler.fingerprints*", "*", "*", true, "COMPILER-10"},
    {"51:address", "fingerprint of an address", "compiler.fingerprints*", "*", "*", true,
     "COMPILER-10"},
    {"51:validate", "all bytes are valid", "compiler.bytes*", "*", "*", true, "COMPILER-11"},
    {"52", "keys of constants ignored", "compiler.*key*", "*", "*", true, "COMPILER-12"},
    {"53", "workspace of the first launch", "compiler.program_runs*", "*", "*", true,
     "COMPILER-20"},
    {"53:bindings", "bindings to extents ignored", "compiler.attribute*:compiler.element*", "*",
     "*", true, "COMPILER-19"},
    {"56", "unload() frees nothing", "compiler.unloaded*", "*", "*", true, "COMPILER-28"},
    {"56:alias", "aliases ignored", "compiler.*alias*:compiler.output_may*", "*", "*", true,
     "COMPILER-24"},
    {"56:layout", "layouts of values ignored", "compiler.*layouts*", "*", "*", true, "COMPILER-22"},
    {"62", "op of nobody is a plain refusal", "compiler.ops_of_nobody*", "*", "*", true, "OP-11"},
    {"64", "target of a compilation ignored", "compiler.described*", "*", "*", true, "COMPILER-26"},
    {"65", "damaged description taken", "compiler.damaged_desc*", "*", "*", true, "COMPILER-27"},
    {"66", "load() does nothing", "compiler.unloaded*", "*", "*", true, "COMPILER-28"},
    {"67", "unload() beside a graph", "compiler.captured*", "*", "*", true, "COMPILER-29"},
    {"68", "memory shared without an alias", "compiler.sharing*", "*", "*", true, "COMPILER-25"},
    {"68:overwritten", "overwrites what it still reads", "compiler.output_may*", "*", "*", true,
     "COMPILER-24"},
    {"69", "layout taken for strides", "compiler.programs_*", "*", "*", true, "COMPILER-23"},
    {"abi_overrun", "writes past the reply", "abi.*", "*", "overrun", true, "SIZE-2"},
    {"abi_long_host", "reads past the host's table", "abi.host_table*", "*", "crash", true,
     "SIZE-2"},
    {"abi_newer", "refuses a newer host", "abi.newer*", "*", "*", true, "ENTRY-1"},
    {"abi_majors", "says that it serves another major", "abi.majors*", "*", "*", true, "ENTRY-8"},
    {"abi_flags", "accepts unknown flags", "stream.unknown_flag*", "*", "*", true, "STREAM-1"},
};

#undef BP_PROGRAMS
#undef BP_LAID_LAUNCHES

}  // namespace bp::conformance
